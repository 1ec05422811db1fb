//! Parses what a person pastes to find a task: its number, or its key in a form that the pages or the program show.

use serde_json::Value;

use super::trouble::Trouble;
use crate::id::TaskKey;
use crate::lease::TaskId;

/// A task as a person names it.
#[derive(Debug, PartialEq)]
pub(super) enum Named {
    Number(TaskId),
    Key(TaskKey),
}

impl Named {
    pub(super) fn of(text: &str) -> Result<Self, Trouble> {
        let text = text.trim();
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let number = text.parse().map_err(|_| Trouble::bad("key: no task has such a number"))?;
            return Ok(Self::Number(TaskId(number)));
        }
        let key = if text.starts_with(['[', '{']) { of_json(text)? } else { None };
        match key {
            Some(key) => Ok(Self::Key(key)),
            None => of_parts(text).map(Self::Key),
        }
    }
}

/// Returns the key in a form that can be pasted again, even if names contain a `/`.
pub(super) fn typed(key: &TaskKey) -> String {
    let names = [key.namespace.as_str(), key.workflow.as_str(), key.run.as_str(), key.task.as_str()];
    let mut parts: Vec<Value> = names.into_iter().map(Value::from).collect();
    parts.extend(key.map_index.map(Value::from));
    Value::from(parts).to_string()
}

fn other() -> Trouble {
    Trouble::bad(
        "key: it is the task's number, NAMESPACE/WORKFLOW/RUN/TASK if no name holds a `/`, or JSON such as \
         [\"prod\",\"nightly\",\"r1\",\"load\"]",
    )
}

/// Reads an array of names with an optional index, or an object. `None` if it is not JSON: a namespace may begin like
/// JSON.
fn of_json(text: &str) -> Result<Option<TaskKey>, Trouble> {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return Ok(None) };
    let Some(parts) = value.as_array() else {
        return serde_json::from_value(value).map(Some).map_err(|_| other());
    };
    let names: Vec<&str> = parts.iter().map_while(Value::as_str).collect();
    let (&[namespace, workflow, run, task], 4..=5) = (&names[..], parts.len()) else { return Err(other()) };
    let key = TaskKey::new(namespace, workflow, run, task)?;
    let Some(index) = parts.get(4).filter(|index| !index.is_null()) else { return Ok(Some(key)) };
    let index = index.as_u64().and_then(|index| u32::try_from(index).ok()).ok_or_else(other)?;
    Ok(Some(key.mapped(index)))
}

/// Reads `namespace/workflow/run/task`, with or without `[index]`.
fn of_parts(text: &str) -> Result<TaskKey, Trouble> {
    let names: Vec<&str> = text.split('/').collect();
    let [namespace, workflow, run, task] = names[..] else { return Err(other()) };
    let index = task.strip_suffix(']').and_then(|task| task.rsplit_once('['));
    match index.and_then(|(task, index)| Some((task, index.parse().ok()?))) {
        Some((task, index)) => Ok(TaskKey::new(namespace, workflow, run, task)?.mapped(index)),
        None => Ok(TaskKey::new(namespace, workflow, run, task)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_named_in_each_form_that_is_shown() {
        let key = TaskKey::new("a/b", "[w", "r 1", "t").unwrap().mapped(3);
        let object = serde_json::to_string(&key).unwrap();
        for text in [typed(&key), object, format!(" {}\n", typed(&key))] {
            assert_eq!(Named::of(&text).unwrap(), Named::Key(key.clone()), "{text}");
        }
        let plain = TaskKey::new("[a", "w", "r 1", "t[x]").unwrap();
        assert_eq!(Named::of(&typed(&plain)).unwrap(), Named::Key(plain.clone()));
        for key in [plain.clone(), plain.mapped(7)] {
            assert_eq!(Named::of(&key.to_string()).unwrap(), Named::Key(key));
        }
        assert_eq!(Named::of(" 17 ").unwrap(), Named::Number(TaskId(17)));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "a",
            "a/b/c",
            "a/b/c/d/e",
            "a/b/c/",
            "[1,2,3,4]",
            "[\"a\",\"b\",\"c\",\"d\",-1]",
            "{}",
            "[\"a\",\"b\",\"c\",\"d\",1,2]",
            "[\"a\",\"b\",\"c\",\"d\",\"e\"]",
            "99999999999999999999",
            "-1",
        ] {
            assert!(Named::of(text).is_err(), "{text}");
        }
    }
}
