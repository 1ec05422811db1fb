//! Connections that are dead and look alive: a forwarder between the store and the server drops what it is given, and closes
//! nothing. So may a firewall, a NAT or a load balancer that has forgotten a connection.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use stationmaster::admission::IfExists;
use stationmaster::error::StoreErrorKind;
use stationmaster::store::postgres::tokio_postgres::config::Host;
use stationmaster::store::postgres::tokio_postgres::{Config, NoTls};
use stationmaster::store::postgres::{Connector, PostgresOptions, Wake};
use stationmaster::store::{PostgresStore, Store, TxMode};

use crate::scratch::{Scratch, url};
use crate::{kind, pool, pools, put};

/// Passes bytes on between clients and the server, until it is asked to stop.
#[derive(Default)]
struct Forwarder {
    /// Connections accepted so far.
    accepted: AtomicUsize,
    /// Those before this number are silent.
    silent: AtomicUsize,
    /// How many pieces of what a client sends are passed on; 0: all.
    pieces: AtomicUsize,
    /// Clients that closed their connection.
    closed: AtomicUsize,
}

impl Forwarder {
    /// Listens, and answers how to connect through it: as a host's own connector, with nothing set on the socket.
    fn start() -> (Arc<Self>, Connector) {
        let config: Config = url().parse().unwrap();
        let [Host::Tcp(host), ..] = config.get_hosts() else { panic!("not by TCP: {}", url()) };
        let server = (host.clone(), config.get_ports().first().copied().unwrap_or(5432));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut through = Config::new();
        through.host("127.0.0.1").port(listener.local_addr().unwrap().port()).keepalives(false);
        through.user(config.get_user().unwrap()).dbname(config.get_dbname().unwrap());
        if let Some(password) = config.get_password() {
            through.password(password);
        }
        let forwarder = Arc::new(Self::default());
        let accepting = Arc::clone(&forwarder);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
                let number = accepting.accepted.fetch_add(1, Ordering::SeqCst);
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (there, here) = (Arc::clone(&accepting), Arc::clone(&accepting));
                thread::spawn(move || {
                    there.pass(number, client, server, there.pieces.load(Ordering::SeqCst));
                    there.closed.fetch_add(1, Ordering::SeqCst);
                });
                thread::spawn(move || here.pass(number, back.0, back.1, 0));
            }
        });
        let connect = move || {
            let through = through.clone();
            async move { through.connect(NoTls).await }
        };
        (forwarder, Connector::new(connect))
    }

    fn pass(&self, number: usize, mut from: TcpStream, mut to: TcpStream, pieces: usize) {
        let (mut buffer, mut passed) = ([0; 8192], 0);
        while let Ok(bytes @ 1..) = from.read(&mut buffer) {
            let heard = self.silent.load(Ordering::SeqCst) <= number && (pieces == 0 || passed < pieces);
            passed += 1;
            if heard && to.write_all(&buffer[..bytes]).is_err() {
                break;
            }
        }
        if self.silent.load(Ordering::SeqCst) <= number {
            let _ = to.shutdown(Shutdown::Both);
        }
    }

    /// From now on, no connection that is open passes anything on. New ones do.
    fn silence(&self) {
        self.silent.store(self.accepted.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

/// A server that says nothing is given up after 9 s. It gives up an open transaction of a client that says nothing after 1 s.
fn limits(options: PostgresOptions) -> PostgresOptions {
    let options = options.wake(Wake::Never).idle_in_transaction_timeout(Duration::from_secs(1));
    options.lock_timeout(Duration::from_secs(1)).statement_timeout(Duration::from_secs(3))
}

/// What it may take on a busy machine.
const IN_TIME: Duration = Duration::from_secs(12);

#[test]
fn a_dead_connection_that_looks_alive_is_given_up_in_time() {
    let scratch = Scratch::new();
    let (forwarder, connector) = Forwarder::start();
    let store = PostgresStore::open(connector, limits(scratch.options())).unwrap();
    put(&store, "before").unwrap();
    // One inside the other: so there are two connections.
    let both = store.write(|tx| Ok((tx.all_pools()?.len(), pools(&store)))).unwrap();
    assert_eq!((both, forwarder.accepted.load(Ordering::SeqCst)), ((2, 1), 2));
    forwarder.silence();
    thread::scope(|scope| {
        for mode in [TxMode::Write, TxMode::Read] {
            let store = &store;
            scope.spawn(move || {
                let began = Instant::now();
                let told = store.transact(mode, &mut |tx| tx.all_pools().map(|_| ()));
                let took = began.elapsed();
                assert!(took < IN_TIME, "a call that is to end after 9 s took {took:?}");
                // It succeeds if it was the roll-back of the read before that found the connection dead.
                assert!(
                    told.as_ref().err().is_none_or(|error| kind(error) == StoreErrorKind::Io),
                    "{told:?}"
                );
            });
        }
    });
    let closed = || forwarder.closed.load(Ordering::SeqCst) == 2;
    assert!(eventually(closed), "what was given up is closed, too");
    put(&store, "after").unwrap();
    assert_eq!(pools(&store), 2);
}

#[test]
fn a_commit_on_a_dead_connection_is_an_open_question_in_time() {
    let scratch = Scratch::new();
    let (forwarder, connector) = Forwarder::start();
    let store = PostgresStore::open(connector, limits(scratch.options())).unwrap();
    let began = Instant::now();
    let told = store.transact(TxMode::Write, &mut |tx| {
        tx.define([pool("half", 1)], IfExists::Replace)?;
        forwarder.silence();
        Ok(())
    });
    let took = began.elapsed();
    assert!(took < IN_TIME, "a commit that is to end after 9 s took {took:?}");
    assert!(told.unwrap_err().is_indeterminate());
    put(&store, "after").unwrap();
    assert_eq!(pools(&store), 1, "the server never saw the commit");
}

/// Whatever piece of what is said when a connection is made is the last to come through.
#[test]
fn a_server_that_falls_silent_while_a_store_connects_is_given_up_in_time() {
    let scratch = Scratch::new();
    drop(scratch.open(|options| options));
    thread::scope(|scope| {
        for pieces in 1..=4 {
            let options = scratch.options().apply_migrations(false);
            scope.spawn(move || {
                let (forwarder, connector) = Forwarder::start();
                forwarder.pieces.store(pieces, Ordering::SeqCst);
                let (tell, told) = mpsc::channel();
                let options = options.connect_timeout(Duration::from_secs(1));
                thread::spawn(move || tell.send(PostgresStore::open(connector, options).map(|_| ())));
                match told.recv_timeout(Duration::from_secs(15)) {
                    Ok(Err(error)) => assert_eq!(kind(&error), StoreErrorKind::Io, "{error}"),
                    Ok(Ok(())) => assert!(pieces > 2, "all was said in {pieces} pieces"),
                    Err(_) => panic!("opening is to end after 1 s, and did not in 15 s ({pieces} pieces)"),
                }
            });
        }
    });
}

#[test]
fn who_listens_on_a_dead_connection_hears_again() {
    let scratch = Scratch::new();
    let (forwarder, connector) = Forwarder::start();
    let options = scratch.options().statement_timeout(Duration::from_secs(1));
    let store = PostgresStore::open(connector, options).unwrap();
    let (tell, told) = mpsc::channel();
    let _listening = store.on_change(move |change| tell.send(change.tasks()).unwrap()).unwrap();
    forwarder.silence();
    let other = scratch.open(|options| options);
    put(&other, "unheard").unwrap();
    let heard = told.recv_timeout(Duration::from_secs(20));
    assert_eq!(heard, Ok(true), "what was missed is told by one call, at most 6 s later");
    put(&other, "heard").unwrap();
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(true));
}

fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    is_so()
}
