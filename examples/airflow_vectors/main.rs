//! Compares the crate with recorded answers of Apache Airflow.
//!
//! ```text
//! cargo run --release --example airflow_vectors -- FILE.jsonl…
//! ```
//!
//! A file holds one JSON object per line. What kind of answers it has is told by the fields of its first row.
//! Prints `N passed, M failed` and the first failures; exits with 1 if any row failed, with 2 if a file could
//! not be read.

mod backoff;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::ExitCode;

use serde_json::Value;

/// How many failures are shown per file.
const SHOWN: usize = 10;

/// A kind of file: how its rows are told from others, and how one of them is checked.
struct Kind {
    name: &'static str,
    /// Fields that a row of this kind has.
    fields: &'static [&'static str],
    /// Checks one row, and says what differs.
    check: fn(&Value) -> Result<(), String>,
}

const KINDS: &[Kind] =
    &[Kind { name: "backoff", fields: &["next_retry", "retry_delay_s"], check: backoff::check }];

impl Kind {
    fn of(row: &Value) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.fields.iter().all(|field| row.get(field).is_some()))
    }
}

fn main() -> ExitCode {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() || files.iter().any(|file| file.starts_with('-')) {
        eprintln!("usage: airflow_vectors FILE.jsonl…");
        return ExitCode::from(2);
    }
    let mut code = 0;
    for file in &files {
        code = code.max(match compare(file) {
            Ok(0) => 0,
            Ok(_) => 1,
            Err(problem) => {
                eprintln!("{file}: {problem}");
                2
            }
        });
    }
    ExitCode::from(code)
}

/// Prints the result of one file; answers how many rows failed.
fn compare(file: &str) -> Result<usize, String> {
    let reader = BufReader::new(File::open(file).map_err(|error| error.to_string())?);
    let mut kind = None;
    let (mut passed, mut failures) = (0, Vec::new());
    for (line, text) in (1..).zip(reader.lines()) {
        let text = text.map_err(|error| format!("line {line}: {error}"))?;
        if text.trim().is_empty() {
            continue;
        }
        let row: Value =
            serde_json::from_str(&text).map_err(|error| format!("line {line} is not JSON: {error}"))?;
        let kind = *kind.get_or_insert(Kind::of(&row).ok_or_else(|| unknown(line))?);
        match (kind.check)(&row) {
            Ok(()) => passed += 1,
            Err(difference) => {
                let id = row.get("id").and_then(Value::as_str).unwrap_or("(no id)");
                failures.push(format!("line {line}, {id}: {difference}"));
            }
        }
    }
    let Some(kind) = kind else {
        return Err("has no rows".to_owned());
    };
    println!("{file} ({}): {passed} passed, {} failed", kind.name, failures.len());
    for failure in failures.iter().take(SHOWN) {
        println!("  {failure}");
    }
    if failures.len() > SHOWN {
        println!("  and {} more", failures.len() - SHOWN);
    }
    Ok(failures.len())
}

fn unknown(line: usize) -> String {
    let mut text = format!("line {line} is of no known kind. Known are:");
    for kind in KINDS {
        text.push_str(&format!(" {} (rows with the fields {})", kind.name, kind.fields.join(", ")));
    }
    text
}
