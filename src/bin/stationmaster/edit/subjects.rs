//! Pauses and resumes queues, pools, limits and families.

use serde_json::json;
use stationmaster::admission::{Drain, Subject};
use stationmaster::error::Invalid;
use stationmaster::store::Store;

use crate::args::{SubjectKind, Subjects, Sure};
use crate::ask::is_sure;
use crate::failure::Failure;
use crate::open::Opened;
use crate::screen::{Screen, Style, field};
use crate::text::visible;

/// Pauses or resumes them, after asking. Returns true if each of them changed.
pub fn set(
    opened: &Opened,
    style: Style,
    subjects: &Subjects,
    sure: &Sure,
    pause: bool,
) -> Result<bool, Failure> {
    let subject = |name: &String| -> Result<Subject, Invalid> {
        Ok(match subjects.kind {
            SubjectKind::Queue => Subject::Queue(name.parse()?),
            SubjectKind::Pool => Subject::Pool(name.parse()?),
            SubjectKind::Limit => Subject::Key(name.parse()?),
            SubjectKind::Family => Subject::Family(name.parse()?),
        })
    };
    let subjects: Vec<Subject> = subjects.names.iter().map(subject).collect::<Result<_, _>>()?;
    let names: Vec<String> = subjects.iter().map(visible).collect();
    let word = if pause { "Pause" } else { "Resume" };
    let count = match subjects.len() {
        1 => String::new(),
        many => format!("{many} subjects: "),
    };
    let mut screen = Screen::new(style, opened.now());
    if !is_sure(sure.yes, &format!("{word} {count}{}?", names.join(", ")))? {
        screen.say("Nothing was changed.");
        screen.write()?;
        return Ok(false);
    }
    let changed = opened.store.write(|tx| if pause { tx.pause(&subjects) } else { tx.resume(&subjects) })?;
    // After the commit. A pause waits for the ticks before it, so any reader of the pause also sees what they
    // granted.
    let drains = opened.store.read(|tx| tx.drain(&subjects))?;
    let warns = pause && !screen.is_json();
    let unknown = if warns { unknown(opened.store.as_ref(), &subjects)? } else { Vec::new() };
    if screen.is_json() {
        for ((subject, changed), drain) in subjects.iter().zip(&changed).zip(&drains) {
            screen.line(&json!({ "subject": subject, "done": changed, "drain": drain }));
        }
    } else {
        let text = |changed: bool, drain: Drain| match (pause, changed, drain) {
            (true, _, Drain::Draining { leases: 1 }) => "paused; 1 lease goes on".to_owned(),
            (true, _, Drain::Draining { leases }) => format!("paused; {leases} leases go on"),
            (true, true, _) => "paused; nothing of it runs".to_owned(),
            (true, false, _) => "was paused before; nothing of it runs".into(),
            (false, true, _) => "resumed".into(),
            (false, false, _) => "was not paused".into(),
        };
        let rows = subjects.iter().zip(&changed).zip(&drains);
        let row = |((subject, changed), drain): ((&Subject, &bool), &Drain)| {
            let mut text = text(*changed, *drain);
            if unknown.contains(subject) {
                text += " (the store knows none of this name)";
            }
            vec![field(subject), field(text)]
        };
        let rows: Vec<_> = rows.map(row).collect();
        screen.table(&["what", "result"], rows);
    }
    screen.write()?;
    Ok(changed.iter().all(|changed| *changed))
}

/// Returns the queues and pools among these that the store does not know. A pause of an unknown name is kept for
/// later, so a mistyped name would look as if it had worked.
fn unknown(store: &dyn Store, subjects: &[Subject]) -> Result<Vec<Subject>, Failure> {
    let (queues, pools) = store.read(|tx| Ok((tx.queues()?, tx.all_pools()?)))?;
    let is_known = |subject: &Subject| match subject {
        Subject::Queue(name) => queues.iter().any(|queue| queue.name == *name),
        Subject::Pool(name) => pools.iter().any(|pool| pool.spec.name == *name),
        _ => true,
    };
    Ok(subjects.iter().filter(|subject| !is_known(subject)).cloned().collect())
}
