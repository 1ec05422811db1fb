//! Servers that change places: a standby is promoted, and the old primary comes back as a standby.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stationmaster::admission::IfExists;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::StoreErrorKind;
use stationmaster::ops::{AdmitRequest, Finish, Finished};
use stationmaster::service::Admitter;
use stationmaster::store::postgres::tokio_postgres::{Config, NoTls};
use stationmaster::store::postgres::{Connector, PostgresOptions, Wake};
use stationmaster::store::{Durability, PostgresStore};
use stationmaster::task::TaskRecord;
use stationmaster::testing::{RawStoreExt, watch_round_trips};
use stationmaster::{LeaseRef, NewTask, Renewal, TaskState, Timestamp};

use crate::postgres_server::pooler::{PoolMode, Pooler};
use crate::postgres_server::{OwnServer, Plain};
use crate::{kind, pool, pool_name, pools, put, task};

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
        let began = Instant::now();
        let refused = loop {
            let refused = put(&store, "too early").unwrap_err();
            // An attempt to connect that had not ended when its time was over does not say what it would have met.
            if kind(&refused) != StoreErrorKind::Io || began.elapsed() > LONG {
                break refused;
            }
        };
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

fn admit_as(name: &str) -> AdmitRequest {
    let hour = Duration::from_secs(3600);
    AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), 1, hour).started()
}

fn admit(store: &PostgresStore, name: &str) -> LeaseRef {
    let admission = store.write(|tx| tx.admit(Timestamp::from_micros(9), &admit_as(name))).unwrap();
    admission.granted[0].lease_ref()
}

/// The same in one round trip: the whole tick is sent ahead.
fn admit_ahead(store: &PostgresStore, name: &str, before: &str) -> LeaseRef {
    let order = admit_as(name).answered(before.try_into().unwrap());
    let (admission, trips) = watch_round_trips(|| {
        store.write(|tx| tx.last(|tx| tx.admit(Timestamp::from_micros(9), &order))).unwrap()
    });
    assert_eq!(trips.len(), 1, "{trips:?}");
    admission.granted[0].lease_ref()
}

/// Ends the server at once, and starts it again. Returns whether it lost what was not flushed.
fn kill(server: &mut OwnServer, round: usize) -> bool {
    Plain::connect(&server.url())
        .ask(&format!("SET synchronous_commit = off; CREATE TABLE unflushed_{round} ()"));
    server.crash();
    let kept = format!("SELECT count(*) FROM pg_tables WHERE tablename = 'unflushed_{round}'");
    Plain::connect(&server.url()).number(&kept) == 0
}

fn state_under(store: &PostgresStore, lease: LeaseRef) -> Option<TaskState> {
    let task = store.read_raw(|raw| Ok(raw.tasks_by_id(&[lease.id])?)).unwrap().remove(0).unwrap();
    (task.lease_ref() == lease).then_some(task.state)
}

/// What ticks answer is flushed, although their commits are not: by a role of its own, when a tick of the same name
/// answers again, when a tick ends tasks and finds no others, and behind a pooler.
#[test]
fn killed_after_each_answer() {
    let Some(mut server) = OwnServer::start() else { return };
    let plain = Plain::connect(&server.url());
    plain.ask("ALTER SYSTEM SET wal_writer_delay = '10s'");
    plain.ask("CREATE ROLE jobs LOGIN; GRANT CREATE ON DATABASE postgres TO jobs; SELECT pg_reload_conf()");
    let url = server.url().replace("postgres@", "jobs@");
    let open = |durability| {
        let options = PostgresOptions::new().wake(Wake::Never).durability(durability);
        PostgresStore::connect(&url, options).unwrap()
    };
    let (store, careless) = (open(Durability::Power), open(Durability::Process));
    let tasks: Vec<_> = (0..4).map(|n| task(&n.to_string())).collect();
    store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks)).unwrap();

    let granted = admit(&store, "granted");
    let mut lost = kill(&mut server, 0);
    assert_eq!(state_under(&store, granted), Some(TaskState::Running));

    let ahead = admit_ahead(&store, "ahead", "granted");
    lost |= kill(&mut server, 4);
    assert_eq!(state_under(&store, ahead), Some(TaskState::Running));

    admit(&careless, "asked");
    let asked = admit(&store, "asked");
    lost |= kill(&mut server, 1);
    assert_eq!(state_under(&store, asked), Some(TaskState::Running));

    let last = admit(&store, "last");
    let ended = store.write(|tx| {
        let ended = tx.finish(Timestamp::from_micros(9), &[Finish::success(last)])?;
        assert!(tx.admit(Timestamp::from_micros(9), &admit_as("none left"))?.granted.is_empty());
        Ok(ended)
    });
    assert_eq!(ended.unwrap(), [Finished::Ended(TaskState::Success)]);
    lost |= kill(&mut server, 2);
    assert_eq!(state_under(&store, last), Some(TaskState::Success));

    let order = admit_as("none left again").answered("last".try_into().unwrap());
    let ended = store.write(|tx| {
        let ended = tx.finish(Timestamp::from_micros(9), &[Finish::success(ahead)])?;
        assert!(tx.last(|tx| tx.admit(Timestamp::from_micros(9), &order))?.granted.is_empty());
        Ok(ended)
    });
    assert_eq!(ended.unwrap(), [Finished::Ended(TaskState::Success)]);
    lost |= kill(&mut server, 5);
    assert_eq!(state_under(&store, ahead), Some(TaskState::Success));

    store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[task("pooled"), task("pooled ahead")])).unwrap();
    assert!(lost, "the server flushed what no commit waited for, each time");
    let Some(pooler) = Pooler::start(PoolMode::Transaction, &server.url(), 2) else { return };
    let pooled = PostgresStore::connect(&pooler.url(), PostgresOptions::new().wake(Wake::Never)).unwrap();
    let granted = admit(&pooled, "pooled");
    kill(&mut server, 3);
    assert_eq!(state_under(&store, granted), Some(TaskState::Running));
    let order = admit_as("pooled ahead").answered("pooled".try_into().unwrap());
    let admission = pooled.write(|tx| tx.last(|tx| tx.admit(Timestamp::from_micros(9), &order))).unwrap();
    kill(&mut server, 6);
    assert_eq!(state_under(&store, admission.granted[0].lease_ref()), Some(TaskState::Running));
}

/// The standby has the leases that were handed out: they go on, and nothing of what they hold is granted again.
#[test]
fn leases_that_were_handed_out_are_there_after_a_promotion() {
    let Some(old) = OwnServer::start() else { return };
    let address = Address::of(&old);
    let store = Arc::new(address.open(LONG));
    let tasks: Vec<NewTask> = (0..6).map(|n| task(&n.to_string()).pool(pool_name("p"))).collect();
    store
        .write(|tx| {
            tx.define([pool("p", 3)], IfExists::Replace)?;
            tx.enqueue(SystemClock.now(), &tasks)
        })
        .unwrap();
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
    let mut admit = || -> Vec<LeaseRef> {
        let granted = admitter.admit(SystemClock.now(), 9).unwrap().granted;
        granted.iter().map(TaskRecord::lease_ref).collect()
    };
    let finish = |leases: &[LeaseRef]| {
        let ends: Vec<Finish> = leases.iter().map(|lease| Finish::success(*lease)).collect();
        let finished = store.write(|tx| tx.finish(SystemClock.now(), &ends)).unwrap();
        assert_eq!(finished, vec![Finished::Ended(TaskState::Success); leases.len()]);
    };
    let mut held = admit();
    assert_eq!(held.len(), 3);
    let new = old.standby();
    // What comes after the copy that the standby began with.
    finish(&[held.remove(0)]);
    held.extend(admit());
    assert_eq!(held.len(), 3);
    caught_up(&old, &new);
    old.stop();
    new.promote();
    address.move_to(&new);

    let renewed = store.write(|tx| tx.renew(SystemClock.now(), LONG, &held)).unwrap();
    assert_eq!(renewed, [Renewal::Renewed; 3]);
    assert_eq!(admit(), [], "the pool is full");
    finish(&held);
    let last = admit();
    assert_eq!(last.len(), 2);
    assert!(last.iter().all(|lease| lease.epoch == 1), "a task is granted again: {last:?}");
    finish(&last);
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}

#[test]
fn a_tick_whose_flush_fails_has_an_unknown_outcome() {
    let Some(server) = OwnServer::start() else { return };
    let plain = Plain::connect(&server.url());
    plain.ask("CREATE ROLE jobs LOGIN; GRANT CREATE ON DATABASE postgres TO jobs");
    let url = server.url().replace("postgres@", "jobs@");
    let store = PostgresStore::connect(&url, PostgresOptions::new().wake(Wake::Never)).unwrap();
    store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[task("a")])).unwrap();
    let each = |verb: &str| {
        plain.ask(&format!(
            "DO $$ DECLARE emit regprocedure; BEGIN \
             FOR emit IN SELECT oid FROM pg_proc WHERE proname = 'pg_logical_emit_message' LOOP \
               EXECUTE format('{verb} PUBLIC', emit); END LOOP; END $$"
        ))
    };
    each("REVOKE EXECUTE ON FUNCTION %s FROM");
    let tick = || store.write(|tx| tx.admit(Timestamp::from_micros(9), &admit_as("tick")));
    let unknown = tick().unwrap_err();
    assert_eq!(kind(&unknown), StoreErrorKind::Indeterminate, "{unknown}");
    each("GRANT EXECUTE ON FUNCTION %s TO");
    let granted = tick().unwrap().granted;
    assert_eq!(granted[0].state, TaskState::Running, "asked again, it is what the first call was granted");
}
