//! A PgBouncer of a test's own.

use std::fs;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stationmaster::store::postgres::tokio_postgres::Config;
use stationmaster::store::postgres::tokio_postgres::config::Host;
use tempfile::TempDir;

use super::{folder_of, free_port, other_user, skipped};

/// For how long a client of the pooler has a server connection to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolMode {
    Session,
    Transaction,
}

/// A PgBouncer that ends when it is dropped.
pub struct Pooler {
    process: Child,
    port: u16,
    config: Config,
    _folder: TempDir,
}

impl Pooler {
    /// Puts one in front of this server, with at most this many connections to it. Returns `None`, and says
    /// so loudly, if PgBouncer is not on this machine.
    pub fn start(mode: PoolMode, server: &str, connections: usize) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<_> = std::env::split_paths(&path).collect();
        folders.push("/usr/sbin".into());
        let programs = folders.into_iter().map(|folder| folder.join("pgbouncer"));
        let Some(program) = programs.into_iter().find(|program| program.exists()) else {
            skipped("no `pgbouncer` was found. Install it (Debian: apt-get install pgbouncer).");
            return None;
        };
        let config: Config = server.parse().unwrap();
        let (user, port) = (other_user(), free_port());
        let folder = folder_of(user);
        let ini = folder.path().join("pgbouncer.ini");
        write_ini(&ini, mode, &config, port, connections);
        let mut command = Command::new(program);
        command
            .arg("--quiet")
            .arg(&ini)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some((user, group)) = user {
            command.uid(user).gid(group);
        }
        let pooler = Self { process: command.spawn().unwrap(), port, config, _folder: folder };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "pgbouncer does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(pooler)
    }

    /// The same database, by way of the pooler.
    pub fn url(&self) -> String {
        let (user, database) = (self.config.get_user().unwrap(), self.config.get_dbname().unwrap());
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write_ini(ini: &Path, mode: PoolMode, server: &Config, port: u16, connections: usize) {
    let Some(Host::Tcp(host)) = server.get_hosts().first() else {
        panic!("a server that is named by its host")
    };
    let server_port = server.get_ports().first().copied().unwrap_or(5432);
    let (users, user) = (ini.with_file_name("users"), server.get_user().unwrap());
    fs::write(&users, format!("\"{user}\" \"\"\n")).unwrap();
    let mode = match mode {
        PoolMode::Session => "session",
        PoolMode::Transaction => "transaction",
    };
    let text = format!(
        "[databases]\n* = host={host} port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
         unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = {mode}\ndefault_pool_size = {connections}\n",
        users.display()
    );
    fs::write(ini, text).unwrap();
}
