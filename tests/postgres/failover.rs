//! Servers that change places: a standby is promoted, and the old primary comes back as a standby.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stationmaster::error::StoreErrorKind;
use stationmaster::store::PostgresStore;
use stationmaster::store::postgres::tokio_postgres::{Config, NoTls};
use stationmaster::store::postgres::{Connector, PostgresOptions, Wake};

use crate::postgres_server::{OwnServer, Plain};
use crate::{kind, pools, put};

/// A name that leads to one server now, and to another one later.
#[derive(Clone)]
struct Address {
    leads_to: Arc<Mutex<String>>,
    dialled: Arc<AtomicUsize>,
}

impl Address {
    fn of(server: &OwnServer) -> Self {
        Self { leads_to: Arc::new(Mutex::new(server.url())), dialled: Arc::default() }
    }

    fn move_to(&self, server: &OwnServer) {
        *self.leads_to.lock() = server.url();
    }

    fn connector(&self) -> Connector {
        let address = self.clone();
        Connector::new(move || {
            address.dialled.fetch_add(1, Ordering::SeqCst);
            let config: Config = address.leads_to.lock().parse().unwrap();
            async move { config.connect(NoTls).await }
        })
    }

    fn open(&self, connect_timeout: Duration) -> PostgresStore {
        let options = PostgresOptions::new().wake(Wake::Never).connect_timeout(connect_timeout);
        PostgresStore::open(self.connector(), options).unwrap()
    }
}

/// Waits until the standby has what its primary committed.
fn caught_up(primary: &OwnServer, standby: &OwnServer) {
    let written = Plain::connect(&primary.url()).ask("SELECT pg_current_wal_lsn()");
    let replayed =
        format!("SELECT (pg_last_wal_replay_lsn() >= '{}')::int", written[0][0].as_deref().unwrap());
    let (standby, began) = (Plain::connect(&standby.url()), Instant::now());
    while standby.number(&replayed) == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "the standby does not follow");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const SOON: Duration = Duration::from_secs(3);

/// It only ends a test that fails.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_writer_follows_its_address_away_from_a_server_that_can_only_be_read() {
    let Some(old) = OwnServer::start() else { return };
    let address = Address::of(&old);
    let store = address.open(SOON);
    put(&store, "before").unwrap();
    let new = old.standby();
    caught_up(&old, &new);

    // A store that was opened while the address led to the standby, as it may be set to by a name server that is late.
    let early = Address::of(&new);
    let opened_early = early.open(SOON);
    assert_eq!(pools(&opened_early), 1, "a standby can be read");
    early.move_to(&old);
    put(&opened_early, "early").unwrap();
    caught_up(&old, &new);

    old.stop();
    new.promote();
    old.come_back_as_standby_of(&new);
    for _ in 0..2 {
        let refused = put(&store, "too early").unwrap_err();
        assert_eq!(kind(&refused), StoreErrorKind::ReadOnly, "{refused}");
    }
    assert_eq!(pools(&store), 2, "it can be read meanwhile");
    // It falls behind.
    Plain::connect(&old.url()).ask("SELECT pg_wal_replay_pause()");
    address.move_to(&new);
    let dialled = address.dialled.load(Ordering::SeqCst);
    put(&store, "after").unwrap();
    put(&store, "later").unwrap();
    assert_eq!(address.dialled.load(Ordering::SeqCst), dialled + 1, "the writer connects once, and stays");
    let began = Instant::now();
    while pools(&store) < 4 {
        assert!(began.elapsed() < LONG, "reads stay at a server that is not the primary any more");
        std::thread::sleep(Duration::from_millis(200));
    }
    let written = Plain::connect(&new.url()).number("SELECT count(*) FROM stationmaster.pool");
    assert_eq!(written, 5, "the default pool, and four");
}

#[test]
fn a_write_waits_for_a_promotion_as_for_a_server_that_starts() {
    let Some(primary) = OwnServer::start() else { return };
    put(&Address::of(&primary).open(SOON), "before").unwrap();
    let standby = primary.standby();
    caught_up(&primary, &standby);
    let address = Address::of(&standby);
    let store = address.open(LONG);
    let dialled = || address.dialled.load(Ordering::SeqCst);
    let opening = dialled();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| put(&store, "after"));
        let began = Instant::now();
        while dialled() < opening + 2 && !waits.is_finished() && began.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(5));
        }
        primary.stop();
        standby.promote();
        waits.join().unwrap().unwrap();
    });
    assert_eq!(Plain::connect(&standby.url()).number("SELECT count(*) FROM stationmaster.pool"), 3);
}
