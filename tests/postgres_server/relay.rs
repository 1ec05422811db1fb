//! A relay between clients and a PostgreSQL server. It reads whole messages, so a test can change the statements that are
//! sent, and read the notices that come back. Nothing in the crate knows of it.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use stationmaster::store::postgres::tokio_postgres::Config;
use stationmaster::store::postgres::tokio_postgres::config::Host;

/// Returns what is sent in place of a statement, or `None` if it is sent as it is.
type Edit = dyn Fn(&str) -> Option<String> + Send + Sync;
/// Receives the text of each notice.
type Hear = dyn Fn(&str) + Send + Sync;

/// Listens until the process ends.
pub struct Relay {
    config: Config,
    port: u16,
    talks: Arc<Talks>,
}

/// What is under way on each connection, in the order in which they were made. `None` if it is closed.
#[derive(Default)]
struct Talks {
    of_each: Mutex<Vec<Option<Talk>>>,
    changed: Condvar,
}

#[derive(Default)]
struct Talk {
    /// How often the server has still to say that it is ready for more.
    owed: u64,
    is_in_transaction: bool,
}

impl Talks {
    fn begin(&self) -> usize {
        let mut of_each = self.of_each.lock().unwrap();
        of_each.push(Some(Talk::default()));
        of_each.len() - 1
    }

    fn change(&self, talk: usize, change: impl FnMut(&mut Talk)) {
        self.of_each.lock().unwrap()[talk].as_mut().into_iter().for_each(change);
        self.changed.notify_all();
    }

    fn end(&self, talk: usize) {
        self.of_each.lock().unwrap()[talk] = None;
        self.changed.notify_all();
    }
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
        let talks = Arc::<Talks>::default();
        let begun = Arc::clone(&talks);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&address).unwrap());
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (edit, hear) = (Arc::clone(&edit), Arc::clone(&hear));
                let (asks, answers, talk) = (Arc::clone(&begun), Arc::clone(&begun), begun.begin());
                thread::spawn(move || {
                    let to = server.try_clone().unwrap();
                    // One side has closed the connection.
                    let _ = send(client, server, &*edit, || asks.change(talk, |talk| talk.owed += 1));
                    let _ = to.shutdown(Shutdown::Both);
                });
                thread::spawn(move || {
                    let to = back.1.try_clone().unwrap();
                    let ready = |is_in_transaction| {
                        answers.change(talk, |talk| {
                            *talk = Talk { owed: talk.owed.saturating_sub(1), is_in_transaction };
                        });
                    };
                    let _ = answer(back.0, back.1, &*hear, ready);
                    answers.end(talk);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        });
        Self { config, port, talks }
    }

    /// Waits until no transaction is under way, and everything was answered. The server may tell what a statement cost only
    /// when its transaction ends, and no one waits for the end of one that reads.
    pub fn until_idle(&self) {
        let mut of_each = self.talks.of_each.lock().unwrap();
        while of_each.iter().flatten().any(|talk| talk.owed > 0 || talk.is_in_transaction) {
            of_each = self.talks.changed.wait(of_each).unwrap();
        }
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

/// Passes on what clients send. The first message alone has no kind. Says when the server is asked for an answer.
fn send(from: TcpStream, to: TcpStream, edit: &Edit, asks: impl Fn()) -> io::Result<()> {
    let (mut from, mut to) = (BufReader::new(from), BufWriter::new(to));
    asks();
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
        // A query, and the end of messages that are answered together.
        if matches!(kind[0], b'Q' | b'S') {
            asks();
        }
        write(&mut to, Some(kind[0]), edited.as_ref().unwrap_or(&body))?;
        if from.buffer().is_empty() {
            to.flush()?;
        }
    }
}

/// Passes on what the server answers. Says when it is ready for more, and whether in a transaction.
fn answer(from: TcpStream, to: TcpStream, hear: &Hear, ready: impl Fn(bool)) -> io::Result<()> {
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
        if kind[0] == b'Z' {
            ready(body != b"I");
        }
        write(&mut to, Some(kind[0]), &body)?;
        if from.buffer().is_empty() {
            to.flush()?;
        }
    }
}
