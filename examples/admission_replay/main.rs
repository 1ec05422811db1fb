//! Replays the steps of a world, and prints what each admitted, in which order, and why the rest waits.
//!
//! ```text
//! cargo run --example admission_replay -- [--store memory|sqlite|postgres] FILE.jsonl
//! ```
//!
//! FILE contains one step per line, a JSON object. `docs/admission.md` describes the fields. For each step
//! the program prints one line, also a JSON object. It reads all lines before the first step runs. If one is
//! wrong, it prints its file, line and field, runs nothing, and exits with 2. If a step is refused, it says
//! which one and exits with 1.

mod fields;
mod steps;
#[path = "../store_by_name/mod.rs"]
mod store_by_name;

use std::collections::HashMap;
use std::process::ExitCode;

use serde_json::{Value, json};
use stationmaster::ops::{Admission, Finish, Outcome, RetryAdvice};
use stationmaster::store::{Inserted, Store, Tx};
use stationmaster::{Error, LeaseRef, NewTask, Result, TaskId, TaskKey, Timestamp};
use steps::{Step, Verb, key};
use store_by_name::make;

const USAGE: &str = "usage: admission_replay [--store memory|sqlite|postgres] FILE.jsonl";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut kind, mut file) = ("memory".to_owned(), None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--store" => kind = arguments.next().unwrap_or_default(),
            option if option.starts_with('-') => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
            _ => file = Some(argument),
        }
    }
    let (Some(make), Some(file)) = (make(&kind), file) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let world =
        std::fs::read_to_string(&file).map_err(|error| error.to_string()).and_then(|text| read(&text));
    let (steps, store) = match (world, make()) {
        (Ok(steps), Ok(store)) => (steps, store),
        (Err(problem), _) | (_, Err(problem)) => {
            eprintln!("{file}: {problem}");
            return ExitCode::from(2);
        }
    };
    let mut names = HashMap::new();
    for (number, step) in (1..).zip(&steps) {
        match run(&*store, step, &mut names) {
            Ok(mut answer) => {
                answer["step"] = number.into();
                answer["at"] = step.at.as_micros().into();
                println!("{answer}");
            }
            Err(error) => {
                eprintln!("{file}: step {number}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Reads all steps, or says what is wrong with the first invalid line.
fn read(text: &str) -> std::result::Result<Vec<Step>, String> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(at, line)| Step::read(line, at).map_err(|problem| format!("line {at}: {problem}"))).collect()
}

/// Runs one step in its own transaction. `names` contains the tasks' names by number.
fn run(store: &dyn Store, step: &Step, names: &mut HashMap<TaskId, String>) -> Result<Value> {
    let now = step.at;
    match &step.verb {
        Verb::Preview(request) => Ok(admission(&store.read(|tx| tx.preview(now, request))?, names)),
        Verb::Drain(subjects) => Ok(json!({ "drain": store.read(|tx| tx.drain(subjects))? })),
        Verb::Explain(tasks) => {
            let found = store.read(|tx| tx.explain(now, &keys(tasks)?))?;
            let lines =
                tasks.iter().zip(found).map(|(task, why)| json!({ "task": task, "why": why.to_string() }));
            Ok(json!({ "explain": lines.collect::<Vec<_>>() }))
        }
        Verb::Positions(tasks, most) => {
            let found = store.read(|tx| tx.positions(&keys(tasks)?, *most))?;
            let lines =
                tasks.iter().zip(found).map(|(task, position)| json!({ "task": task, "position": position }));
            Ok(json!({ "positions": lines.collect::<Vec<_>>() }))
        }
        verb => {
            let answer = store.write(|tx| write(tx, now, verb))?;
            if let Verb::Enqueue(tasks) = verb {
                let keys: Vec<TaskKey> = tasks.iter().map(|task| task.key.clone()).collect();
                for task in store.read(|tx| tx.tasks(&keys))?.into_iter().flatten() {
                    names.insert(task.id, name(&task.key));
                }
            }
            Ok(match answer {
                Answer::Value(value) => value,
                Answer::Tick(tick) => admission(&tick, names),
            })
        }
    }
}

enum Answer {
    Value(Value),
    Tick(Box<Admission>),
}

fn write(tx: &mut Tx<'_>, now: Timestamp, verb: &Verb) -> Result<Answer> {
    let value = match verb {
        Verb::Define(definitions, if_exists) => {
            json!({ "define": tx.define(definitions.iter().cloned(), *if_exists)? })
        }
        Verb::Undefine(subjects) => json!({ "undefine": tx.undefine(subjects)? }),
        Verb::Pause(subjects) => json!({ "pause": tx.pause(subjects)? }),
        Verb::Resume(subjects) => json!({ "resume": tx.resume(subjects)? }),
        Verb::Enqueue(tasks) => {
            let inserted = tx.enqueue(now, tasks)?.into_iter();
            let word = |inserted| match inserted {
                Inserted::New(_) => json!("new"),
                Inserted::Exists(_) => json!("exists"),
                Inserted::Refused { subject, waiting, most } => {
                    json!({ "refused": { "subject": subject, "waiting": waiting, "most": most } })
                }
            };
            json!({ "enqueue": outcomes(tasks, inserted.map(word)) })
        }
        Verb::Tick(request) => return Ok(Answer::Tick(Box::new(tx.admit(now, request)?))),
        Verb::Finish(tasks) => {
            let outcomes = tasks.iter().map(|_| Outcome::Success { value: None });
            json!({ "finish": end(tx, now, tasks, outcomes.collect())? })
        }
        Verb::Retry(tasks) => {
            let names: Vec<String> = tasks.iter().map(|(name, _)| name.clone()).collect();
            let failed = |due: &Timestamp| {
                let retry = RetryAdvice::After(due.saturating_duration_since(now));
                Outcome::Failed { message: "a step says so".to_owned(), retry }
            };
            json!({ "retry": end(tx, now, &names, tasks.iter().map(|(_, due)| failed(due)).collect())? })
        }
        Verb::GiveBack(tasks) => {
            json!({ "give_back": end(tx, now, tasks, tasks.iter().map(|_| Outcome::GivenBack).collect())? })
        }
        Verb::Cancel(tasks, grace) => {
            let became = tx.cancel(now, *grace, &keys(tasks)?, "a step says so")?.into_iter();
            let lines =
                tasks.iter().zip(became).map(|(task, became)| json!({ "task": task, "became": became }));
            json!({ "cancel": lines.collect::<Vec<_>>() })
        }
        Verb::Preview(_) | Verb::Drain(_) | Verb::Explain(_) | Verb::Positions(..) => Value::Null,
    };
    Ok(Answer::Value(value))
}

/// Ends the attempts of these tasks, each under its current lease.
fn end(tx: &mut Tx<'_>, now: Timestamp, tasks: &[String], outcomes: Vec<Outcome>) -> Result<Vec<Value>> {
    let found = tx.tasks(&keys(tasks)?)?;
    // A task that does not exist has no lease, so its end is stale.
    let lease = |task: &Option<stationmaster::TaskRecord>| match task {
        Some(task) => task.lease_ref(),
        None => LeaseRef::new(TaskId(0), 0),
    };
    let ends: Vec<Finish> =
        found.iter().zip(outcomes).map(|(task, outcome)| Finish::new(lease(task), outcome)).collect();
    let finished = tx.finish(now, &ends)?;
    Ok(tasks
        .iter()
        .zip(finished)
        .map(|(task, finished)| json!({ "task": task, "became": finished }))
        .collect())
}

fn keys(tasks: &[String]) -> Result<Vec<TaskKey>> {
    // The names were checked when they were read.
    tasks.iter().map(|name| key(name).map_err(Error::abort)).collect()
}

/// Returns the name of a task, with its map index if it has one.
fn name(key: &TaskKey) -> String {
    match key.map_index {
        Some(index) => format!("{}[{index}]", key.task),
        None => key.task.to_string(),
    }
}

fn outcomes(tasks: &[NewTask], answers: impl Iterator<Item = Value>) -> Vec<Value> {
    let line = |(task, answer): (&NewTask, Value)| json!({ "task": name(&task.key), "became": answer });
    tasks.iter().zip(answers).map(line).collect()
}

/// Returns what a tick did. Tasks are given by name. The refused lanes are ordered by their needs.
fn admission(tick: &Admission, names: &HashMap<TaskId, String>) -> Value {
    let mut refused = tick.refusals.clone();
    refused.sort_unstable_by(|a, b| a.lane.cmp(&b.lane));
    let refused = refused.into_iter().map(|refusal| {
        let mut line = json!(refusal);
        let number = line["reason"]["task"].as_i64().map(TaskId);
        if let Some(name) = number.and_then(|number| names.get(&number)) {
            line["reason"]["task"] = name.as_str().into();
        }
        line
    });
    json!({
        "admitted": tick.granted.iter().map(|task| name(&task.key)).collect::<Vec<_>>(),
        "refused": refused.collect::<Vec<_>>(),
        "next_due": tick.next_due.map(Timestamp::as_micros),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: &str = include_str!("../worlds/two_tenants.jsonl");
    const ANSWERS: &str = include_str!("../worlds/two_tenants.answers.jsonl");

    /// Returns what the program prints for this world.
    fn replayed(kind: &str, world: &str) -> String {
        let make = make(kind).unwrap();
        let store = make().unwrap();
        let mut names = HashMap::new();
        let mut lines = String::new();
        for (number, step) in (1..).zip(&read(world).unwrap()) {
            let mut answer = run(&*store, step, &mut names).unwrap();
            (answer["step"], answer["at"]) = (number.into(), step.at.as_micros().into());
            lines += &format!("{answer}\n");
        }
        lines
    }

    #[test]
    fn the_world_of_the_documentation_is_answered_alike_by_every_store() {
        let mut kinds = vec!["memory"];
        kinds.extend(cfg!(feature = "sqlite").then_some("sqlite"));
        kinds.extend(cfg!(feature = "postgres").then_some("postgres"));
        for kind in kinds {
            assert_eq!(replayed(kind, WORLD), ANSWERS, "{kind}");
        }
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_line_and_field() {
        let task = |field: &str| format!(r#"{{"at":0,"enqueue":[{{"task":"a"}},{{"task":"b",{field}}}]}}"#);
        let wrong = [
            ("{".to_owned(), "line 2: it is not JSON: EOF while parsing an object at line 1 column 1"),
            ("[]".to_owned(), "line 2: : an object is expected"),
            (r#"{"at":"x","finish":[]}"#.to_owned(), "line 2: at: invalid type: string \"x\", expected i64"),
            (r#"{"finish":[]}"#.to_owned(), "line 2: at: it is missing"),
            (task(r#""slots":-1"#), "line 2: enqueue[1].slots: invalid value: integer `-1`, expected u32"),
            (task(r#""slot":1"#), "line 2: enqueue[1].slot: no such field is known"),
            (
                task(r#""pool":"""#),
                "line 2: enqueue[1].pool: pool name is empty: give it at least one character",
            ),
            (
                task(r#""slots":0"#),
                "line 2: enqueue[1].task: task replay/world/run/b asks for 0 slots of pool default_pool: ask for 1 to 2147483647",
            ),
            (
                task(r#""keys":{"k":0}"#),
                "line 2: enqueue[1].task: task replay/world/run/b counts 0 against limit k: count 1 to 2147483647",
            ),
            (r#"{"at":9223372036854775807,"finish":[]}"#.to_owned(), "line 2: at: it is out of range"),
            (
                r#"{"at":0,"define":[{"limit":{"key":"k","maxx":2}}]}"#.to_owned(),
                "line 2: define: unknown field `maxx`, expected one of `key`, `family`, `max`, `rate`, `weight`, `waiting`",
            ),
            (
                r#"{"at":0,"define":[{"pool":{"name":"p","slots":1,"colour":2}}]}"#.to_owned(),
                "line 2: define[0].pool.colour: no such field is known",
            ),
            (
                r#"{"at":0,"define":[{"limit":{"key":"k","family":true,"max":0}}]}"#.to_owned(),
                "line 2: define: the maximum of a family of 0 is refused: give at least 1",
            ),
            (
                r#"{"at":0,"tick":{"holder":"w","serves":[]}}"#.to_owned(),
                "line 2: tick.serves: a request that serves no queue admits nothing: name at least one, or leave `serves` out to serve all",
            ),
            (
                r#"{"at":0,"finish":["a",""]}"#.to_owned(),
                "line 2: finish: task id is empty: give it at least one character",
            ),
            (
                r#"{"at":0,"tick":{"holder":"w","budget":-1}}"#.to_owned(),
                "line 2: tick.budget: invalid value: integer `-1`, expected usize",
            ),
            (
                r#"{"at":0,"define":[{"limit":{"key":"k","rate":{"starts":1}}}]}"#.to_owned(),
                "line 2: define: missing field `period_s`",
            ),
        ];
        for (line, expected) in wrong {
            let world = format!("{{\"at\":0,\"finish\":[]}}\n{line}\n");
            assert_eq!(read(&world).err().unwrap(), expected);
        }
        let none = read(r#"{"at":0,"finnish":[]}"#).err().unwrap();
        assert!(
            none.starts_with("line 1: one of these fields is expected, and 0 are there: define, "),
            "{none}"
        );
        let two = read(r#"{"at":0,"finish":[],"retry":[]}"#).err().unwrap();
        assert!(
            two.starts_with("line 1: one of these fields is expected, and 2 are there: define, "),
            "{two}"
        );
    }
}
