//! A PostgreSQL server as tests see it: plain connections to any, servers of a test's own that may crash and fail over, and a
//! pooler in front of one.

pub mod host;
pub mod pooler;
pub mod relay;

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stationmaster::store::postgres::tokio_postgres::{Client, NoTls, SimpleQueryMessage, connect};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// The same URL with one more parameter.
pub fn with(url: &str, parameter: &str) -> String {
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}{parameter}")
}

/// A plain connection, for what a test asks the server itself.
pub struct Plain {
    runtime: Runtime,
    client: Client,
}

impl Plain {
    pub fn connect(url: &str) -> Self {
        Self::try_connect(url).unwrap_or_else(|error| panic!("no server answers at {url}: {error}"))
    }

    pub fn try_connect(url: &str) -> Result<Self, Box<dyn Error>> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (client, connection) = runtime.block_on(connect(url, NoTls))?;
        runtime.spawn(connection);
        Ok(Self { runtime, client })
    }

    /// Runs statements; the answer is the rows of all of them, as text.
    pub fn ask(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.try_ask(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    pub fn try_ask(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Box<dyn Error>> {
        let messages = self.runtime.block_on(self.client.simple_query(sql))?;
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    /// The first column of the first row, as a number.
    pub fn number(&self, sql: &str) -> i64 {
        let rows = self.ask(sql);
        rows[0][0].as_deref().expect("a value").parse().expect("a number")
    }
}

/// The programs that tests run.
const PROGRAMS: [&str; 3] = ["initdb", "pg_ctl", "pg_basebackup"];

/// Returns the folder of these programs: on the path, where `pg_config` says, or where packages put it.
fn binaries() -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    if let Ok(answer) = Command::new("pg_config").arg("--bindir").output() {
        folders.push(String::from_utf8_lossy(&answer.stdout).trim().into());
    }
    for (versions, within) in
        [("/usr/lib/postgresql", "bin"), ("/usr/local/opt", "bin"), ("/opt/homebrew/opt", "bin")]
    {
        let entries = std::fs::read_dir(versions).into_iter().flatten().flatten();
        folders.extend(entries.map(|entry| entry.path().join(within)));
    }
    folders.into_iter().find(|folder| PROGRAMS.iter().all(|program| folder.join(program).exists()))
}

/// Says loudly that a test was skipped. Not by `eprintln!`, which a test that passes keeps to itself.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "\nSKIPPED, NOT PASSED: {why}");
}

/// The numbers of the user that runs servers, if the test cannot: PostgreSQL and PgBouncer refuse to run as root.
fn other_user() -> Option<(u32, u32)> {
    let number = |flag: &str, user: &[&str]| -> Option<u32> {
        let answer = Command::new("id").arg(flag).args(user).output().ok()?;
        String::from_utf8_lossy(&answer.stdout).trim().parse().ok()
    };
    let is_root = number("-u", &[]) == Some(0);
    is_root.then(|| number("-u", &["postgres"]).zip(number("-g", &["postgres"]))).flatten()
}

/// A temporary folder that this user, or else the one that runs the test, may write to.
fn folder_of(user: Option<(u32, u32)>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    if let Some((user, group)) = user {
        std::os::unix::fs::chown(folder.path(), Some(user), Some(group)).unwrap();
    }
    folder
}

/// A port on which nothing listens.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server with data of its own in a temporary folder. Its commits are flushed to the disk.
pub struct OwnServer {
    folder: TempDir,
    binaries: PathBuf,
    user: Option<(u32, u32)>,
    port: u16,
}

impl OwnServer {
    /// None, and a loud word about it, if PostgreSQL's programs are not on this machine.
    pub fn start() -> Option<Self> {
        let Some(binaries) = binaries() else {
            skipped(
                "no `initdb` was found, so no server of the test's own can be started. Install PostgreSQL's server \
                 (Debian: apt-get install postgresql) or put its bin folder on the PATH.",
            );
            return None;
        };
        let user = other_user();
        let server = Self { folder: folder_of(user), binaries, user, port: free_port() };
        server.run("initdb", &["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync"]);
        server.launch();
        Some(server)
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// What the server wrote down, such as the statements of a deadlock.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Ends the server as a loss of its machine would: nothing is written any more. Then starts it, and it recovers.
    pub fn crash(&mut self) {
        self.halt();
        self.launch();
    }

    /// Ends the server as a loss of its machine would, and leaves it down until it is launched.
    pub fn halt(&self) {
        self.run("pg_ctl", &["stop", "--mode=immediate", "--wait"]);
    }

    /// A standby of this server, which follows it and can be read.
    pub fn standby(&self) -> Self {
        let (binaries, user) = (self.binaries.clone(), self.user);
        let standby = Self { folder: folder_of(user), binaries, user, port: free_port() };
        standby.follow(self);
        standby
    }

    /// Makes a standby the primary. Its connections go on.
    pub fn promote(&self) {
        self.run("pg_ctl", &["promote", "--wait"]);
    }

    /// Ends the server in order; what it committed has reached its standbys.
    pub fn stop(&self) {
        self.run("pg_ctl", &["stop", "--mode=fast", "--wait"]);
    }

    /// A server that was stopped comes back on its old address, as a standby of another one.
    pub fn come_back_as_standby_of(&self, primary: &Self) {
        std::fs::remove_dir_all(self.folder.path().join("data")).unwrap();
        self.follow(primary);
    }

    fn follow(&self, primary: &Self) {
        let from = format!("host=127.0.0.1 port={} user=postgres", primary.port);
        self.run("pg_basebackup", &["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "-d", &from]);
        self.launch();
    }

    pub fn launch(&self) {
        let options = format!(
            "-c listen_addresses=127.0.0.1 -c port={} -c unix_socket_directories='' -c fsync=on \
             -c max_prepared_transactions=64",
            self.port
        );
        let log = self.folder.path().join("log");
        self.run("pg_ctl", &["start", "--wait", "--options", &options, "--log", log.to_str().unwrap()]);
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let data = self.folder.path().join("data");
        let status = self.command(program, &data, arguments).status().unwrap();
        if !status.success() {
            panic!("{program} {arguments:?}: {status}\n{}", self.log());
        }
    }

    fn command(&self, program: &str, data: &Path, arguments: &[&str]) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(self.binaries.join(program));
        command
            .arg("--pgdata")
            .arg(data)
            .args(arguments)
            .stdout(Stdio::null())
            .current_dir(self.folder.path());
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let data = self.folder.path().join("data");
        // It may have been stopped, and says so.
        let mut stop = self.command("pg_ctl", &data, &["stop", "--mode=immediate", "--wait"]);
        let _ = stop.stderr(Stdio::null()).status();
    }
}
