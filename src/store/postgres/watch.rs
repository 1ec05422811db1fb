//! Shows tests what is sent to the server.

use std::cell::RefCell;

use super::name::Schema;
use super::options::PLANNER;
use super::wire::Statement;

/// What one of the crate's stores sent to PostgreSQL together, and waited for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RoundTrip {
    /// The statements in order. What begins a transaction is sent with the first one, and is not listed. A
    /// commit is sent alone or along with the last statements.
    pub statements: Vec<SentStatement>,
}

/// One statement of a [`RoundTrip`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct SentStatement {
    /// The text, with the schema in it.
    pub sql: String,
    /// The types of its parameters: of `$1`, `$2` and so on.
    pub types: Vec<String>,
}

/// Returns the planner settings that a store makes on its connections, in the form that `SET` takes.
pub fn planner_settings() -> &'static [&'static str] {
    &PLANNER
}

thread_local! {
    static SENT: RefCell<Option<Vec<RoundTrip>>> = const { RefCell::new(None) };
}

/// Runs the body, and returns what the crate's stores sent to PostgreSQL from this thread on their own
/// connections. Excludes what happens once per connection (connecting, preparing statements). Also excludes
/// roll-backs, for which no caller waits.
pub fn watch_round_trips<T>(body: impl FnOnce() -> T) -> (T, Vec<RoundTrip>) {
    SENT.set(Some(Vec::new()));
    let answer = body();
    (answer, SENT.take().unwrap_or_default())
}

fn note(trip: impl FnOnce() -> RoundTrip) {
    SENT.with_borrow_mut(|sent| {
        if let Some(sent) = sent {
            sent.push(trip());
        }
    });
}

pub(super) fn batch(schema: &Schema, batch: &[Statement], commits: bool) {
    note(|| {
        let statements = batch.iter().map(|Statement { sql, params }| SentStatement {
            sql: schema.apply(sql),
            types: params.iter().map(|param| param.kind.to_string()).collect(),
        });
        RoundTrip { statements: statements.chain(commits.then(commit_itself)).collect() }
    });
}

fn commit_itself() -> SentStatement {
    SentStatement { sql: "COMMIT".into(), types: Vec::new() }
}

pub(super) fn commit() {
    note(|| RoundTrip { statements: vec![commit_itself()] });
}
