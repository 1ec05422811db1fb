//! Whether pauses were kept.

use std::collections::HashMap;

use super::{Event, History, Operation, Rule, Violation};

impl History {
    pub(super) fn check_pauses(&self) -> Result<(), Violation> {
        let (mut pauses, mut resumes): (Calls<'_>, Calls<'_>) = Default::default();
        for event in &self.events {
            if let Operation::Pause(name, is_paused) = &event.operation {
                let calls = if *is_paused { &mut pauses } else { &mut resumes };
                calls.entry(name).or_default().push(event);
            }
        }
        for event in &self.events {
            let Operation::Admit(grants) = &event.operation else { continue };
            for grant in grants {
                for (name, _) in grant.takes() {
                    let none = Vec::new();
                    let (pauses, resumes) = (pauses.get(name), resumes.get(name));
                    if is_paused(event, pauses.unwrap_or(&none), resumes.unwrap_or(&none)) {
                        let what = format!("task {} was granted while {name} was paused", grant.task);
                        return Err(Violation { rule: Rule::Pauses, at: event.invoked, what });
                    }
                }
            }
        }
        Ok(())
    }
}

type Calls<'a> = HashMap<&'a str, Vec<&'a Event>>;

/// Returns whether a pause had returned when a call was made, and nothing can have resumed it before the call returned.
fn is_paused(call: &Event, pauses: &[&Event], resumes: &[&Event]) -> bool {
    let Some(returned) = call.returned else { return false };
    pauses.iter().filter(|pause| pause.returned.is_some_and(|at| at < call.invoked)).any(|pause| {
        let may_undo = |resume: &&&Event| {
            resume.invoked <= returned && resume.returned.is_none_or(|at| at >= pause.invoked)
        };
        !resumes.iter().any(|resume| may_undo(&resume))
    })
}
