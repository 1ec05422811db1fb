//! The steps of a world, as read from the file.

use std::time::Duration;

use serde_json::Value;
use stationmaster::admission::{Definition, IfExists, Policy, Subject};
use stationmaster::id::QueueName;
use stationmaster::ops::AdmitRequest;
use stationmaster::store::MemoryStore;
use stationmaster::{NewTask, TaskKey, Timestamp};

use crate::fields::Fields;

/// A step, at an instant.
pub struct Step {
    pub at: Timestamp,
    pub verb: Verb,
}

pub enum Verb {
    Define(Vec<Definition>, IfExists),
    Undefine(Vec<Subject>),
    Pause(Vec<Subject>),
    Resume(Vec<Subject>),
    Drain(Vec<Subject>),
    Enqueue(Vec<NewTask>),
    Tick(AdmitRequest),
    Preview(AdmitRequest),
    Finish(Vec<String>),
    /// Each fails, and is tried again at its instant.
    Retry(Vec<(String, Timestamp)>),
    GiveBack(Vec<String>),
    Cancel(Vec<String>, Duration),
    Explain(Vec<String>),
    Positions(Vec<String>, u64),
}

/// The verbs, as lines name them.
const VERBS: [&str; 14] = [
    "define",
    "undefine",
    "pause",
    "resume",
    "drain",
    "enqueue",
    "tick",
    "preview",
    "finish",
    "retry",
    "give_back",
    "cancel",
    "explain",
    "positions",
];

/// Returns the key of the task with this name in the world: `name`, or `name[index]` for a mapped one.
pub fn key(name: &str) -> Result<TaskKey, String> {
    let mapped = name.strip_suffix(']').and_then(|name| name.split_once('['));
    let mapped = mapped.and_then(|(name, index)| Some((name, index.parse().ok()?)));
    let (name, index) = mapped.map_or((name, None), |(name, index)| (name, Some(index)));
    let mut key = TaskKey::new("replay", "world", "run", name).map_err(|error| error.to_string())?;
    key.map_index = index;
    Ok(key)
}

/// Reads an instant in microseconds.
fn instant(fields: &Fields, name: &str, micros: i64) -> Result<Timestamp, String> {
    let at = Timestamp::from_micros(micros);
    if at.as_micros() == micros { Ok(at) } else { Err(fields.wrong(name, "it is out of range")) }
}

impl Step {
    /// Reads the line with this number.
    pub fn read(line: &str, number: usize) -> Result<Self, String> {
        let value: Value = serde_json::from_str(line).map_err(|error| format!("it is not JSON: {error}"))?;
        let mut fields = Fields::of(value, "")?;
        let at = fields.must("at")?;
        let at = instant(&fields, "at", at)?;
        let names = fields.names();
        let verbs: Vec<&str> =
            VERBS.into_iter().filter(|verb| names.iter().any(|name| name == verb)).collect();
        let [verb] = verbs[..] else {
            return Err(format!(
                "one of these fields is expected, and {} are there: {}",
                verbs.len(),
                VERBS.join(", ")
            ));
        };
        let verb = match verb {
            "define" => {
                let given: Vec<Value> = fields.must("define")?;
                given.iter().enumerate().try_for_each(|(at, definition)| pool_is_known(definition, at))?;
                let definitions: Vec<Definition> = serde_json::from_value(Value::Array(given))
                    .map_err(|error| fields.wrong("define", error))?;
                // A definition that a store would refuse is refused before anything runs.
                let tried = MemoryStore::new().write(|tx| tx.define(definitions.clone(), IfExists::Replace));
                tried.map_err(|error| fields.wrong("define", error))?;
                Verb::Define(definitions, fields.maybe("if_exists")?.unwrap_or(IfExists::Replace))
            }
            "undefine" => Verb::Undefine(fields.must("undefine")?),
            "pause" => Verb::Pause(fields.must("pause")?),
            "resume" => Verb::Resume(fields.must("resume")?),
            "drain" => Verb::Drain(fields.must("drain")?),
            "enqueue" => Verb::Enqueue(fields.objects("enqueue", task)?),
            "tick" => Verb::Tick(request(&mut fields, "tick", number)?),
            "preview" => Verb::Preview(request(&mut fields, "preview", number)?),
            "finish" => Verb::Finish(names_of(&mut fields, "finish")?),
            "retry" => Verb::Retry(fields.objects("retry", retry)?),
            "give_back" => Verb::GiveBack(names_of(&mut fields, "give_back")?),
            "cancel" => {
                let grace = Duration::from_secs(fields.maybe("grace_s")?.unwrap_or(0));
                Verb::Cancel(names_of(&mut fields, "cancel")?, grace)
            }
            "explain" => Verb::Explain(names_of(&mut fields, "explain")?),
            _ => {
                let most = fields.maybe("most")?.unwrap_or(100);
                Verb::Positions(names_of(&mut fields, "positions")?, most)
            }
        };
        fields.end()?;
        Ok(Self { at, verb })
    }
}

/// Refuses unknown fields of a pool. The crate ignores them, because its output for a pool has more fields.
fn pool_is_known(definition: &Value, at: usize) -> Result<(), String> {
    let Some(Value::Object(pool)) = definition.get("pool") else { return Ok(()) };
    let known = ["name", "slots", "description", "sensing_slots"];
    match pool.keys().find(|field| !known.contains(&field.as_str())) {
        Some(field) => Err(format!("define[{at}].pool.{field}: no such field is known")),
        None => Ok(()),
    }
}

fn names_of(fields: &mut Fields, verb: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = fields.must(verb)?;
    for name in &names {
        key(name).map_err(|error| fields.wrong(verb, error))?;
    }
    Ok(names)
}

fn retry(mut fields: Fields) -> Result<(String, Timestamp), String> {
    let name: String = fields.must("task")?;
    key(&name).map_err(|error| fields.wrong("task", error))?;
    let due = fields.must("due")?;
    let due = instant(&fields, "due", due)?;
    fields.end()?;
    Ok((name, due))
}

fn task(mut fields: Fields) -> Result<NewTask, String> {
    let name: String = fields.must("task")?;
    let mut task = NewTask::new(key(&name).map_err(|error| fields.wrong("task", error))?);
    task.key.map_index = fields.maybe("map_index")?.or(task.key.map_index);
    task.queue = fields.maybe("queue")?.unwrap_or(task.queue);
    task.pool = fields.maybe("pool")?.unwrap_or(task.pool);
    task.pool_slots = fields.maybe("slots")?.unwrap_or(task.pool_slots);
    task.priority = fields.maybe("priority")?.unwrap_or(task.priority);
    let (date, not_before) = (fields.maybe("date")?, fields.maybe("not_before")?);
    task.logical_date = date.map(|date| instant(&fields, "date", date)).transpose()?;
    task.not_before = not_before.map(|at| instant(&fields, "not_before", at)).transpose()?;
    task.share = fields.maybe("share")?;
    for (pool, slots) in fields.numbers("also")? {
        let pool = pool.as_str().try_into().map_err(|error| fields.wrong("also", error))?;
        task = task.also(pool, slots);
    }
    for (limit, count) in fields.numbers("keys")? {
        let limit = limit.as_str().try_into().map_err(|error| fields.wrong("keys", error))?;
        task = task.limit_count(limit, count);
    }
    // A task that the store would refuse is refused before anything runs.
    task.check(Timestamp::UNIX_EPOCH).map_err(|error| fields.wrong("task", error))?;
    // Any task may be retried: a step decides when.
    let retry = stationmaster::backoff::RetryPolicy::fixed(Duration::ZERO).build();
    task.retry = retry.map_err(|error| error.to_string())?;
    fields.end()?;
    Ok(task)
}

fn request(line: &mut Fields, verb: &str, number: usize) -> Result<AdmitRequest, String> {
    let mut fields = Fields::of(line.must(verb)?, verb)?;
    let holder = fields.must("holder")?;
    let lease = Duration::from_secs(fields.maybe("lease_s")?.unwrap_or(60));
    let budget = fields.maybe("budget")?.unwrap_or(usize::MAX);
    let name = format!("step {number}").as_str().try_into().map_err(|error| fields.wrong("holder", error))?;
    let policy: Policy = fields.maybe("policy")?.unwrap_or_default();
    let mut request = AdmitRequest::new(holder, name, budget, lease).policy(policy);
    if let Some(queues) = fields.maybe::<Vec<QueueName>>("serves")? {
        request = request.serves(queues);
    }
    let tried = MemoryStore::new().read(|tx| tx.preview(Timestamp::UNIX_EPOCH, &request));
    tried.map_err(|error| fields.wrong("serves", error))?;
    fields.end()?;
    Ok(request)
}
