//! Finds out whether a connection leads to its own server process, or to a pooler.
//!
//! A pooler may give a server process to another program after each transaction. That program would get any
//! setting, prepared statement or `LISTEN` that the store left on it. An option that declares a pooler could
//! be wrong, and the harm would be done to others. So the store finds out.
//!
//! Poolers do not announce themselves. But every client is sent a process id when it connects, for cancelling
//! queries. A server sends the id of the process that serves this client. A pooler sends a made-up id,
//! because the process changes.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// Where a connection leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// To a server process that serves no other client until the connection ends.
    Direct,
    /// To something in between, which may change the process after each transaction.
    Pooled,
}

impl Route {
    /// Compares the process that answered a query with the one that was sent to the client. When in doubt,
    /// assumes a pooler.
    pub(super) async fn of(client: &Client, answered: Option<i32>) -> Self {
        match (sent_process(client).await, answered) {
            (Some(sent), Some(answered)) if sent == answered => Self::Direct,
            _ => Self::Pooled,
        }
    }
}

/// The first eight bytes of a request to cancel: its length and its code.
const CANCEL: [u8; 8] = [0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e];

/// Returns the process id that was sent to the client when it connected. The driver reveals it only in a
/// request to cancel, so this writes one into memory.
async fn sent_process(client: &Client) -> Option<i32> {
    let mut draft = Draft::default();
    client.cancel_token().cancel_query_raw(&mut draft, NoHandshake).await.ok()?;
    let request = draft.0.last_chunk::<16>()?;
    let (kind, rest) = request.split_first_chunk::<8>()?;
    (*kind == CANCEL).then(|| rest.first_chunk().map(|id| i32::from_be_bytes(*id)))?
}

/// Keeps what is written. Agrees to TLS when asked (`S`), because the client may insist, and continues
/// without it.
#[derive(Default)]
struct Draft(Vec<u8>);

impl AsyncRead for Draft {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        buf.put_slice(if buf.remaining() == 0 { b"" } else { b"S" });
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Draft {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl TlsStream for &mut Draft {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

struct NoHandshake;

impl<'d> TlsConnect<&'d mut Draft> for NoHandshake {
    type Stream = &'d mut Draft;
    type Error = Infallible;
    type Future = Ready<Result<&'d mut Draft, Infallible>>;

    fn connect(self, draft: &'d mut Draft) -> Self::Future {
        ready(Ok(draft))
    }
}
