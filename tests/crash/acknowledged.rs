//! What processes said that they had done, against what is stored.

use std::collections::{BTreeMap, BTreeSet};

/// A stored task. The states are those of the schema: 0 ready, 5 scheduled for later, 6 to 8 ended.
pub struct Task {
    pub id: i64,
    pub epoch: i64,
    pub state: i64,
    pub first_started: bool,
}

/// What processes acknowledged.
#[derive(Debug, Default)]
pub struct Acknowledged {
    pub enqueued: BTreeSet<i64>,
    /// Each grant, by task and epoch: none may be given twice.
    admitted: BTreeSet<(i64, i64)>,
    /// The largest epoch that was acknowledged for a task in any way, and the least it must have reached in it.
    pub reached: BTreeMap<i64, (i64, Reached)>,
    ended: BTreeMap<i64, (i64, String)>,
    pub operations: usize,
    /// Connections that were lost and borne, by the kind of the error.
    pub bore: BTreeMap<String, usize>,
}

/// How far a task came under its latest acknowledged epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    Admitted,
    Started,
    Registered,
    Ended,
}

impl Acknowledged {
    pub fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<i64>().unwrap();
        self.operations += 1;
        let reached = match words[0] {
            "ready" => return,
            "bore" => {
                *self.bore.entry(words[1].to_owned()).or_default() += 1;
                return;
            }
            "enqueued" => {
                assert!(self.enqueued.insert(number(1)), "number {} was given twice", words[1]);
                return;
            }
            "admitted" => {
                assert!(self.admitted.insert((number(1), number(2))), "a grant was given twice: {line}");
                let ended = self.ended.get(&number(1));
                let again = ended.is_some_and(|(epoch, _)| *epoch < number(2));
                assert!(!again, "a task that ended was admitted again: {line}");
                Reached::Admitted
            }
            "started" => Reached::Started,
            "registered" => Reached::Registered,
            "ended" => {
                self.ended.insert(number(1), (number(2), words[3].to_owned()));
                Reached::Ended
            }
            other => panic!("a process said {other}"),
        };
        let so_far = self.reached.entry(number(1)).or_insert((number(2), reached));
        *so_far = (*so_far).max((number(2), reached));
    }

    /// Compares with what is stored.
    pub fn check(&self, tasks: &[Task]) {
        let tasks: BTreeMap<i64, &Task> = tasks.iter().map(|task| (task.id, task)).collect();
        for id in &self.enqueued {
            assert!(tasks.contains_key(id), "enqueued task {id} is lost");
        }
        for (id, (epoch, reached)) in &self.reached {
            let Task { epoch: stored, state, first_started, .. } = *tasks[id];
            assert!(stored >= *epoch, "grant {epoch} of task {id} is lost: stored is {stored}");
            if stored == *epoch {
                let kept = match reached {
                    Reached::Admitted => true,
                    Reached::Started => state != 1,
                    Reached::Registered => !matches!(state, 1 | 2),
                    Reached::Ended => state >= 6,
                };
                assert!(kept, "task {id} had {reached:?} under epoch {epoch} and is in state {state} again");
            }
            assert!(*reached < Reached::Started || first_started);
        }
        for (id, (epoch, state)) in &self.ended {
            let names = [
                "scheduled",
                "queued",
                "running",
                "up_for_retry",
                "sensing",
                "later",
                "success",
                "failed",
                "skipped",
            ];
            let Task { epoch: stored, state: found, .. } = *tasks[id];
            assert_eq!(
                (stored, names[found as usize]),
                (*epoch, state.as_str()),
                "the end of task {id} is lost"
            );
        }
    }
}
