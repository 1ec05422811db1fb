//! Behind a pooler, which hands one server connection to many programs; and behind TLS, which is none.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use stationmaster::admission::IfExists;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::StoreErrorKind;
use stationmaster::ops::AdmitRequest;
use stationmaster::store::PostgresStore;
use stationmaster::store::postgres::Connector;
use stationmaster::store::postgres::tokio_postgres::Config;
use stationmaster::store::postgres::tokio_postgres::config::SslMode;
use stationmaster::store::postgres::tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::postgres_server::Plain;
use crate::postgres_server::pooler::{PoolMode, Pooler};
use crate::scratch::rekeyed::dial;
use crate::scratch::{Scratch, url};
use crate::{kind, pool, pools, put, task};

/// What another program would find changed on a connection, but for what the pooler itself sets for each of its clients.
const LEFT: &str = "SELECT 'setting ' || name || ' = ' || setting FROM pg_settings WHERE source = 'session' \
    AND name NOT IN ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings') \
    UNION ALL SELECT 'statement ' || name FROM pg_prepared_statements \
    UNION ALL SELECT 'channel ' || channel FROM pg_listening_channels() channel \
    UNION ALL SELECT 'lock' FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'";

/// As many as the pooler has to the server: so each program that holds one can be shown each.
const CONNECTIONS: usize = 3;

/// What another program finds on each of the pooler's connections.
fn left_behind(pooler: &Pooler) -> Vec<String> {
    let others: Vec<Plain> = (0..CONNECTIONS).map(|_| Plain::connect(&pooler.url())).collect();
    // In transactions that are all open, each has a connection of its own.
    let mut left: Vec<String> = others
        .iter()
        .flat_map(|other| {
            other.ask("BEGIN");
            other.ask(LEFT)
        })
        .map(|mut row| row.remove(0).unwrap())
        .collect();
    left.extend(
        others.iter().filter_map(|other| other.try_ask("ROLLBACK").err()).map(|error| error.to_string()),
    );
    left
}

#[test]
fn another_program_behind_the_same_pooler_finds_nothing_changed() {
    for mode in [PoolMode::Transaction, PoolMode::Session] {
        let Some(pooler) = Pooler::start(mode, &url(), CONNECTIONS) else { return };
        let scratch = Scratch::new();
        let store = PostgresStore::connect(&pooler.url(), scratch.options()).unwrap();
        if mode == PoolMode::Transaction {
            assert_eq!(left_behind(&pooler), Vec::<String>::new(), "as soon as it is open");
        }
        let now = SystemClock.now();
        for round in 0..5 {
            store.write(|tx| tx.enqueue(now, &[task(&round.to_string())])).unwrap();
            let name = format!("tick {round}");
            let order = AdmitRequest::new(
                "h".parse().unwrap(),
                name.parse().unwrap(),
                9,
                std::time::Duration::from_secs(60),
            );
            assert_eq!(store.write(|tx| tx.admit(now, &order)).unwrap().granted.len(), 1);
            let nested = store.write(|tx| {
                tx.define([pool("undone", 1)], IfExists::Replace)?;
                Err::<(), _>(stationmaster::Error::abort("the host's own"))
            });
            assert!(nested.is_err());
            put(&store, &format!("p{round}")).unwrap();
            assert_eq!(pools(&store), round + 1);
        }
        let refused = store.on_change(|_| ()).unwrap_err();
        assert_eq!(kind(&refused), StoreErrorKind::Backend, "{refused}");
        if mode == PoolMode::Session {
            // Until its clients leave, their connections are no other program's.
            drop(store);
            assert_eq!(left_behind(&pooler), Vec::<String>::new(), "{mode:?}");
            continue;
        }
        assert_eq!(left_behind(&pooler), Vec::<String>::new(), "{mode:?}, while the store is open");
        put(&store, "still").unwrap();
        drop(store);
        assert_eq!(left_behind(&pooler), Vec::<String>::new(), "{mode:?}");
    }
}

/// The length of a client's question for TLS.
const QUESTION: usize = 8;

/// Takes TLS upon itself: it tells the client that TLS is available, and does not ask the server.
struct Sealed {
    stream: TcpStream,
    unasked: usize,
    is_agreed: bool,
}

impl AsyncRead for Sealed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if std::mem::replace(&mut self.is_agreed, true) {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        buf.put_slice(b"S");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Sealed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.unasked > 0 {
            let taken = self.unasked.min(buf.len());
            self.unasked -= taken;
            return Poll::Ready(Ok(taken));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl TlsStream for Sealed {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

struct Seal;

impl TlsConnect<Sealed> for Seal {
    type Stream = Sealed;
    type Error = Infallible;
    type Future = Ready<Result<Sealed, Infallible>>;

    fn connect(self, stream: Sealed) -> Self::Future {
        ready(Ok(stream))
    }
}

/// Listening shows it, which is refused behind a pooler.
#[test]
fn a_connection_by_tls_is_known_to_be_the_store_s_own() {
    let scratch = Scratch::new();
    let mut config: Config = url().parse().unwrap();
    for mode in [SslMode::Prefer, SslMode::Require] {
        config.ssl_mode(mode);
        let config = config.clone();
        let connector = Connector::new(move || {
            let config = config.clone();
            async move {
                let sealed = Sealed { stream: dial(&config).await?, unasked: QUESTION, is_agreed: false };
                Ok::<_, Box<dyn Error + Send + Sync>>(config.connect_raw(sealed, Seal).await?)
            }
        });
        let store = PostgresStore::open(connector, scratch.options()).unwrap();
        drop(store.on_change(|_| ()).unwrap());
        put(&store, &format!("{mode:?}")).unwrap();
    }
}
