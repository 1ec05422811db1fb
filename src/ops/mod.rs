//! The operations of a transaction, one file per family, and the values that they take and return.
//!
//! They are methods of [`Tx`](crate::store::Tx) and [`ReadTx`](crate::store::ReadTx). Operations on items
//! take many items and return one value per item. They work the same in the store's own transaction
//! ([`write`](crate::store::MemoryStore::write)) and in one that the host owns. In both, the host's rows and
//! the crate's rows commit or roll back together. An item's value shows if its state has changed in the
//! meantime, for example if a lease is stale or a task has ended. An `Err` means that the transaction must be
//! rolled back.
//!
//! A host whose own rows depend on a lease can turn the stale value into an error with [`Fenced::fenced`].
//!
//! | family | verbs |
//! |---|---|
//! | tasks | `enqueue`, `enqueue_ageing`, `tasks`, `tasks_by_id`, `list_tasks`, `hold_tasks`, `count_tasks`, `attempts`, `cancel`, `change`, `change_ageing`, `clear`, `delete`, `mark` |
//! | admission | `admit`, `preview`, `explain`, `positions`, `first_ready`, `queues`, `serving`, `shares` |
//! | attempts | `start`, `renew`, `note`, `finish`, `reap`, `next_expiry`, `leases_of` |
//! | sensors | `register`, `register_with`, `end_sensors`, `sensors`, `sensor_log`, `sensor_workers`, `poke_counts` |
//! | pools and limits | `define`, `undefine`, `pools`, `all_pools`, `pool_stats`, `limits`, `all_limits`, `families` |
//! | pauses | `pause`, `resume`, `drain`, `paused` |
//! | runs | `record_runs`, `stop_runs`, `close_runs`, `beat_runs`, `close_silent_runs`, `runs`, `active_runs`, `active_run_places`, `count_active_runs`, `run_series` |
//! | the transaction itself | `serialize` first, `last`, `check_whole` before a host commits |
//! | feed | `feed`, `consumers`, `delete_consumers` |
//! | upkeep | `forget_ended`, `forget_stopped_runs`, `delete_runs`, `audit`, `repair_counters`, `sizes` |

mod admit;
mod attempt;
mod cancel;
mod change;
mod clear;
mod define;
mod enqueue;
mod explain;
mod forget;
mod leave;
mod list;
mod look;
mod mark;
mod outcome_from;
mod pools_and_limits;
mod positions;
mod preview;
mod promote;
mod query;
mod queues;
mod reap;
mod register_with;
mod repair;
mod runs;
mod sense;
mod sensor_log;
mod serialize;
mod shares;
mod stale_to_error;
mod workers;

pub use admit::{Admission, AdmitRequest};
#[cfg(feature = "testing")]
pub(crate) use admit::{apply_families, feed};
pub use attempt::{Finish, Finished, Outcome, RetryAdvice};
pub use cancel::Cancellation;
pub use change::Changed;
pub use clear::Cleared;
pub use explain::Explanation;
pub(crate) use forget::{ends, forget_ended_in};
pub use mark::{Mark, Marked};
pub use positions::Position;
pub(crate) use promote::promote_and_forget_requests;
pub use reap::Reaped;
pub(crate) use reap::reap_expired_by;
pub use runs::{StopBeforeStart, Stopped};
pub use sense::Registered;
pub(crate) use sense::{EndedSensor, end_free_sensors};
pub(crate) use sensor_log::{Life, sensor_lives};
pub use stale_to_error::Fenced;
