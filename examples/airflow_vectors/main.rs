//! Compares the crate with recorded results of Apache Airflow.
//!
//! ```text
//! cargo run --release --example airflow_vectors -- [--store memory|sqlite|postgres] [--policy airflow|default] FILE.jsonl…
//! ```
//!
//! A file contains one JSON object per line. The fields of its first row show what kind of results it contains. Prints
//! `N passed, M failed` and the first failures. Exits with 1 if any row failed, and with 2 if a file could not be
//! read.
//!
//! With `--policy default` nothing is compared. For each row of an admission file, one line shows what the crate's own
//! default policy admits, `{"id":…,"admitted":[[…],[…],[…]]}`, as indices in the row's `tis`.
//!
//! `--store postgres` (feature `postgres`) uses its own schema in the database that `STATIONMASTER_TEST_POSTGRES`
//! names, by default `postgres://postgres@127.0.0.1:5432/test`, and drops it at the end.

mod admission;
mod backoff;
#[path = "../store_by_name/mod.rs"]
mod store_by_name;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::ExitCode;

use serde_json::Value;
use store_by_name::{Make, make};

/// How many failures are shown per file.
const SHOWN: usize = 10;

const USAGE: &str =
    "usage: airflow_vectors [--store memory|sqlite|postgres] [--policy airflow|default] FILE.jsonl…";

#[derive(Clone, Copy, PartialEq)]
enum Policy {
    Airflow,
    Default,
}

/// The settings of the command line.
struct Settings {
    store: Make,
    policy: Policy,
    files: Vec<String>,
}

/// A kind of file: how to recognize its rows, and how to check one of them.
struct Kind {
    name: &'static str,
    /// Fields that a row of this kind has.
    fields: &'static [&'static str],
    /// Checks one row, and says what differs.
    check: fn(&Value, &Settings) -> Result<(), String>,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "backoff",
        fields: &["next_retry", "retry_delay_s"],
        check: |row, settings| match settings.policy {
            Policy::Airflow => backoff::check(row),
            Policy::Default => Err("there is no default policy for backoff rows".to_owned()),
        },
    },
    Kind { name: "admission", fields: &["tis", "max_tis", "admitted"], check: check_admission },
];

impl Kind {
    fn of(row: &Value) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.fields.iter().all(|field| row.get(field).is_some()))
    }
}

fn check_admission(row: &Value, settings: &Settings) -> Result<(), String> {
    let store = (settings.store)()?;
    match settings.policy {
        Policy::Airflow => admission::check(row, &store),
        Policy::Default => {
            if let Some(answer) = admission::by_default_policy(row, &store)? {
                println!("{}", serde_json::to_string(&answer).map_err(|error| error.to_string())?);
            }
            Ok(())
        }
    }
}

impl Settings {
    fn parse(arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut settings = Self { store: make("memory")?, policy: Policy::Airflow, files: Vec::new() };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--store" => settings.store = make(&arguments.next()?)?,
                "--policy" => {
                    settings.policy = match arguments.next()?.as_str() {
                        "airflow" => Policy::Airflow,
                        "default" => Policy::Default,
                        _ => return None,
                    }
                }
                option if option.starts_with('-') => return None,
                _ => settings.files.push(argument),
            }
        }
        (!settings.files.is_empty()).then_some(settings)
    }
}

fn main() -> ExitCode {
    let Some(settings) = Settings::parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut code = 0;
    for file in &settings.files {
        code = code.max(match compare(file, &settings) {
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

/// Prints the result of one file. Returns how many rows failed.
fn compare(file: &str, settings: &Settings) -> Result<usize, String> {
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
        match (kind.check)(&row, settings) {
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
    let mut report = vec![format!("{file} ({}): {passed} passed, {} failed", kind.name, failures.len())];
    report.extend(failures.iter().take(SHOWN).map(|failure| format!("  {failure}")));
    if failures.len() > SHOWN {
        report.push(format!("  and {} more", failures.len() - SHOWN));
    }
    match settings.policy {
        Policy::Airflow => println!("{}", report.join("\n")),
        // Standard output contains only results. Failures go to standard error.
        Policy::Default if failures.is_empty() => {}
        Policy::Default => eprintln!("{}", report.join("\n")),
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
