//! The connection on which the server sends notifications.

use tokio::time::timeout;

use super::connection::Connection;
use super::dial::{Dialer, Role};
use super::error::Failure;
use super::liveness::Liveness;
use super::options::GRACE;
use super::route::Route;
use crate::error::{StoreError, StoreErrorKind};

pub(super) struct Listener {
    dialer: Dialer,
    connection: Option<Connection>,
}

impl Listener {
    pub(super) fn new(dialer: Dialer) -> Self {
        Self { dialer, connection: None }
    }

    /// Connects, and subscribes to this channel.
    pub(super) async fn listen(&mut self, channel: &str) -> Result<(), Failure> {
        self.connection = None;
        let connection = self.dialer.connect(Role::Primary).await?;
        if connection.route == Route::Pooled {
            // The server process would notify whichever program it serves next.
            let text = "a pooler is between the store and the server, and may lose notifications: listen with a store that \
                        connects to the server directly";
            return Err(Failure::Refused(StoreError::new(StoreErrorKind::Backend, text)));
        }
        let text = format!("LISTEN \"{channel}\"");
        let listen = async { connection.client.batch_execute(&text).await.map_err(Failure::of) };
        Liveness::new().limit(self.dialer.options.patience(), listen).await?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Waits until the connection is lost. Nothing is sent on a listening connection, so a silent death would
    /// go unnoticed. So an empty query is sent from time to time.
    pub(super) async fn lost(&mut self) {
        let Some(Connection { client, mut driving, .. }) = self.connection.take() else { return };
        while timeout(self.dialer.options.quiet(), driving.ended()).await.is_err() {
            if !matches!(timeout(GRACE, client.batch_execute("")).await, Ok(Ok(()))) {
                return;
            }
        }
    }
}
