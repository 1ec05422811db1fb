//! Waking the services of other processes.

use std::sync::mpsc::channel;
use std::time::Duration;

use super::{PostgresHost, ask};
use crate::contract::statement;
use crate::scratch::{Scratch, url};
use crate::world::{Host, good};

/// Far longer than it takes: it only ends a test that fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whatever the schema's name is: the channel of a long one is a digest.
#[test]
fn wake_wakes_listening_stores_when_it_commits() {
    for scratch in [Scratch::new(), Scratch::named(&"w".repeat(60))] {
        let store = scratch.open(|options| options);
        let (sender, changes) = channel();
        let listening = store
            .on_change(move |change| {
                let _ = sender.send((change.tasks(), change.sensors()));
            })
            .unwrap();
        let host = PostgresHost::connect(&scratch.0, &url());
        host.batch("BEGIN");
        ask(&host, "enqueue", &good()).unwrap();
        ask(&host, "wake", &[]).unwrap();
        assert_eq!(changes.try_recv().ok(), None, "it is not committed");
        host.batch("COMMIT");
        assert_eq!(changes.recv_timeout(PATIENCE), Ok((true, false)));
        let sensors = statement("PostgreSQL", "wake").replace("ready capacity", "sensors events");
        host.ask(&sensors, &[]).unwrap();
        assert_eq!(changes.recv_timeout(PATIENCE), Ok((false, true)));
        drop((listening, store));
    }
}
