//! Serves the pages of a store, by default only to this machine.

use std::fs;
use std::hint::black_box;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use stationmaster::dashboard::Dashboard;
use stationmaster::dashboard::axum::extract::{Request, State};
use stationmaster::dashboard::axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use stationmaster::dashboard::axum::middleware::{Next, from_fn_with_state};
use stationmaster::dashboard::axum::response::{IntoResponse, Response};
use stationmaster::dashboard::axum::{self, Router};

use crate::args::Options;
use crate::failure::Failure;
use crate::open::{Access, open};

/// The name that a browser sends along with the token.
const USER: &str = "stationmaster";

/// A shorter token could be guessed.
const LEAST_TOKEN: usize = 16;

#[derive(Debug, Args)]
pub struct Serve {
    /// Where to listen. Port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8470", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// Lets everyone who reaches the pages cancel and retry tasks, and pause and resume queues, pools and limits
    #[arg(long)]
    pub allow_changes: bool,
    /// A file with the token that browsers must send as the password of the user `stationmaster`, and programs as
    /// a bearer token. Needed unless it listens to this machine only
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The token itself: better in the variable than among the arguments, which others on the machine see
    #[arg(long, env = "STATIONMASTER_TOKEN", hide_env_values = true, conflicts_with = "token_file")]
    pub token: Option<String>,
    /// A name under which browsers reach it, besides localhost and addresses. May be given several times
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
}

/// Decides which requests are allowed.
struct Guard {
    /// The accepted values of the header `Authorization`, if there is a token.
    answers: Option<[String; 2]>,
    hosts: Vec<String>,
}

/// Serves until the process is ended.
pub fn run(serve: &Serve, options: &Options) -> Result<bool, Failure> {
    let token = token(serve)?;
    if !serve.listen.ip().is_loopback() && token.is_none() {
        return Err(Failure::Usage(
            "who listens to other machines needs a token: give --token-file, or the variable STATIONMASTER_TOKEN"
                .into(),
        ));
    }
    let opened = open(options, if serve.allow_changes { Access::Changes } else { Access::Pages })?;
    let mut board =
        Dashboard::new(Arc::clone(&opened.store)).clock(opened.clock).show_payloads(options.payload);
    if serve.allow_changes {
        board = board.allow_changes(|_| Some("dashboard".into())).log(|change| {
            // If this cannot be written, the store still has the change.
            let _ = writeln!(std::io::stderr(), "stationmaster: {change}");
        });
    }
    let guard = Guard {
        answers: token.map(|token| {
            [format!("Basic {}", base64(&format!("{USER}:{token}"))), format!("Bearer {token}")]
        }),
        hosts: serve.host.iter().map(|host| host.to_ascii_lowercase()).collect(),
    };
    let app: Router = board.router().layer(from_fn_with_state(Arc::new(guard), let_in));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(16)
        .enable_all()
        .build()
        .map_err(Failure::Output)?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(serve.listen)
            .await
            .map_err(|error| Failure::Usage(format!("cannot listen to {}: {error}", serve.listen)))?;
        let at = listener.local_addr()?;
        {
            let mut out = std::io::stdout();
            writeln!(out, "http://{at}/")?;
            out.flush()?;
        }
        axum::serve(listener, app).await?;
        Ok(true)
    })
}

fn token(serve: &Serve) -> Result<Option<String>, Failure> {
    let token = match &serve.token_file {
        Some(file) => {
            let text = fs::read_to_string(file);
            let text =
                text.map_err(|error| Failure::Usage(format!("cannot read {}: {error}", file.display())))?;
            Some(text.trim().to_owned())
        }
        None => serve.token.clone(),
    };
    match token {
        Some(token) if token.len() < LEAST_TOKEN || !token.chars().all(|char| char.is_ascii_graphic()) => {
            Err(Failure::Usage(format!(
                "a token has {LEAST_TOKEN} or more plain characters without spaces: `openssl rand -hex 32` makes one"
            )))
        }
        token => Ok(token),
    }
}

async fn let_in(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let plain = [(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))];
    if !guard.is_known_host(request.headers()) {
        let text =
            "This name is not served here: start `stationmaster serve` with --host NAME to allow it.\n";
        return (StatusCode::MISDIRECTED_REQUEST, plain, text).into_response();
    }
    if !guard.knows(request.headers()) {
        let asks = HeaderValue::from_static("Basic realm=\"stationmaster: the password is the token\"");
        let mut answer =
            (StatusCode::UNAUTHORIZED, plain, "The token is missing or wrong.\n").into_response();
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, asks);
        return answer;
    }
    next.run(request).await
}

impl Guard {
    /// A page elsewhere can make its own name lead to this machine, and then send requests as if it were one of ours.
    /// It cannot do that with an address or with `localhost`.
    fn is_known_host(&self, headers: &HeaderMap) -> bool {
        let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
        let host = host.to_ascii_lowercase();
        if host.parse::<SocketAddr>().is_ok() || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
            return true;
        }
        let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
        name == "localhost" || self.hosts.iter().any(|known| known == name)
    }

    fn knows(&self, headers: &HeaderMap) -> bool {
        let Some(answers) = &self.answers else { return true };
        let sent = headers.get(header::AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
        // Both are compared, whatever the result of the first.
        answers.iter().fold(false, |known, answer| known | is_equal(sent, answer.as_bytes()))
    }
}

/// Compares in a time that does not depend on where the two differ.
fn is_equal(sent: &[u8], secret: &[u8]) -> bool {
    let at = |index: usize| sent.get(index).copied().unwrap_or_default();
    let differs = secret.iter().enumerate().fold(0, |differs, (index, byte)| differs | (byte ^ at(index)));
    black_box(differs) == 0 && sent.len() == secret.len()
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in text.as_bytes().chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            match digit <= three.len() {
                true => out.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize])),
                false => out.push('='),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_browsers() {
        let pairs = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (text, coded) in pairs {
            assert_eq!(base64(text), coded);
        }
    }

    #[test]
    fn names_of_others_are_refused() {
        let guard = Guard { answers: None, hosts: vec!["board.example".into()] };
        let knows = |host: &str| {
            guard.is_known_host(&[(header::HOST, HeaderValue::from_str(host).unwrap())].into_iter().collect())
        };
        for host in [
            "127.0.0.1:8470",
            "127.0.0.1",
            "[::1]:80",
            "[::1]",
            "LOCALHOST:1",
            "localhost",
            "board.example:443",
        ] {
            assert!(knows(host), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example:8470", "127.0.0.1.evil.example", "evil.example:127"]
        {
            assert!(!knows(host), "{host}");
        }
        assert!(!guard.is_known_host(&HeaderMap::new()));
    }

    #[test]
    fn only_the_whole_secret_is_equal() {
        assert!(is_equal(b"secret", b"secret"));
        for sent in [&b""[..], b"secre", b"secrets", b"Secret", b"secret\0"] {
            assert!(!is_equal(sent, b"secret"));
        }
    }
}
