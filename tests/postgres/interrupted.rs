//! Conversations that end at a chosen word: between store and server stands somebody who hangs up.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stationmaster::clock::{Clock, SystemClock};
use stationmaster::service::Admitter;
use stationmaster::store::PostgresStore;
use stationmaster::store::postgres::Connector;
use stationmaster::store::postgres::tokio_postgres::config::Host;
use stationmaster::store::postgres::tokio_postgres::{Config, NoTls};

use crate::scratch::{Scratch, rows, url};
use crate::{pools, put, task};

const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

/// What is done when the word is heard: with the client's line, the server's, and what was just said, which was not passed on.
type Deed = dyn Fn(&mut TcpStream, &mut TcpStream, &[u8]) + Send + Sync;

/// Connects to the server, and does the deed when the word is heard first. That conversation ends then, others go on.
pub(crate) fn interrupted(
    word: &'static [u8],
    deed: impl Fn(&mut TcpStream, &mut TcpStream, &[u8]) + Send + Sync + 'static,
) -> Connector {
    interrupted_while(|| false, word, deed)
}

/// The same. While the server is away, no one can connect.
pub(crate) fn interrupted_while(
    is_away: impl Fn() -> bool + Send + Sync + 'static,
    word: &'static [u8],
    deed: impl Fn(&mut TcpStream, &mut TcpStream, &[u8]) + Send + Sync + 'static,
) -> Connector {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let between = listener.local_addr().unwrap();
    let (deed, is_done): (Arc<Deed>, _) = (Arc::new(deed), Arc::new(AtomicBool::new(false)));
    thread::spawn(move || {
        for client in listener.incoming() {
            let (deed, is_done) = (Arc::clone(&deed), Arc::clone(&is_done));
            thread::spawn(move || converse(client.unwrap(), word, &*deed, &is_done));
        }
    });
    let config: Config = url().parse().unwrap();
    Connector::new(move || {
        let (config, is_away) = (config.clone(), is_away());
        async move {
            if is_away {
                return Err("the server is away".into());
            }
            let stream = tokio::net::TcpStream::connect(between).await?;
            Ok::<_, Box<dyn Error + Send + Sync>>(config.connect_raw(stream, NoTls).await?)
        }
    })
}

fn converse(mut client: TcpStream, word: &[u8], deed: &Deed, is_done: &AtomicBool) {
    let mut server = TcpStream::connect(server()).unwrap();
    let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
        // A server that cannot answer ends the transaction, whatever else it was sent.
        let _ = std::io::copy(&mut from, &mut std::io::sink());
    });
    let mut said = vec![0; 1 << 16];
    while let Ok(length @ 1..) = client.read(&mut said) {
        let said = &said[..length];
        if said.windows(word.len()).any(|part| part == word) && !is_done.swap(true, Ordering::SeqCst) {
            deed(&mut client, &mut server, said);
            let _ = client.shutdown(Shutdown::Both);
            break;
        }
        if server.write_all(said).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Write);
}

fn server() -> SocketAddr {
    use std::net::ToSocketAddrs;
    let config: Config = url().parse().unwrap();
    let Some(Host::Tcp(host)) = config.get_hosts().first() else { panic!("{}: no host", url()) };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    (host.as_str(), port).to_socket_addrs().unwrap().next().unwrap()
}

#[test]
fn a_commit_that_is_done_after_its_client_gave_up_is_found_by_the_admitter() {
    let scratch = Scratch::new();
    let other = scratch.open(|options| options);
    let now = SystemClock.now();
    other.write(|tx| tx.enqueue(now, &[task("t")])).unwrap();
    let waiting = format!(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '\"{}\".tick_lock'::regclass",
        scratch.0
    );
    let connector = interrupted(COMMIT, move |client, server, commit| {
        client.shutdown(Shutdown::Both).unwrap();
        // Who asks without waiting for the commit is answered before it is done.
        let patience = Instant::now() + Duration::from_secs(2);
        while rows(&waiting)[0].get::<_, i64>(0) == 0 && Instant::now() < patience {
            thread::sleep(Duration::from_millis(5));
        }
        server.write_all(commit).unwrap();
    });
    let store = PostgresStore::open(connector, scratch.options()).unwrap();
    let mut admitter = Admitter::new(Arc::new(store), "me".parse().unwrap());
    let admitted = admitter.admit(now, 9).unwrap();
    assert_eq!(admitted.granted.len(), 1);
    assert_eq!(other.read(|tx| tx.audit()).unwrap(), []);
}

#[test]
fn a_commit_that_a_pooler_answers_for_a_lost_server_is_an_open_question() {
    for severity in ["FATAL", "ERROR"] {
        let scratch = Scratch::new();
        drop(scratch.open(|options| options));
        let connector = interrupted(COMMIT, move |client, _, _| {
            let fields = format!("S{severity}\0C08P01\0Mserver conn crashed?\0\0");
            let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
            client.write_all(&[b"E", &length[..], fields.as_bytes()].concat()).unwrap();
        });
        let store = PostgresStore::open(connector, scratch.options()).unwrap();
        let lost = put(&store, "p").unwrap_err();
        assert!(lost.is_indeterminate(), "{severity}: {lost}");
        put(&store, "q").unwrap();
    }
}

#[test]
fn a_server_that_hangs_up_while_the_tables_are_looked_at_is_connected_to_again() {
    let scratch = Scratch::new();
    drop(scratch.open(|options| options));
    let connector = interrupted(b"server_encoding", |_, _, _| {});
    let store = PostgresStore::open(connector, scratch.options()).unwrap();
    assert_eq!(pools(&store), 0);
}
