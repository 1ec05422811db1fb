//! A PostgreSQL server of the benchmark's own, with settings of its own, in a folder that `run.sh` removes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use postgres::{Client, NoTls};

use crate::Outcome;
use crate::bars::median;

/// A flush that takes less hides what commits cost.
const SHORT_FLUSH: f64 = 100e-6;

const SETTINGS: [&str; 10] = [
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "autovacuum=on",
    "shared_buffers=1GB",
    "max_wal_size=8GB",
    "checkpoint_timeout=30min",
    "max_connections=400",
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
];

pub struct Server {
    folder: PathBuf,
    programs: PathBuf,
    /// Root cannot run a server: the numbers of the user that does.
    user: Option<(u32, u32)>,
    port: u16,
    /// How long a flush took before the server began, in seconds.
    first_flush: f64,
}

impl Server {
    pub fn start(folder: &Path) -> Outcome<Self> {
        let programs = programs().ok_or(
            "no initdb was found: install PostgreSQL's server (Debian: apt-get install postgresql) or put its \
             bin folder on the PATH",
        )?;
        let user = other_user();
        if let Some((user, group)) = user {
            chown(folder, Some(user), Some(group))?;
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut server = Self { folder: folder.to_owned(), programs, user, port, first_flush: 0.0 };
        server.run("initdb", &["--auth=trust", "--username=postgres", "--encoding=UTF8"])?;
        server.first_flush = server.flush()?;
        let mut settings: Vec<String> = SETTINGS.iter().map(|setting| (*setting).to_owned()).collect();
        settings.push(format!("port={port}"));
        if server.hides_commits() {
            settings.extend(["commit_delay=200".to_owned(), "commit_siblings=0".to_owned()]);
        }
        let options: Vec<String> = settings.iter().map(|setting| format!("-c {setting}")).collect();
        let log = folder.join("log").display().to_string();
        server.run("pg_ctl", &["start", "--wait", "--options", &options.join(" "), "--log", &log])?;
        Ok(server)
    }

    /// Returns how long the data's disk takes to make 8 KiB durable, in seconds: the median of 100.
    pub fn flush(&self) -> Outcome<f64> {
        let path = self.folder.join("flush");
        let mut file = File::create(&path)?;
        file.write_all(&[0; 16 << 20])?;
        file.sync_all()?;
        let mut times = Vec::new();
        for page in 0..100 {
            let began = Instant::now();
            std::os::unix::fs::FileExt::write_all_at(&file, &[1; 8192], page * 8192)?;
            file.sync_data()?;
            times.push(began.elapsed().as_secs_f64());
        }
        fs::remove_file(&path)?;
        Ok(median(&times))
    }

    /// Returns whether the disk flushes too fast, so that commits are delayed instead.
    fn hides_commits(&self) -> bool {
        self.first_flush < SHORT_FLUSH
    }

    /// Returns a line about the server and its disk.
    pub fn describe(&self) -> Outcome<String> {
        let version: String = self.admin("postgres")?.query_one("SHOW server_version", &[])?.get(0);
        let (first, now) = (self.first_flush * 1e3, self.flush()? * 1e3);
        let how = match self.hides_commits() {
            true => {
                " That hides what commits cost: commit_delay = 200 and commit_siblings = 0 stand in for 0.2 ms."
            }
            false => "",
        };
        Ok(format!(
            "PostgreSQL {version}. A flush took {first:.3} ms at first and takes {now:.3} ms now.{how}"
        ))
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    pub fn admin(&self, database: &str) -> Outcome<Client> {
        Ok(Client::connect(&self.url(database), NoTls)?)
    }

    /// Makes a database as a copy of another one, in place of one of that name.
    pub fn copy(&self, database: &str, from: &str) -> Outcome<()> {
        let mut admin = self.admin("postgres")?;
        admin.batch_execute(&format!("DROP DATABASE IF EXISTS {database} WITH (FORCE)"))?;
        admin.batch_execute(&format!("CREATE DATABASE {database} TEMPLATE {from} STRATEGY file_copy"))?;
        Ok(())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Outcome<()> {
        let mut command = Command::new(self.programs.join(program));
        command.arg("--pgdata").arg(self.folder.join("data")).args(arguments);
        command.current_dir(&self.folder).stdout(Stdio::null());
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        let status = command.status()?;
        if !status.success() {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            return Err(format!("{program} {arguments:?}: {status}\n{log}").into());
        }
        Ok(())
    }
}

/// Returns the folder of the server's programs: on the path, where `pg_config` says, or where packages put it.
fn programs() -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    if let Ok(found) = Command::new("pg_config").arg("--bindir").output() {
        folders.push(String::from_utf8_lossy(&found.stdout).trim().into());
    }
    for (versions, within) in
        [("/usr/lib/postgresql", "bin"), ("/usr/local/opt", "bin"), ("/opt/homebrew/opt", "bin")]
    {
        let entries = fs::read_dir(versions).into_iter().flatten().flatten();
        folders.extend(entries.map(|entry| entry.path().join(within)));
    }
    let has_all = |folder: &PathBuf| ["initdb", "pg_ctl"].iter().all(|name| folder.join(name).exists());
    folders.into_iter().find(has_all)
}

fn other_user() -> Option<(u32, u32)> {
    let number = |flag: &str, user: &[&str]| -> Option<u32> {
        let found = Command::new("id").arg(flag).args(user).output().ok()?;
        String::from_utf8_lossy(&found.stdout).trim().parse().ok()
    };
    if number("-u", &[]) != Some(0) {
        return None;
    }
    number("-u", &["postgres"]).zip(number("-g", &["postgres"]))
}
