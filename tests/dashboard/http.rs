//! A server of the router on a port of its own, and a client that sends exactly what it is given.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use stationmaster::dashboard::axum::{self, Router};

/// A router that is served until the test ends.
pub struct Server {
    pub at: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    pub fn new(router: Router) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let at = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { at, _runtime: runtime }
    }

    pub fn get(&self, path: &str) -> Answer {
        send(self.at, "GET", path, &[], "")
    }

    /// Loads a page, and sends its form with what else is given, as its browser would.
    pub fn submit(&self, page: &str, fields: &[(&str, &str)]) -> Answer {
        let form = self.get(page);
        let cookie = form.header("set-cookie").expect("a page with forms sets a cookie");
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let mark = form.mark().expect("a page with forms has a mark");
        let origin = format!("http://{}", self.at);
        self.post(&[("Cookie", &cookie), ("Origin", &origin)], &[fields, &[("mark", &mark)]].concat())
    }

    pub fn post(&self, headers: &[(&str, &str)], fields: &[(&str, &str)]) -> Answer {
        send(self.at, "POST", "/change", headers, &form(fields))
    }
}

pub fn form(fields: &[(&str, &str)]) -> String {
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    pairs.join("&")
}

pub fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte.is_ascii_alphanumeric() {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns what its forms carry against forgery.
    pub fn mark(&self) -> Option<String> {
        let (_, after) = self.body.split_once("name=\"mark\" value=\"")?;
        Some(after.split('"').next()?.to_owned())
    }
}

pub fn send(at: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut socket = TcpStream::connect(at).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut text =
        format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| *name == "Host") {
        text.push_str(&format!("Host: {at}\r\n"));
    }
    headers.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
    text.push_str("\r\n");
    text.push_str(body);
    socket.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    Answer { status, headers, body: body.to_owned() }
}
