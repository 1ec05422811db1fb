//! Ends a holder of the tick lock that has stopped. The server's timeouts end most of them, but not one to which the
//! server is sending a response.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::dial::{Dialer, Role};
use super::host::execute_text;
use super::tx::TICK_HOLDER;
use super::wire::ask;

/// How long to wait for the lock before looking at its holder.
const WAITS: Duration = Duration::from_secs(3);

/// How long the server must then still be sending the same response.
const SENDS: Duration = Duration::from_secs(1);

/// Looks at the holder again and again, until it is dropped.
pub(super) async fn end_stopped(mut dialer: Dialer) {
    loop {
        sleep(WAITS).await;
        // If this fails, the wait for the lock continues as before.
        if let Ok(connection) = dialer.connect_once(Role::Primary).await {
            let text = dialer.options.schema.statement(TICK_HOLDER);
            let mut seen: Option<String> = None;
            loop {
                let look = ask!(TICK_HOLDER, seen.take());
                let Ok(rows) = execute_text(&*connection.client, Arc::clone(&text), &look).await else {
                    break;
                };
                seen = rows.and_then(|rows| rows.first()?.try_get(0).ok());
                sleep(SENDS).await;
            }
        }
    }
}
