//! The arithmetic: what the rounds gave, and whether that meets a bar.

/// What a round measured for one bar: two figures whose ratio counts, or one that counts on its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sample {
    Ratio { ours: f64, theirs: f64 },
    Plain(f64),
}

impl Sample {
    pub fn of(ours: f64, theirs: f64) -> Self {
        Self::Ratio { ours, theirs }
    }

    /// Returns what is held against the bar. Nothing against nothing is not a number, and meets no bar.
    pub fn value(self) -> f64 {
        match self {
            Self::Ratio { ours, theirs } => ours / theirs,
            Self::Plain(value) => value,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    AtLeast(f64),
    AtMost(f64),
    /// No bar: only shown.
    Given,
}

/// Which of the rounds counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum By {
    Median,
    Worst,
}

/// One line of a table.
#[derive(Debug, Clone)]
pub struct Bar {
    pub what: String,
    pub limit: Limit,
    pub by: By,
}

impl Bar {
    pub fn at_least(what: impl Into<String>, limit: f64) -> Self {
        Self { what: what.into(), limit: Limit::AtLeast(limit), by: By::Median }
    }

    pub fn at_most(what: impl Into<String>, limit: f64) -> Self {
        Self { what: what.into(), limit: Limit::AtMost(limit), by: By::Median }
    }

    pub fn given(what: impl Into<String>) -> Self {
        Self { what: what.into(), limit: Limit::Given, by: By::Median }
    }

    /// Counts the worst round instead of the median.
    pub fn worst(self) -> Self {
        Self { by: By::Worst, ..self }
    }

    /// Returns what counts of these rounds.
    pub fn counted(&self, values: &[f64]) -> f64 {
        match (self.by, self.limit) {
            (By::Median, _) => median(values),
            (By::Worst, Limit::AtLeast(_)) => range(values).0,
            (By::Worst, _) => range(values).1,
        }
    }

    pub fn is_met(&self, values: &[f64]) -> bool {
        let counted = self.counted(values);
        match self.limit {
            Limit::AtLeast(limit) => counted >= limit,
            Limit::AtMost(limit) => counted <= limit,
            Limit::Given => true,
        }
    }

    /// Returns this line of the table.
    pub fn row(&self, samples: &[Sample]) -> String {
        let values: Vec<f64> = samples.iter().map(|sample| sample.value()).collect();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for sample in samples {
            if let Sample::Ratio { ours: one, theirs: other } = sample {
                ours.push(*one);
                theirs.push(*other);
            }
        }
        let beside = |figures: &[f64]| if figures.is_empty() { "-".into() } else { figure(median(figures)) };
        let rounds: Vec<String> = values.iter().map(|value| figure(*value)).collect();
        let (least, most) = range(&values);
        let (bar, met) = match self.limit {
            Limit::AtLeast(limit) => (format!(">= {limit}"), self.is_met(&values)),
            Limit::AtMost(limit) => (format!("<= {limit}"), self.is_met(&values)),
            Limit::Given => ("none".into(), true),
        };
        let counts = if self.by == By::Worst { "worst " } else { "" };
        format!(
            "| {} | {} | {} | {} | {counts}{} | {} to {} | {bar} | {} |",
            self.what,
            beside(&ours),
            beside(&theirs),
            rounds.join(" "),
            figure(self.counted(&values)),
            figure(least),
            figure(most),
            match (self.limit, met) {
                (Limit::Given, _) => "",
                (_, true) => "met",
                (_, false) => "MISSED",
            }
        )
    }
}

pub const HEAD: &str = "| what | this side | other side | each round | counts | range | bar | |\n\
                        |---|---|---|---|---|---|---|---|";

/// The middle one, or the mean of the two in the middle. Not a number if there are none, or if one is not.
pub fn median(values: &[f64]) -> f64 {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// The least and the most. Not numbers if there are none, or if one is not.
pub fn range(values: &[f64]) -> (f64, f64) {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return (f64::NAN, f64::NAN);
    }
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
        (least.min(*value), most.max(*value))
    })
}

pub fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_the_rounds_ratios_and_not_the_ratio_of_medians() {
        let samples = [Sample::of(10.0, 10.0), Sample::of(20.0, 40.0), Sample::of(90.0, 30.0)];
        let values: Vec<f64> = samples.iter().map(|sample| sample.value()).collect();
        assert_eq!(values, [1.0, 0.5, 3.0]);
        // The medians' ratio would be 20 / 30.
        assert_eq!(median(&values), 1.0);
        assert_eq!(range(&values), (0.5, 3.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
    }

    #[test]
    fn a_bar_is_met_by_its_limit_itself() {
        assert!(Bar::at_least("", 0.6).is_met(&[0.6, 0.1, 0.9]));
        assert!(!Bar::at_least("", 0.6).is_met(&[0.59, 0.1, 0.9]));
        assert!(Bar::at_most("", 1.4).is_met(&[9.0, 1.4, 0.1]));
        assert!(!Bar::at_most("", 1.4).is_met(&[9.0, 1.41, 0.1]));
        assert!(Bar::given("").is_met(&[9.0]));
    }

    #[test]
    fn the_worst_round_is_the_least_or_the_most() {
        assert!(!Bar::at_most("", 0.5).worst().is_met(&[0.1, 0.6, 0.2]));
        assert!(Bar::at_most("", 0.5).is_met(&[0.1, 0.6, 0.2]));
        assert!(!Bar::at_least("", 0.5).worst().is_met(&[0.9, 0.4, 0.8]));
    }

    #[test]
    fn what_was_not_measured_meets_no_bar() {
        let nothing = Sample::of(0.0, 0.0).value();
        for bar in [Bar::at_least("", 0.0), Bar::at_most("", 9.0), Bar::at_most("", 9.0).worst()] {
            assert!(!bar.is_met(&[]), "{bar:?}");
            assert!(!bar.is_met(&[1.0, nothing, 1.0]), "{bar:?}");
        }
        assert!(!Bar::at_least("", 0.1).is_met(&[Sample::of(0.0, 5.0).value()]));
    }

    #[test]
    fn a_row_shows_both_sides_each_round_and_the_verdict() {
        let bar = Bar::at_least("batch", 0.6);
        let row = bar.row(&[Sample::of(300.0, 1000.0), Sample::of(700.0, 1000.0), Sample::of(500.0, 1000.0)]);
        let expected = "| batch | 500 | 1000 | 0.30 0.70 0.50 | 0.50 | 0.30 to 0.70 | >= 0.6 | MISSED |";
        assert_eq!(row, expected);
        let row = Bar::at_most("errors", 0.0).worst().row(&[Sample::Plain(0.0)]);
        assert_eq!(row, "| errors | - | - | 0.00 | worst 0.00 | 0.00 to 0.00 | <= 0 | met |");
    }
}
