//! The ready tasks that are before a task in its pool.

use maud::{Markup, html};

use super::next::needs;
use super::parts::{listed, section, table, task, when};
use super::task::BEFORE;
use super::{Look, Page};
use crate::dashboard::trouble::Trouble;
use crate::dashboard::words::{number, visible};
use crate::ops::Position;
use crate::task::TaskRecord;

/// How many tasks are listed.
const SHOWN: u64 = 100;

pub(super) fn view(look: &Look<'_>) -> Result<Page, Trouble> {
    let key = look.params.task()?;
    let keys = std::slice::from_ref(&key);
    let found = look.store.read(|tx| {
        let Some(record) = tx.tasks(keys)?.pop().flatten() else { return Ok(None) };
        let position = tx.positions(keys, BEFORE)?.pop().unwrap_or(Position::Unknown);
        let first = if record.is_ready() { tx.first_ready(&record.lane.pool, SHOWN)? } else { Vec::new() };
        let before: Vec<TaskRecord> = first.into_iter().take_while(|task| task.id != record.id).collect();
        Ok(Some((record, position, before)))
    })?;
    let Some((record, position, before)) = found else {
        return Err(Trouble::missing(format!("There is no task {key}.")));
    };
    let main = section("before", "Ready tasks before it", &tasks(look, &record, position, &before));
    Ok(Page::of(look, visible(format!("Before task {key}")), "tasks", main))
}

fn tasks(look: &Look<'_>, of: &TaskRecord, position: Position, before: &[TaskRecord]) -> Markup {
    let row = |(at, record): (usize, &TaskRecord)| {
        vec![
            task(&record.key),
            html! { (number(at + 1)) },
            html! { (visible(&record.lane.queue)) },
            html! { (record.priority) },
            when(record.ready_at, look.now),
            needs(&record.lane),
        ]
    };
    let rows = before.iter().enumerate().map(row).collect();
    let pool = visible(&of.lane.pool);
    let caption = format!("Ready tasks of pool {pool} that are before it, in the order of admission");
    let heads = ["Task", "Place", "Queue", "Priority", "Ready since", "Needs"];
    let none = match position {
        Position::Before(_) | Position::MoreThan(_) => "It is the first of its pool.",
        _ => "It is not ready, so it has no place in the order of admission.",
    };
    let shown = before.len() as u64;
    html! {
        p.note { "For task " (task(&of.key)) ". Tasks of all queues count, whether or not they fit now." }
        (table(&caption, &heads, rows, none))
        @match position {
            Position::Before(all) if all > shown => p.note { "There are " (number(all - shown)) " more before it." },
            Position::MoreThan(most) => p.note { "There are more than " (number(most - shown)) " more before it." },
            _ => {}
        }
        p { (listed(&[("state", "waiting"), ("pool", of.lane.pool.as_str())], "All tasks that wait in the pool")) }
    }
}
