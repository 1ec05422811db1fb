//! Parses typed keys.

use std::io::BufRead;

use serde_json::Value;
use stationmaster::TaskKey;
use stationmaster::run::RunKey;

use crate::failure::Failure;

const FORMS: &str = "a task's key is NAMESPACE WORKFLOW RUN TASK [INDEX], or, if no name holds a `/`, \
    NAMESPACE/WORKFLOW/RUN/TASK, or as JSON '[\"prod\",\"nightly\",\"r1\",\"load\"]' or '{\"namespace\":…,\"workflow\":…,\"run\":…,\"task\":…}'; several keys \
    are given as JSON, or one a line on the input with `-`";

/// Returns the keys of tasks in these arguments: one in parts, any number as JSON, or with `-` JSON lines from the
/// input.
pub fn tasks(parts: &[String]) -> Result<Vec<TaskKey>, Failure> {
    match parts {
        [only] if only == "-" => lines(std::io::stdin().lock()),
        [first, ..] if is_json(first) => parts.iter().map(|text| task_of(&json(text)?)).collect(),
        [namespace, workflow, run, task] => Ok(vec![TaskKey::new(namespace, workflow, run, task)?]),
        [namespace, workflow, run, task, index] => {
            let index = index.parse().map_err(|_| refused(FORMS))?;
            Ok(vec![TaskKey::new(namespace, workflow, run, task)?.mapped(index)])
        }
        // The form that tables show, if no name contains a `/`.
        [shown, ..] if shown.contains('/') => parts.iter().map(|shown| shown_key(shown)).collect(),
        _ => Err(refused(FORMS)),
    }
}

/// Reads `namespace/workflow/run/task`, with or without `[index]`.
fn shown_key(text: &str) -> Result<TaskKey, Failure> {
    let names: Vec<&str> = text.split('/').collect();
    let [namespace, workflow, run, task] = names[..] else { return Err(refused(FORMS)) };
    let index = task.strip_suffix(']').and_then(|task| task.rsplit_once('['));
    match index.and_then(|(task, index)| Some((task, index.parse().ok()?))) {
        Some((task, index)) => Ok(TaskKey::new(namespace, workflow, run, task)?.mapped(index)),
        None => Ok(TaskKey::new(namespace, workflow, run, task)?),
    }
}

/// Returns the keys of runs in these arguments.
pub fn runs(parts: &[String]) -> Result<Vec<RunKey>, Failure> {
    const FORMS: &str = "a run's key is NAMESPACE RUN, or as JSON '[\"prod\",\"nightly-1\"]' or \
        '{\"namespace\":…,\"id\":…}'";
    match parts {
        [first, ..] if is_json(first) => {
            let key = |text: &String| match json(text)? {
                Value::Array(names) => match &names[..] {
                    [Value::String(namespace), Value::String(id)] => Ok(RunKey::new(namespace, id)?),
                    _ => Err(refused(FORMS)),
                },
                other => serde_json::from_value(other).map_err(|error| refused(&format!("{FORMS}: {error}"))),
            };
            parts.iter().map(key).collect()
        }
        [namespace, id] => Ok(vec![RunKey::new(namespace, id)?]),
        _ => Err(refused(FORMS)),
    }
}

/// Returns the key in a form that can be typed.
pub fn typed(key: &TaskKey) -> String {
    let TaskKey { namespace, workflow, run, task, .. } = key;
    let names = [namespace.as_str(), workflow.as_str(), run.as_str(), task.as_str()];
    let mut parts: Vec<Value> = names.into_iter().map(Value::from).collect();
    parts.extend(key.map_index.map(Value::from));
    Value::from(parts).to_string()
}

/// Returns true if the argument is JSON. A namespace that begins like JSON must be typed as JSON.
fn is_json(text: &str) -> bool {
    text.starts_with(['{', '['])
}

fn json(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|error| refused(&format!("{FORMS}: {error}")))
}

fn refused(text: &str) -> Failure {
    Failure::Usage(text.to_owned())
}

fn task_of(value: &Value) -> Result<TaskKey, Failure> {
    match value {
        Value::Array(parts) => {
            let names: Option<Vec<&str>> = parts.iter().take(4).map(Value::as_str).collect();
            let (Some([namespace, workflow, run, task]), true) = (names.as_deref(), parts.len() <= 5) else {
                return Err(refused(FORMS));
            };
            let key = TaskKey::new(namespace, workflow, run, task)?;
            match parts.get(4) {
                None | Some(Value::Null) => Ok(key),
                Some(index) => {
                    let index = index.as_u64().and_then(|index| u32::try_from(index).ok());
                    Ok(key.mapped(index.ok_or_else(|| refused(FORMS))?))
                }
            }
        }
        Value::Object(fields) => {
            // Lines that this program prints about a task contain its key in one of these fields.
            let inner = ["key", "task"].iter().filter_map(|name| fields.get(*name));
            match inner.into_iter().find(|value| value.is_object()) {
                Some(key) => task_of(key),
                None => serde_json::from_value(value.clone())
                    .map_err(|error| refused(&format!("{FORMS}: {error}"))),
            }
        }
        _ => Err(refused(FORMS)),
    }
}

/// Reads a key, or a line that this program printed about a task, from each line.
fn lines(input: impl BufRead) -> Result<Vec<TaskKey>, Failure> {
    let mut keys = Vec::new();
    for line in input.lines() {
        let line = line.map_err(|error| refused(&format!("the input cannot be read: {error}")))?;
        if line.trim().is_empty() {
            continue;
        }
        let value = json(&line)?;
        let is_cursor =
            value.as_object().is_some_and(|fields| fields.len() == 1 && fields.contains_key("next"));
        if !is_cursor {
            keys.push(task_of(&value)?);
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(parts: &[&str]) -> Vec<String> {
        parts.iter().map(|part| (*part).to_owned()).collect()
    }

    #[test]
    fn a_key_has_five_forms() {
        let key = TaskKey::new("a/b", "[w", "r 1", "t").unwrap().mapped(3);
        let array = typed(&key);
        let object = serde_json::to_string(&key).unwrap();
        let record = format!("{{\"id\":1,\"key\":{object}}}");
        for parts in [&["a/b", "[w", "r 1", "t", "3"][..], &[&array], &[&object], &[&record]] {
            assert_eq!(tasks(&strings(parts)).unwrap(), std::slice::from_ref(&key), "{parts:?}");
        }
        assert_eq!(tasks(&strings(&[&array, &object])).unwrap().len(), 2);
        let input = format!("{array}\n\n{{\"next\":\"7b\"}}\n{record}\n");
        assert_eq!(lines(input.as_bytes()).unwrap(), [key.clone(), key]);

        let plain = TaskKey::new("a", "[w]", "r 1", "t[x]").unwrap();
        let shown = [plain.to_string(), plain.clone().mapped(3).to_string()];
        assert_eq!(tasks(&shown).unwrap(), [plain.clone(), plain.mapped(3)]);
    }

    #[test]
    fn anything_else_is_refused() {
        let long = "x".repeat(600);
        for parts in [
            &[][..],
            &["a"],
            &["a", "b", "c"],
            &["a/b/c"],
            &["a/b/c/d/e"],
            &["a/b/c/"],
            &["a/b/c/d", "a"],
            &["a", "b", "c", "d", "e"],
            &["a", "b", "c", ""],
            &["a", "b", "c", "d", "-1"],
            &["a", "b", "c", "d", "1", "2"],
            &["[1,2,3,4]"],
            &["[\"a\",\"b\",\"c\",\"d\",-1]"],
            &["[\"a\",\"b\",\"c\",\"d\",1,2]"],
            &["{\"namespace\":\"a\"}"],
            &["{"],
            &[&long, "b", "c", "d"],
        ] {
            assert!(tasks(&strings(parts)).is_err(), "{parts:?}");
        }
        assert!(runs(&strings(&["a"])).is_err() && runs(&strings(&["[1,2]"])).is_err());
        assert_eq!(runs(&strings(&["[\"a\",\"b\"]"])).unwrap(), runs(&strings(&["a", "b"])).unwrap());
    }
}
