//! What a thread of a poker does.

use std::sync::Arc;
use std::time::Instant;

use super::board::Shared;
use super::desk::{Desk, Stay};

/// Works until the crew closes, or until the tick took over its work because a poke passed its deadline.
pub(super) fn run(shared: &Arc<Shared>, desk: &Desk) {
    let mut board = shared.board.lock();
    loop {
        if board.closing {
            board.active -= 1;
            return shared.tell(&mut board);
        }
        let stint = match shared.may_begin(Instant::now()) {
            true => board.take(),
            false => None,
        };
        let Some(stint) = stint else {
            board.idle += 1;
            shared.work.wait(&mut board);
            board.idle -= 1;
            continue;
        };
        drop(board);
        let (kind, began) = (stint.kind, Instant::now());
        let stay = desk.work(shared, stint);
        board = shared.board.lock();
        match stay {
            Stay::Here(made) => {
                let left = std::mem::take(&mut desk.0.lock().todo);
                if let Some(queue) = board.kinds.get_mut(kind) {
                    queue.running -= 1;
                    queue.took(made, began.elapsed());
                    left.into_iter().rev().for_each(|job| queue.jobs.push_front(job));
                    if queue.running + 1 == queue.at_once && !queue.jobs.is_empty() {
                        shared.work.notify_one();
                    }
                }
                shared.tell(&mut board);
            }
            Stay::Taken(groups) => {
                board.hung -= 1;
                if let Some(queue) = board.kinds.get_mut(kind) {
                    queue.hung -= 1;
                }
                board.returned.extend(groups);
                return shared.tell(&mut board);
            }
        }
    }
}
