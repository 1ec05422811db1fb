//! A relay between clients and a PostgreSQL server. It reads whole messages, so a test can change the statements that are
//! sent, and read the notices that come back. Nothing in the crate knows of it.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use stationmaster::store::postgres::tokio_postgres::Config;
use stationmaster::store::postgres::tokio_postgres::config::Host;

/// Returns what is sent in place of a statement, or `None` if it is sent as it is.
type Edit = dyn Fn(&str) -> Option<String> + Send + Sync;
/// Is told the text of each notice.
type Hear = dyn Fn(&str) + Send + Sync;

/// Listens until the process ends.
pub struct Relay {
    config: Config,
    port: u16,
}

impl Relay {
    /// Puts one in front of this server.
    pub fn start(
        server: &str,
        edit: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
        hear: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let config: Config = server.parse().unwrap();
        let [Host::Tcp(host), ..] = config.get_hosts() else { panic!("not by TCP: {server}") };
        let address = (host.clone(), config.get_ports().first().copied().unwrap_or(5432));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (edit, hear): (Arc<Edit>, Arc<Hear>) = (Arc::new(edit), Arc::new(hear));
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&address).unwrap());
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (edit, hear) = (Arc::clone(&edit), Arc::clone(&hear));
                thread::spawn(move || {
                    let to = server.try_clone().unwrap();
                    // One side has closed the connection.
                    let _ = send(client, server, &*edit);
                    let _ = to.shutdown(Shutdown::Both);
                });
                thread::spawn(move || {
                    let to = back.1.try_clone().unwrap();
                    let _ = answer(back.0, back.1, &*hear);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        });
        Self { config, port }
    }

    /// How to connect through it, to the same database.
    pub fn url(&self) -> String {
        let password =
            self.config.get_password().map(|password| format!(":{}", String::from_utf8_lossy(password)));
        format!(
            "postgres://{}{}@127.0.0.1:{}/{}",
            self.config.get_user().unwrap(),
            password.unwrap_or_default(),
            self.port,
            self.config.get_dbname().unwrap()
        )
    }
}

/// Reads what follows a length, which counts itself.
fn body(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length).checked_sub(4).ok_or(io::ErrorKind::InvalidData)?;
    let mut body = vec![0; length as usize];
    from.read_exact(&mut body)?;
    Ok(body)
}

fn write(to: &mut impl Write, kind: Option<u8>, body: &[u8]) -> io::Result<()> {
    if let Some(kind) = kind {
        to.write_all(&[kind])?;
    }
    to.write_all(&(body.len() as u32 + 4).to_be_bytes())?;
    to.write_all(body)
}

/// Passes on what clients send. The first message alone has no kind.
fn send(from: TcpStream, to: TcpStream, edit: &Edit) -> io::Result<()> {
    let (mut from, mut to) = (BufReader::new(from), BufWriter::new(to));
    write(&mut to, None, &body(&mut from)?)?;
    to.flush()?;
    loop {
        let mut kind = [0];
        from.read_exact(&mut kind)?;
        let body = body(&mut from)?;
        // Of a message that prepares: a name, then the statement.
        let begin = match kind[0] {
            b'P' => body.iter().position(|byte| *byte == 0).map(|end| end + 1),
            b'Q' => Some(0),
            _ => None,
        };
        let edited = begin.and_then(|begin| {
            let end = begin + body[begin..].iter().position(|byte| *byte == 0)?;
            let sql = edit(std::str::from_utf8(&body[begin..end]).ok()?)?;
            Some([&body[..begin], sql.as_bytes(), &body[end..]].concat())
        });
        write(&mut to, Some(kind[0]), edited.as_ref().unwrap_or(&body))?;
        if from.buffer().is_empty() {
            to.flush()?;
        }
    }
}

/// Passes on what the server answers.
fn answer(from: TcpStream, to: TcpStream, hear: &Hear) -> io::Result<()> {
    let (mut from, mut to) = (BufReader::new(from), BufWriter::new(to));
    loop {
        let mut kind = [0];
        from.read_exact(&mut kind)?;
        let body = body(&mut from)?;
        if kind[0] == b'N' {
            // Fields of a notice: a letter and a text each. `M` is the message.
            let fields = body.split(|byte| *byte == 0);
            for text in fields.filter_map(|field| field.strip_prefix(b"M")) {
                hear(&String::from_utf8_lossy(text));
            }
        }
        write(&mut to, Some(kind[0]), &body)?;
        if from.buffer().is_empty() {
            to.flush()?;
        }
    }
}
