//! What is promised, and what was measured.

pub(crate) fn median<T: Copy + PartialOrd>(values: &mut [T]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    values[values.len() / 2]
}

pub(crate) fn figure(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// What is promised, and what was measured.
#[derive(Default)]
pub(crate) struct Bars(Vec<(String, f64, &'static str, f64)>);

impl Bars {
    pub(crate) fn at_most(&mut self, what: impl Into<String>, value: f64, bar: f64) {
        self.0.push((what.into(), value, "<=", bar));
    }

    pub(crate) fn at_least(&mut self, what: impl Into<String>, value: f64, bar: f64) {
        self.0.push((what.into(), value, ">=", bar));
    }

    fn is_met((_, value, sign, bar): &(String, f64, &'static str, f64)) -> bool {
        if *sign == "<=" { value <= bar } else { value >= bar }
    }

    pub(crate) fn missed(&self) -> bool {
        !self.0.iter().all(Self::is_met)
    }

    pub(crate) fn print(&self) {
        println!("\n### Bars\n\n| what | measured | bar | |\n|---|---|---|---|");
        for bar in &self.0 {
            let met = if Self::is_met(bar) { "met" } else { "MISSED" };
            println!("| {} | {} | {} {} | {met} |", bar.0, figure(bar.1), bar.2, bar.3);
        }
    }
}
