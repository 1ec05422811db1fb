//! Designs that answer the same queries in turn.

use std::time::{Duration, Instant};

use crate::bars::{figure, median};
use crate::data::Span;

/// A window in seconds, and the namespaces asked about; none for all.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) begin: i64,
    pub(crate) end: i64,
    pub(crate) namespaces: Vec<usize>,
}

impl Query {
    pub(crate) fn hits(&self, spans: &[Span]) -> usize {
        let asked = |span: &&Span| self.namespaces.is_empty() || self.namespaces.contains(&span.ns);
        spans.iter().filter(asked).filter(|span| span.is_active(self.begin, self.end)).count()
    }
}

/// Returns the number of runs that a query found.
pub(crate) type Ask<'a> = Box<dyn FnMut(&Query) -> usize + 'a>;

/// A design without an answer gets no figure.
pub(crate) struct Design<'a> {
    pub(crate) name: &'static str,
    pub(crate) ask: Ask<'a>,
}

pub(crate) fn design<'a>(name: &'static str, ask: impl FnMut(&Query) -> usize + 'a) -> Design<'a> {
    Design { name, ask: Box::new(ask) }
}

/// After this long a design is asked no more queries of a group, once it has a few.
const PATIENCE: Duration = Duration::from_secs(3);

/// The medians of one group of queries.
pub(crate) struct Medians {
    pub(crate) hits: usize,
    pub(crate) micros: Vec<f64>,
}

/// Asks all designs all queries, in turn; the first three answers of each are compared with the rule.
pub(crate) fn race(designs: &mut [Design<'_>], queries: &[Query], spans: &[Span]) -> Medians {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); designs.len()];
    let mut spent = vec![Duration::ZERO; designs.len()];
    let mut hits = Vec::new();
    for (at, query) in queries.iter().enumerate() {
        let expected = (at < 3).then(|| query.hits(spans));
        let mut found = 0;
        for (index, design) in designs.iter_mut().enumerate() {
            if spent[index] > PATIENCE && times[index].len() >= 3 {
                continue;
            }
            if at == 0 {
                (design.ask)(query);
            }
            let began = Instant::now();
            let answer = (design.ask)(query);
            let took = began.elapsed();
            spent[index] += took;
            times[index].push(took.as_secs_f64() * 1e6);
            if design.name != "limit" {
                if let Some(expected) = expected {
                    assert_eq!(answer, expected, "{} answers {query:?}", design.name);
                }
                found = answer;
            }
        }
        hits.push(found);
    }
    Medians { hits: median(&mut hits), micros: times.iter_mut().map(|times| median(times)).collect() }
}

pub(crate) fn heading(title: &str, designs: &[Design<'_>]) {
    println!("\n### {title}\n");
    let names: Vec<&str> = designs.iter().map(|design| design.name).collect();
    println!("| query | hits | {} |", names.join(" | "));
    println!("|---|---|{}", "---|".repeat(names.len()));
}

pub(crate) fn row(label: &str, medians: &Medians) {
    let times: Vec<String> = medians.micros.iter().map(|micros| figure(*micros)).collect();
    println!("| {label} | {} | {} |", medians.hits, times.join(" | "));
}
