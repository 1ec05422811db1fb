//! A port accepts connections.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Condition, wrong};
use crate::seconds;
use crate::sensor::Poked;
use crate::service::poker::PokeRequest;

/// Waits until a TCP port accepts a connection, which is closed at once. It lands with the address that answered.
///
/// A name that does not resolve is [`Poked::Unreachable`]; a connection that is refused or takes too long is not yet. The time
/// is for all addresses of the name together; resolving it comes on top, and has no limit but the poke's own.
///
/// # Examples
///
/// ```
/// use stationmaster::service::kinds::{Condition, TcpAccepts};
/// let context = TcpAccepts::new("db.internal:5432").context()?;
/// assert_eq!(context.as_str(), r#"{"address":"db.internal:5432","connect_timeout_s":3}"#);
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpAccepts {
    address: String,
    #[serde(default = "three_seconds", rename = "connect_timeout_s", with = "seconds")]
    connect_timeout: Duration,
}

fn three_seconds() -> Duration {
    Duration::from_secs(3)
}

impl TcpAccepts {
    /// Waits for `host:port`, for three seconds a poke.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), connect_timeout: three_seconds() }
    }

    /// How long one poke may try to connect; at least one millisecond is used.
    #[must_use]
    pub fn connect_timeout(mut self, length: Duration) -> Self {
        self.connect_timeout = seconds::clip(length);
        self
    }

    fn look(&self) -> Poked {
        let port = self.address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        if port.is_none_or(|(_, port)| port.parse::<u16>().map_or(true, |port| port == 0)) {
            return wrong::<Self>(&format!("address {:?} is no host:port", self.address));
        }
        match self.address.to_socket_addrs() {
            Ok(found) => self.connect(&found.collect::<Vec<SocketAddr>>()),
            Err(error) => Poked::Unreachable(format!("cannot resolve {}: {error}", self.address)),
        }
    }

    fn connect(&self, addresses: &[SocketAddr]) -> Poked {
        let began = Instant::now();
        for (at, address) in (0_u32..).zip(addresses) {
            let others = u32::try_from(addresses.len()).unwrap_or(u32::MAX).saturating_sub(at).max(1);
            let share = self.connect_timeout.saturating_sub(began.elapsed()) / others;
            if TcpStream::connect_timeout(address, share.max(Duration::from_millis(1))).is_ok() {
                return Poked::Landed(Some(address.to_string()));
            }
        }
        Poked::NotYet
    }
}

impl Condition for TcpAccepts {
    const KIND: &'static str = "tcp_accepts";
    const EXAMPLE: &'static str = r#"{"address": "db.internal:5432"}"#;
}

/// The poke of [`TcpAccepts`].
pub fn tcp_accepts(request: &PokeRequest<'_>) -> Poked {
    match TcpAccepts::read(request.context) {
        Ok(wanted) => wanted.look(),
        Err(wrong) => wrong,
    }
}
