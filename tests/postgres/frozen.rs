//! A tick whose client stops does not hold up others for long, and one that only waits is not ended.
//!
//! `STATIONMASTER_STOPS=all` stops ticks at each message, also those that prepare statements.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use stationmaster::admission::IfExists;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::StoreErrorKind;
use stationmaster::ops::Finish;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::service::Admitter;
use stationmaster::store::PostgresStore;
use stationmaster::store::postgres::tokio_postgres::config::Host;
use stationmaster::store::postgres::tokio_postgres::{Config, NoTls};
use stationmaster::store::postgres::{Connector, PostgresOptions, Wake};
use stationmaster::task::TaskRecord;
use stationmaster::{LeaseRef, NewTask, Renewal};

use crate::postgres_server::host::Notify;
use crate::postgres_server::{Plain, with};
use crate::scratch::{Scratch, url};
use crate::{kind, pool, pool_name, task};

/// Others must go on within 5 s. The rest is for a machine that is busy: no one would end such a tick before
/// 30 s.
const IN_TIME: Duration = Duration::from_secs(20);

/// Enough that a survey's rows, with the lanes' long keys, do not fit into the buffers of a connection.
const LANES: usize = 520;

/// The keys of limits that these lanes carry: few, as a tick works on each, and long.
const KEYS: usize = 40;

/// How many tasks a tick admits.
const BUDGET: usize = 4;

/// A message of a client: its type, and whether the client said nothing more at the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Message {
    kind: u8,
    is_last: bool,
}

#[derive(Default)]
struct Passed {
    messages: Vec<Message>,
    /// After this many messages neither side gets anything any more.
    stops_after: Option<usize>,
    is_closed: bool,
    lines: Vec<TcpStream>,
}

impl Passed {
    fn has_stopped(&self) -> bool {
        self.stops_after.is_some_and(|most| self.messages.len() >= most)
    }
}

/// Passes on what a client and the server say, until it stops. It closes nothing then.
#[derive(Default)]
struct Line {
    passed: Mutex<Passed>,
    changed: Condvar,
}

impl Line {
    /// Returns it, and how to connect through it.
    fn start() -> (Arc<Self>, Connector) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let between = listener.local_addr().unwrap();
        let line = Arc::<Self>::default();
        let accepting = Arc::clone(&line);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), dial());
                let mut passed = accepting.passed.lock().unwrap();
                passed.lines.extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                drop(passed);
                let (there, here) = (Arc::clone(&accepting), Arc::clone(&accepting));
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || there.ask(client, server));
                thread::spawn(move || here.answer(back.0, back.1));
            }
        });
        let config: Config = url().parse().unwrap();
        let connector = Connector::new(move || {
            let config = config.clone();
            async move {
                let stream = tokio::net::TcpStream::connect(between).await?;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(config.connect_raw(stream, NoTls).await?)
            }
        });
        (line, connector)
    }

    /// Passes a client's messages on, one at a time.
    fn ask(&self, mut client: TcpStream, mut server: TcpStream) {
        let (mut bytes, mut said, mut has_begun) = ([0; 1 << 16], VecDeque::new(), false);
        while let Ok(length @ 1..) = client.read(&mut bytes) {
            said.extend(&bytes[..length]);
            while let Some(message) = first(&mut said, has_begun) {
                let kind = if has_begun { message[0] } else { 0 };
                has_begun = true;
                let mut passed = self.passed.lock().unwrap();
                while passed.has_stopped() && !passed.is_closed {
                    passed = self.changed.wait(passed).unwrap();
                }
                if server.write_all(&message).is_err() {
                    return;
                }
                passed.messages.push(Message { kind, is_last: said.is_empty() });
                self.changed.notify_all();
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    }

    fn answer(&self, mut server: TcpStream, mut client: TcpStream) {
        let mut bytes = [0; 1 << 16];
        while let Ok(length @ 1..) = server.read(&mut bytes) {
            let mut passed = self.passed.lock().unwrap();
            while passed.has_stopped() && !passed.is_closed {
                passed = self.changed.wait(passed).unwrap();
            }
            drop(passed);
            if client.write_all(&bytes[..length]).is_err() {
                return;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    }

    /// From now on this many messages are passed on.
    fn stop_after(&self, messages: Option<usize>) {
        let mut passed = self.passed.lock().unwrap();
        passed.messages.clear();
        passed.stops_after = messages;
    }

    fn messages(&self) -> Vec<Message> {
        self.passed.lock().unwrap().messages.clone()
    }

    /// Waits until it has stopped. Returns false if there is nothing left to stop.
    fn has_stopped(&self, is_over: impl Fn() -> bool) -> bool {
        let mut passed = self.passed.lock().unwrap();
        while !passed.has_stopped() {
            if is_over() {
                return false;
            }
            passed = self.changed.wait_timeout(passed, Duration::from_millis(5)).unwrap().0;
        }
        true
    }

    /// The client dies. It can connect again.
    fn close(&self) {
        let mut passed = self.passed.lock().unwrap();
        passed.is_closed = true;
        passed.stops_after = None;
        for line in passed.lines.drain(..) {
            let _ = line.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }
}

/// The client dies when this is dropped: also when the test fails, as a session that is stopped while the server sends holds
/// up `DROP DATABASE` of other tests for ever.
struct Dies<'a>(&'a Line);

impl Drop for Dies<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Takes the first whole message. The very first one of a connection has no type.
fn first(said: &mut VecDeque<u8>, has_type: bool) -> Option<Vec<u8>> {
    let from = usize::from(has_type);
    let length: Vec<u8> = said.iter().skip(from).take(4).copied().collect();
    let length = from + u32::from_be_bytes(length.try_into().ok()?) as usize;
    (said.len() >= length).then(|| said.drain(..length).collect())
}

/// Connects to the server with a small buffer, so that the server notices when no one reads.
fn dial() -> TcpStream {
    let config: Config = url().parse().unwrap();
    let [Host::Tcp(host), ..] = config.get_hosts() else { panic!("not by TCP: {}", url()) };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let address: SocketAddr =
        std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port)).unwrap().next().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = match address {
            SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4(),
            SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6(),
        };
        let socket = socket.unwrap();
        socket.set_recv_buffer_size(1 << 16).unwrap();
        socket.connect(address).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream
}

fn options(scratch: &Scratch) -> PostgresOptions {
    scratch.options().wake(Wake::Never)
}

/// Which statements a tick has prepared when it stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Connection {
    /// None: it stops in between, too.
    New,
    Used,
}

/// A schema with ready tasks in many lanes.
struct World {
    scratch: Scratch,
    store: Arc<PostgresStore>,
    /// A row that the stopped tick has locked would be an error: no one ends that tick before another one
    /// asks.
    impatient: PostgresStore,
    names: usize,
}

impl World {
    fn new(lanes: usize) -> Self {
        let scratch = Scratch::new();
        // Waiting for a stopped tick on a busy machine may take longer than the usual timeout.
        let store = Arc::new(scratch.open(|options| options.wake(Wake::Never).lock_timeout(IN_TIME)));
        store
            .write(|tx| {
                tx.define([PoolSpec::new("wide", Slots::Unlimited)?], IfExists::Replace)?;
                let long = "k".repeat(500);
                let in_lane = |n: usize| {
                    let task = task(&format!("of lane {n}")).pool(pool_name("wide")).priority(-1);
                    let task = task.pool_slots(1 + u32::try_from(n / KEYS).unwrap());
                    (n..n + 16).try_fold(task, |task, key| {
                        Ok(task.limit(format!("{long} {}", key % KEYS).as_str().try_into()?))
                    })
                };
                let tasks = (0..lanes).map(in_lane).collect::<stationmaster::Result<Vec<NewTask>>>()?;
                tx.enqueue(SystemClock.now(), &tasks)
            })
            .unwrap();
        let impatient =
            scratch.open(|options| options.wake(Wake::Never).lock_timeout(Duration::from_secs(5)));
        Self { scratch, store, impatient, names: 0 }
    }

    fn enqueue(&mut self, on: impl Fn(&Self) -> &PostgresStore, tasks: usize) {
        let tasks: Vec<NewTask> =
            (self.names..self.names + tasks).map(|n| task(&n.to_string()).pool(pool_name("wide"))).collect();
        self.names += tasks.len();
        on(self).write(|tx| tx.enqueue(SystemClock.now(), &tasks)).unwrap();
    }

    fn admit(&self) -> Vec<TaskRecord> {
        // A busy machine may plan for longer than a tick may pause. Such a tick is ended, and made again, as is one that
        // waited for such ticks for too long.
        loop {
            match admitter(&self.store).admit(SystemClock.now(), BUDGET) {
                Ok(admission) => return admission.granted,
                Err(error) => {
                    let again = [StoreErrorKind::Io, StoreErrorKind::Busy];
                    assert!(again.contains(&kind(&error)), "{error}");
                }
            }
        }
    }

    /// Stops a tick after this many messages, if it has as many. Returns how long others waited for it.
    fn stop(&mut self, connection: Connection, after: Option<usize>) -> (Option<Duration>, Vec<Message>) {
        self.enqueue(|world| &world.store, 4 * BUDGET);
        let held: Vec<LeaseRef> = self.admit().iter().map(TaskRecord::lease_ref).collect();
        let (line, connector) = Line::start();
        let store =
            PostgresStore::open(connector, options(&self.scratch).connections(1)).map(Arc::new).unwrap();
        if connection == Connection::Used {
            // As in `admit`: it may plan for longer than a tick may pause.
            while let Err(error) = admitter(&store).admit(SystemClock.now(), 1) {
                assert_eq!(kind(&error), StoreErrorKind::Io, "{error}");
            }
        }
        line.stop_after(after);
        let waited = thread::scope(|scope| {
            let ticking = scope.spawn(|| admitter(&store).admit(SystemClock.now(), BUDGET));
            let dies = after.is_some().then(|| Dies(&line));
            let waited = line.has_stopped(|| ticking.is_finished()).then(|| self.go_on(&held));
            drop(dies);
            let ticked = ticking.join().unwrap();
            let is_ended = |error: &stationmaster::Error| kind(error) == StoreErrorKind::Io;
            assert!(waited.is_some() || ticked.as_ref().err().is_none_or(is_ended), "{ticked:?}");
            waited
        });
        assert_eq!(self.store.read(|tx| tx.audit()).unwrap(), [], "after {after:?} messages");
        (waited, line.messages())
    }

    /// What others do beside a tick that has stopped just now.
    fn go_on(&mut self, held: &[LeaseRef]) -> Duration {
        let began = Instant::now();
        let now = SystemClock.now();
        self.enqueue(|world| &world.impatient, 1);
        let renewed = self.impatient.write(|tx| tx.renew(now, Duration::from_secs(60), held)).unwrap();
        assert!(renewed.iter().all(|renewal| *renewal == Renewal::Renewed), "{renewed:?}");
        let ends: Vec<Finish> = held.iter().map(|lease| Finish::success(*lease)).collect();
        self.impatient.write(|tx| tx.finish(now, &ends)).unwrap();
        let granted = self.admit();
        assert_eq!(granted.len(), BUDGET);
        began.elapsed()
    }
}

fn admitter(store: &Arc<PostgresStore>) -> Admitter {
    Admitter::new(store.clone(), "h".try_into().unwrap())
}

/// Stops ticks in schemas of their own: each takes about as long as the server waits for its client.
const AT_ONCE: usize = 4;

/// Stops a tick after each message that passes the filter. Returns how many ticks were stopped, and the longest that
/// others waited.
fn stop_at_each(lanes: usize, connection: Connection, is_of: fn(Message) -> bool) -> (usize, Duration) {
    let (_, messages) = World::new(lanes).stop(connection, None);
    let stops: Vec<usize> = (1..=messages.len()).filter(|after| is_of(messages[after - 1])).collect();
    assert!(stops.len() > 2, "{messages:?}");
    thread::scope(|scope| {
        let stop_some = |first: usize| {
            let stops: Vec<usize> = stops.iter().skip(first).step_by(AT_ONCE).copied().collect();
            let messages = &messages;
            move || {
                let mut world = World::new(lanes);
                let mut waits = Vec::new();
                for after in stops {
                    let (waited, _) = world.stop(connection, Some(after));
                    let said = messages[after - 1];
                    assert!(
                        waited.is_none_or(|waited| waited < IN_TIME),
                        "{lanes} lanes, after message {after} of {} ({said:?}): others waited {waited:?}",
                        messages.len()
                    );
                    waits.extend(waited);
                }
                waits
            }
        };
        let threads: Vec<_> = (0..AT_ONCE).map(|first| scope.spawn(stop_some(first))).collect();
        let waits: Vec<Duration> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        (waits.len(), waits.into_iter().max().unwrap())
    })
}

fn stops_everywhere() -> bool {
    std::env::var("STATIONMASTER_STOPS").is_ok_and(|stops| stops == "all")
}

fn any(_: Message) -> bool {
    true
}

fn ends_statement(message: Message) -> bool {
    matches!(message.kind, b'S' | b'Q')
}

fn ends_round_trip(message: Message) -> bool {
    message.is_last
}

#[test]
fn stopped_at_each_message() {
    let mut stops = vec![(3, Connection::Used, ends_statement as fn(Message) -> bool)];
    if stops_everywhere() {
        stops = vec![
            (3, Connection::Used, any),
            (3, Connection::New, any),
            (LANES, Connection::Used, ends_statement),
        ];
    }
    for (lanes, connection, is_of) in stops {
        let (stopped, longest) = stop_at_each(lanes, connection, is_of);
        println!(
            "{lanes} lanes, connection {connection:?}: {stopped} ticks stopped, others went on within {longest:.1?}"
        );
        assert!(stopped > 2);
    }
}

#[test]
fn stopped_while_the_server_sends() {
    let (stopped, longest) = stop_at_each(LANES, Connection::Used, ends_round_trip);
    println!("{LANES} lanes: {stopped} ticks stopped, others went on within {longest:.1?}");
}

/// Ticks wait for a definition. They are not taken for ticks that have stopped.
#[test]
fn a_definition_is_open_for_5_s() {
    const ADMITTERS: usize = 20;
    let mut world = World::new(3);
    world.enqueue(|world| &world.store, BUDGET * ADMITTERS);
    let name = world.scratch.0.to_string();
    let ticking = with(&url(), &format!("application_name={name}"));
    let connections = ADMITTERS as u32 / 2 + 1;
    let stores = [(); 2].map(|()| {
        let options = options(&world.scratch).connections(connections).lock_timeout(Duration::from_secs(60));
        Arc::new(PostgresStore::connect(&ticking, options).unwrap())
    });
    let host = Plain::connect(&url());
    host.ask("BEGIN");
    host.call(&world.scratch.0, Notify::No, |tx| tx.define([pool("another", 1)], IfExists::Replace)).unwrap();
    let waiting = format!(
        "SELECT count(*), min(pid::text) FROM pg_locks WHERE relation = '\"{name}\".tick_lock'::regclass AND NOT granted"
    );
    // Those that wait: a pooler may lend others of this name to other programs.
    let sessions = format!(
        "SELECT pid || ' ' || backend_start FROM pg_stat_activity WHERE pid IN (
           SELECT pid FROM pg_locks WHERE relation = '\"{name}\".tick_lock'::regclass AND NOT granted)"
    );
    let plain = Plain::connect(&url());
    thread::scope(|scope| {
        let ticks: Vec<_> = (0..ADMITTERS)
            .map(|n| {
                let mut admitter =
                    Admitter::new(stores[n % 2].clone(), format!("h{n}").as_str().try_into().unwrap());
                scope.spawn(move || admitter.admit(SystemClock.now(), BUDGET))
            })
            .collect();
        // All of them wait, and then for 5 s longer.
        let began = Instant::now();
        while plain.number(&waiting) < ADMITTERS as i64 {
            assert!(
                began.elapsed() < Duration::from_secs(15),
                "not all ticks wait: {:?}",
                plain.ask(&waiting)
            );
            thread::sleep(Duration::from_millis(10));
        }
        let before: Vec<String> =
            plain.ask(&sessions).into_iter().map(|row| format!("'{}'", row[0].as_deref().unwrap())).collect();
        assert_eq!(before.len(), ADMITTERS, "{before:?}");
        thread::sleep(Duration::from_secs(5));
        assert_eq!(plain.number(&waiting), ADMITTERS as i64, "a tick does not wait any more");
        host.ask("COMMIT");
        for tick in ticks {
            assert_eq!(tick.join().unwrap().unwrap().granted.len(), BUDGET);
        }
        let left = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE pid || ' ' || backend_start IN ({})",
            before.join(", ")
        );
        assert_eq!(plain.number(&left), ADMITTERS as i64, "a session was ended");
    });
    assert_eq!(world.store.read(|tx| tx.audit()).unwrap(), []);
}
