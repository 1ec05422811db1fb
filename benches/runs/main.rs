//! Active runs: the index of the stores against what else could be done, on the sets of docs/active-runs.md.
//!
//! ```text
//! cargo bench --bench runs
//! STATIONMASTER_RUNS=20000 cargo bench --bench runs      a small form: the shapes of the table, not its figures
//! ```
//!
//! Prints tables of medians in microseconds. All designs answer the same query in turn, their answers are compared, and the
//! bars are printed as ratios; a bar that is missed is marked, and only in the full form makes the program fail.

#[path = "../shared/bars.rs"]
mod bars;
mod data;
mod events;
mod memory;
mod race;
mod rivals;
mod sqlite;

use std::process::ExitCode;

use bars::Bars;

fn main() -> ExitCode {
    let size = std::env::var("STATIONMASTER_RUNS").ok().and_then(|text| text.parse().ok());
    let (runs, in_memory) = (size.unwrap_or(1_000_000), size.unwrap_or(10_000_000));
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let mut bars = Bars::default();
    if only.is_empty() || only == "sqlite" {
        sqlite::document(size.unwrap_or(400_000), &mut bars);
        sqlite::heavy_tailed(runs, &mut bars);
        sqlite::adversaries(size.unwrap_or(200_000).min(200_000), &mut bars);
    }
    if only.is_empty() || only == "memory" {
        memory::heavy_tailed(runs, &mut bars);
        if in_memory > runs {
            memory::heavy_tailed(in_memory, &mut bars);
        }
        memory::adversaries(size.unwrap_or(200_000).min(200_000));
    }
    bars.print();
    if bars.missed() && size.is_none() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
