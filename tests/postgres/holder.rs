//! Who holds the tick lock and reads no answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use stationmaster::Timestamp;
use stationmaster::ops::AdmitRequest;
use stationmaster::store::postgres::tokio_postgres::{Config, NoTls};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::scratch::rekeyed::dial;
use crate::scratch::{Scratch, url};
use crate::task;

/// Reads nothing any more once it has stopped.
struct Stopping {
    stream: TcpStream,
    has_stopped: Arc<AtomicBool>,
}

impl AsyncRead for Stopping {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.has_stopped.load(Ordering::SeqCst) {
            true => Poll::Pending,
            false => Pin::new(&mut self.stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stopping {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The server sends it more than fits into the buffers on the way, which no timeout of the server's ends. The tick
/// that waits would give up after 60 s.
#[test]
fn a_holder_that_stops_while_it_is_sent_an_answer_is_ended() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options.lock_timeout(Duration::from_secs(60)));
    store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[task("a")])).unwrap();
    let (has_stopped, runtime) = (Arc::new(AtomicBool::new(false)), tokio::runtime::Runtime::new().unwrap());
    let config: Config = url().parse().unwrap();
    let stopping = Arc::clone(&has_stopped);
    let client = runtime.block_on(async {
        let stream = Stopping { stream: dial(&config).await.unwrap(), has_stopped: stopping };
        let (client, connection) = config.connect_raw(stream, NoTls).await.unwrap();
        tokio::spawn(connection);
        let lock = format!("BEGIN; LOCK TABLE \"{}\".tick_lock IN EXCLUSIVE MODE", scratch.0);
        client.batch_execute(&lock).await.unwrap();
        client
    });
    has_stopped.store(true, Ordering::SeqCst);
    runtime.spawn(async move {
        client.batch_execute("SELECT repeat('x', 1000000) FROM generate_series(1, 1000)").await
    });
    let lease = Duration::from_secs(60);
    let order = AdmitRequest::new("h".try_into().unwrap(), "t".try_into().unwrap(), 9, lease);
    let admission = store.write(|tx| tx.admit(Timestamp::from_micros(1), &order)).unwrap();
    assert_eq!(admission.granted.len(), 1);
    runtime.shutdown_background();
}
