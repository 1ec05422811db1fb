//! The program that serves the pages alone.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};

use crate::http::{Answer, form, send};
use crate::world::World;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn command(world: &World, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stationmaster"));
    command.env_clear().arg("--db").arg(world.file()).args(["serve", "--listen", "127.0.0.1:0"]).args(more);
    command
}

struct Served {
    child: Child,
    at: SocketAddr,
}

impl Served {
    fn new(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let at = line.trim().trim_start_matches("http://").trim_end_matches('/').parse();
        Self { child, at: at.unwrap_or_else(|_| panic!("{line}")) }
    }

    fn get(&self, headers: &[(&str, &str)]) -> Answer {
        send(self.at, "GET", "/overview", headers, "")
    }

    fn stop(&mut self) -> String {
        self.child.kill().unwrap();
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        self.child.wait().unwrap();
        said
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn refused(mut command: Command) -> Output {
    let done = command.output().unwrap();
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    done
}

#[test]
fn it_serves_this_machine_under_its_own_names_only() {
    let world = World::new();
    let served = Served::new(command(&world, &[]));
    assert!(served.get(&[]).body.contains("load-00"));
    for host in ["localhost:1", "127.0.0.1", "[::1]:9"] {
        assert_eq!(served.get(&[("Host", host)]).status, 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example:80"] {
        let answer = served.get(&[("Host", host)]);
        assert_eq!(answer.status, 421, "{host}");
        assert!(!answer.body.contains("load-00"));
    }
    assert!(served.get(&[]).mark().is_none(), "read-only unless told otherwise");
    let named = Served::new(command(&world, &["--host", "Board.example"]));
    assert_eq!(named.get(&[("Host", "board.example:80")]).status, 200);
}

#[test]
fn with_a_token_it_lets_in_who_has_it() {
    let world = World::new();
    let file = world.folder.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let served = Served::new(command(&world, &["--token-file", file.to_str().unwrap()]));
    let basic = "Basic c3RhdGlvbm1hc3RlcjowMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZg==";
    for known in [basic, &format!("Bearer {TOKEN}")] {
        assert_eq!(served.get(&[("Authorization", known)]).status, 200, "{known}");
    }
    for other in ["", "Bearer", &format!("Bearer {TOKEN}0"), &format!("Bearer {}", &TOKEN[1..]), &basic[..60]]
    {
        let answer = served.get(&[("Authorization", other)]);
        assert_eq!(answer.status, 401, "{other}");
        assert!(answer.header("www-authenticate").unwrap().starts_with("Basic"));
        assert!(!answer.body.contains("load-00"));
    }
    assert_eq!(served.get(&[]).status, 401);
}

#[test]
fn it_listens_to_others_with_a_good_token_only() {
    let world = World::new();
    let anyone = ["--listen", "0.0.0.0:0"];
    let mut none = Command::new(env!("CARGO_BIN_EXE_stationmaster"));
    none.env_clear().arg("--db").arg(world.file()).arg("serve").args(anyone);
    assert!(String::from_utf8_lossy(&refused(none).stderr).contains("needs a token"));
    for bad in ["short", "has a space in it, and is long"] {
        let mut command = command(&world, &[]);
        command.env("STATIONMASTER_TOKEN", bad);
        assert!(String::from_utf8_lossy(&refused(command).stderr).contains("16 or more"));
    }
    let mut with = Command::new(env!("CARGO_BIN_EXE_stationmaster"));
    with.env_clear()
        .env("STATIONMASTER_TOKEN", TOKEN)
        .arg("--db")
        .arg(world.file())
        .arg("serve")
        .args(anyone);
    let served = Served::new(with);
    let at = SocketAddr::from(([127, 0, 0, 1], served.at.port()));
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(send(at, "GET", "/overview", &[("Authorization", &bearer)], "").status, 200);
    assert_eq!(send(at, "GET", "/overview", &[], "").status, 401);
}

#[test]
fn changes_are_reported_on_its_standard_error() {
    let world = World::new();
    let mut served = Served::new(command(&world, &["--allow-changes"]));
    let page = served.get(&[]);
    let cookie = page.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let body = form(&[("verb", "pause"), ("kind", "pool"), ("name", "db"), ("mark", &page.mark().unwrap())]);
    let answer = send(served.at, "POST", "/change", &[("Cookie", &cookie)], &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(served.stop(), "stationmaster: dashboard: pause pool db: paused; 2 leases go on\n");
}
