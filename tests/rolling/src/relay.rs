//! A relay between a client and the server that keeps back an answer. The client has then sent a number of requests, the
//! server has carried out all of them, and the client knows of all but the last.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use stationmaster::store::postgres::tokio_postgres::Config;
use stationmaster::store::postgres::tokio_postgres::config::Host;

pub struct Relay {
    pub url: String,
    /// Says true when the answer is there and was kept back, and false when the client ended before.
    pub reached: Receiver<bool>,
}

impl Relay {
    /// For one client. Keeps back the answer to this request, from 1 on.
    pub fn start(server: &str, last: usize) -> Self {
        let config: Config = server.parse().unwrap();
        let [Host::Tcp(host), ..] = config.get_hosts() else { panic!("not by TCP: {server}") };
        let address = (host.clone(), config.get_ports().first().copied().unwrap_or(5432));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (user, database) = (config.get_user().unwrap(), config.get_dbname().unwrap());
        let url = format!("postgres://{user}@127.0.0.1:{port}/{database}");
        let (say, reached) = channel();
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut server = TcpStream::connect(&address).unwrap();
            let (mut to_server, mut from_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            // What the client sends goes through as it is; its end ends the connection to the server.
            std::thread::spawn(move || {
                let _ = io::copy(&mut from_client, &mut to_server);
                let _ = to_server.shutdown(Shutdown::Both);
            });
            let _ = say.send(answer(&mut server, &mut client, last).unwrap_or(false));
        });
        Self { url, reached }
    }
}

/// Passes on answers. Each ends with a message that says that the server is ready; the first is that of connecting.
fn answer(server: &mut TcpStream, client: &mut TcpStream, last: usize) -> io::Result<bool> {
    let (mut answered, mut answer) = (0, Vec::new());
    loop {
        let mut head = [0; 5];
        server.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
        let mut body = vec![0; length];
        server.read_exact(&mut body)?;
        answer.extend_from_slice(&head);
        answer.extend_from_slice(&body);
        if head[0] == b'Z' {
            if answered == last {
                return Ok(true);
            }
            answered += 1;
            client.write_all(&std::mem::take(&mut answer))?;
        }
    }
}
