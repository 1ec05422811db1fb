//! A connection as poolers make it, without one: the client receives a process id that is not the server's.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use stationmaster::store::postgres::Connector;
use stationmaster::store::postgres::tokio_postgres::config::Host;
use stationmaster::store::postgres::tokio_postgres::{Config, NoTls};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::url;

/// How the message begins that tells a process id: its name and its length.
const KEY: [u8; 5] = [b'K', 0, 0, 0, 12];

/// Changes the process id that passes through a stream.
pub struct Rekeyed<S> {
    stream: S,
    is_told: bool,
}

impl<S> Rekeyed<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, is_told: false }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rekeyed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let news = &mut buf.filled_mut()[before..];
        if !self.is_told
            && let Some(at) = news.windows(KEY.len() + 1).position(|part| part[..KEY.len()] == KEY)
        {
            // Of 2^31 servers it is right about none.
            news[at + KEY.len()] ^= 0x40;
            self.is_told = true;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rekeyed<S> {
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

/// Connects to the server of the tests as if a pooler were in between.
pub fn as_by_a_pooler() -> Connector {
    let config: Config = url().parse().unwrap();
    Connector::new(move || {
        let config = config.clone();
        async move {
            let stream = Rekeyed::new(dial(&config).await?);
            Ok::<_, Box<dyn Error + Send + Sync>>(config.connect_raw(stream, NoTls).await?)
        }
    })
}

/// A line to the server that the configuration names.
pub async fn dial(config: &Config) -> io::Result<TcpStream> {
    let Some(Host::Tcp(host)) = config.get_hosts().first() else { panic!("{}: no host", url()) };
    TcpStream::connect((host.as_str(), config.get_ports().first().copied().unwrap_or(5432))).await
}
