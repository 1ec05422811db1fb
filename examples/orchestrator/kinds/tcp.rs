//! A sensor kind: a port accepts connections.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stationmaster::seconds;
use stationmaster::sensor::PokeOutcome;
use stationmaster::service::PokeRequest;
use stationmaster::service::kinds::Condition;

/// Waits until a TCP port accepts a connection, which is closed at once. It lands with the address that
/// accepted.
///
/// A connection that is refused, reset or takes too long means "not yet". A name that does not resolve is
/// [`PokeOutcome::Unreachable`]. So is a name of which no address can be tried: there is no route, or this
/// process may not connect or has too many open files. The time limit covers all addresses of the name
/// together. Resolving the name is not included, and is limited only by the poke's own deadline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TcpAccepts {
    address: String,
    #[serde(default = "three_seconds", rename = "connect_timeout_s", with = "seconds")]
    connect_timeout: Duration,
}

fn three_seconds() -> Duration {
    Duration::from_secs(3)
}

impl TcpAccepts {
    /// Waits for `host:port`, for up to three seconds per poke.
    pub(crate) fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), connect_timeout: three_seconds() }
    }

    /// Sets how long one poke may try to connect. At least one millisecond is used.
    #[must_use]
    pub(crate) fn connect_timeout(mut self, length: Duration) -> Self {
        self.connect_timeout = seconds::clip(length);
        self
    }

    fn look(&self) -> PokeOutcome {
        let port = self.address.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        if port.is_none_or(|(_, port)| port.parse::<u16>().map_or(true, |port| port == 0)) {
            return Self::wrong(&format!("address {:?} is no host:port", self.address));
        }
        match self.address.to_socket_addrs() {
            Ok(found) => self.connect(&found.collect::<Vec<SocketAddr>>()),
            Err(error) => PokeOutcome::Unreachable(format!("cannot resolve {}: {error}", self.address)),
        }
    }

    fn connect(&self, addresses: &[SocketAddr]) -> PokeOutcome {
        let began = Instant::now();
        let mut answer = None;
        for (at, address) in (0_u32..).zip(addresses) {
            let others = u32::try_from(addresses.len()).unwrap_or(u32::MAX).saturating_sub(at).max(1);
            let share = self.connect_timeout.saturating_sub(began.elapsed()) / others;
            match accepts(address, share.max(Duration::from_millis(1))) {
                Ok(true) => return PokeOutcome::Landed(Some(address.to_string())),
                Ok(false) => answer = Some(PokeOutcome::NotYet),
                Err(error) => {
                    answer.get_or_insert(PokeOutcome::Unreachable(format!(
                        "cannot connect to {address}: {error}"
                    )));
                }
            }
        }
        answer.unwrap_or_else(|| PokeOutcome::Unreachable(format!("{} has no address", self.address)))
    }
}

/// Returns true if a process listens there, and an error if that cannot be determined.
fn accepts(address: &SocketAddr, limit: Duration) -> io::Result<bool> {
    match TcpStream::connect_timeout(address, limit) {
        // Connecting to an unused port of the range for outgoing connections may connect TCP to itself,
        // because the system may assign that very port.
        Ok(stream) => Ok(stream.local_addr()? != stream.peer_addr()?),
        Err(error) => match error.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::TimedOut => Ok(false),
            _ => Err(error),
        },
    }
}

impl Condition for TcpAccepts {
    const KIND: &'static str = "tcp_accepts";
    const EXAMPLE: &'static str = r#"{"address": "db.internal:5432"}"#;
}

/// The poke of [`TcpAccepts`].
pub(super) fn tcp_accepts(request: &PokeRequest) -> PokeOutcome {
    match TcpAccepts::read(&request.context) {
        Ok(wanted) => wanted.look(),
        Err(wrong) => wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Returns a port in the range of outgoing connections on which no process listens. Linux prefers odd
    /// ports for listeners and even ones for connections.
    fn closed_port() -> u16 {
        let given = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port() & !1;
        let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        (given..u16::MAX).step_by(2).find(free).unwrap()
    }

    #[test]
    fn a_connection_to_itself_is_nobody_who_listens() {
        let wanted = TcpAccepts::new(format!("127.0.0.1:{}", closed_port()));
        for _ in 0..40_000 {
            assert_eq!(wanted.look(), PokeOutcome::NotYet);
        }
    }

    #[test]
    fn one_address_that_was_tried_decides_over_those_that_cannot_be() {
        let address = |ip: &str, port: u16| SocketAddr::new(ip.parse().unwrap(), port);
        let (nowhere, closed) = (address("255.255.255.255", 9), address("127.0.0.1", closed_port()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let wanted = TcpAccepts::new("several:1");
        assert_eq!(wanted.connect(&[nowhere, closed]), PokeOutcome::NotYet);
        assert_eq!(wanted.connect(&[closed, nowhere]), PokeOutcome::NotYet);
        assert_eq!(wanted.connect(&[nowhere, closed, open]), PokeOutcome::Landed(Some(open.to_string())));
        for cannot in [wanted.connect(&[nowhere]), wanted.connect(&[])] {
            assert!(matches!(cannot, PokeOutcome::Unreachable(_)), "{cannot:?}");
        }
    }
}
