//! The tasks that a command changes: those given by key, or those that a query finds.

use std::collections::HashSet;

use serde_json::json;
use stationmaster::store::Tx;
use stationmaster::task::TaskQuery;
use stationmaster::{Result, TaskId, TaskKey, TaskRecord};

use super::Done;
use crate::args::{Page, Pick, Sure};
use crate::ask::is_sure;
use crate::failure::Failure;
use crate::key as keys_of;
use crate::open::Opened;
use crate::screen::{Screen, Style, field, key, state};
use crate::show;
use crate::text::visible;

/// How many tasks one transaction changes.
const AT_ONCE: usize = 500;

/// How many tasks are listed before the question.
const NAMED: usize = 10;

/// Changes the picked tasks, after asking. Returns true if there were any and all are now as they should be.
pub fn apply(
    opened: &Opened,
    style: Style,
    pick: &Pick,
    sure: &Sure,
    word: &str,
    mut verb: impl FnMut(&mut Tx<'_>, &[TaskKey]) -> Result<Vec<Done>>,
) -> std::result::Result<bool, Failure> {
    let mut screen = Screen::new(style, opened.now());
    let (mut done, query) = (Vec::new(), query(pick, &screen)?);
    let known = match &query {
        Some(query) => listed(opened, query, pick.limit)?,
        None => {
            let mut keys = keys_of::tasks(&pick.key)?;
            // A task that is given twice is changed once.
            let mut named = HashSet::new();
            keys.retain(|key| named.insert(key.clone()));
            let mut known = Vec::new();
            for keys in keys.chunks(AT_ONCE) {
                let tasks = opened.store.read(|tx| tx.tasks(keys))?;
                for (key, task) in keys.iter().zip(tasks) {
                    match task {
                        Some(task) => known.push(task),
                        None => {
                            let hint = show::hint(opened.store.as_ref(), keys)?;
                            let text = format!("{}{hint}", super::UNKNOWN);
                            let nothing = Done { done: false, text, result: json!("unknown") };
                            done.push((key.clone(), nothing));
                        }
                    }
                }
            }
            known
        }
    };
    if known.is_empty() {
        report(&mut screen, &done);
        screen.write()?;
        return Ok(false);
    }
    if !sure.yes && !screen.is_json() {
        let rows = known.iter().take(NAMED).map(|task| vec![key(&task.key), state(task.state)]);
        screen.table(&["task", "state"], rows);
        if known.len() > NAMED {
            screen.say(&format!("and {} more", known.len() - NAMED));
        }
        std::mem::replace(&mut screen, Screen::new(style, opened.now())).write()?;
    }
    let tasks = if known.len() == 1 { "1 task".to_owned() } else { format!("{} tasks", known.len()) };
    if !is_sure(sure.yes, &format!("{word} {tasks}?"))? {
        screen.say("Nothing was changed.");
        screen.write()?;
        return Ok(false);
    }
    let ended = match query {
        None => {
            let keys: Vec<TaskKey> = known.into_iter().map(|task| task.key).collect();
            by_key(opened, &keys, &mut verb, &mut done)
        }
        Some(query) => held(opened, query, &known, &mut verb, &mut done),
    };
    // Also reports what was committed before a failure.
    let all = done.iter().all(|(_, done)| done.done);
    if ended.is_ok() || !done.is_empty() {
        report(&mut screen, &done);
        screen.write()?;
    }
    ended.map(|()| all)
}

/// What was done to each task, in order.
type All = Vec<(TaskKey, Done)>;

fn by_key(
    opened: &Opened,
    keys: &[TaskKey],
    verb: &mut impl FnMut(&mut Tx<'_>, &[TaskKey]) -> Result<Vec<Done>>,
    done: &mut All,
) -> std::result::Result<(), Failure> {
    for keys in keys.chunks(AT_ONCE) {
        let answers = opened.store.write(|tx| verb(tx, keys))?;
        done.extend(keys.iter().cloned().zip(answers));
    }
    Ok(())
}

/// Returns the query for the tasks, or `None` if they are given by key.
fn query(pick: &Pick, screen: &Screen) -> std::result::Result<Option<TaskQuery>, Failure> {
    match (pick.key.is_empty(), pick.filter.is_empty()) {
        (false, true) => Ok(None),
        (true, false) => Ok(Some(crate::args::checked(pick.filter.query(screen.now))?)),
        (false, false) => Err(Failure::Usage("name tasks by key or by filters, not by both".into())),
        (true, true) => Err(Failure::Usage("name the tasks: by key, or by --state and other filters".into())),
    }
}

/// Returns the first tasks of the list.
fn listed(opened: &Opened, query: &TaskQuery, limit: usize) -> std::result::Result<Vec<TaskRecord>, Failure> {
    let mut found = Vec::new();
    let page = Page::of(limit);
    show::walk(opened.store.as_ref(), query, &page, |tasks| found.extend(tasks))?;
    Ok(found)
}

/// Changes those of the confirmed tasks that still match the query. Each page is held, so no task changes between
/// the check and the change. Tasks that joined the list later are left alone.
///
/// The walk ends one page after the length of the list that the user saw. Searching further for a task that left
/// the list would hold the whole list, page by page.
fn held(
    opened: &Opened,
    query: TaskQuery,
    agreed: &[TaskRecord],
    verb: &mut impl FnMut(&mut Tx<'_>, &[TaskKey]) -> Result<Vec<Done>>,
    all: &mut All,
) -> std::result::Result<(), Failure> {
    let mut left: HashSet<TaskId> = agreed.iter().map(|task| task.id).collect();
    let (mut query, mut seen) = (query.limit(AT_ONCE), 0);
    while !left.is_empty() && seen < agreed.len() + AT_ONCE {
        let (ids, keys, answers, length, next) = opened.store.write(|tx| {
            let page = tx.hold_tasks(&query)?;
            let ours: Vec<&TaskRecord> = page.tasks.iter().filter(|task| left.contains(&task.id)).collect();
            let ids: HashSet<TaskId> = ours.iter().map(|task| task.id).collect();
            let keys: Vec<TaskKey> = ours.iter().map(|task| task.key.clone()).collect();
            let answers = if keys.is_empty() { Vec::new() } else { verb(tx, &keys)? };
            Ok((ids, keys, answers, page.tasks.len(), page.next.clone()))
        })?;
        left.retain(|id| !ids.contains(id));
        all.extend(keys.into_iter().zip(answers));
        seen += length;
        match next {
            Some(next) => query = query.after(next),
            None => break,
        }
    }
    let moved = agreed.iter().filter(|task| left.contains(&task.id)).map(|task| {
        let text = "left as it is: it is no longer where it was listed";
        (task.key.clone(), Done { done: false, text: text.into(), result: json!("no_longer_listed") })
    });
    all.extend(moved);
    Ok(())
}

/// Reports what was done to each task.
fn report(screen: &mut Screen, done: &[(TaskKey, Done)]) {
    if screen.is_json() {
        for (key, done) in done {
            screen.line(&json!({ "key": key, "done": done.done, "result": done.result }));
        }
        return;
    }
    if done.is_empty() {
        screen.say("No task is like this. Nothing was changed.");
        return;
    }
    screen.table(&["task", "result"], done.iter().map(|(task, done)| vec![key(task), field(&done.text)]));
    let count = done.iter().filter(|(_, done)| done.done).count();
    screen.say(&visible(format!("{count} of {} done.", done.len())));
}
