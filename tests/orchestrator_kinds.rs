//! The orchestrator's own kinds of sensors, each through a poker: what they answer, and that what makes no sense says what to
//! correct.
#![cfg(unix)]

#[path = "../examples/orchestrator/kinds/mod.rs"]
mod kinds;
mod poked;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stationmaster::canonical::PokeContext;
use stationmaster::sensor::{PokeOutcome, Settings};
use stationmaster::service::kinds::Condition;
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{LeaseRef, TaskId, Timestamp};

use crate::kinds::{CommandSucceeds, TcpAccepts, teach};
use crate::poked::{at, secs, unreachable};

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// What the first poke of a sensor of this kind answers, in a tick of this instant.
fn answer(store: &Arc<dyn Store>, kind: &str, context: PokeContext, now: Timestamp) -> PokeOutcome {
    poked::answer(store, kind, context, now, |poker| teach(poker).unwrap())
}

fn asked<C: Condition>(store: &Arc<dyn Store>, condition: &C, now: Timestamp) -> PokeOutcome {
    answer(store, C::KIND, condition.context().unwrap(), now)
}

/// The condition of this context.
fn read<C: Condition>(context: &str) -> C {
    C::read(&PokeContext::from_json(context).unwrap()).unwrap()
}

#[test]
fn a_port_is_open_closed_or_has_no_name() {
    let store = memory();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let wanted = TcpAccepts::new(&address);
    assert_eq!(asked(&store, &wanted, at(0)), PokeOutcome::Landed(Some(address.clone())));
    drop(listener);
    assert_eq!(asked(&store, &wanted, at(0)), PokeOutcome::NotYet);
    let nowhere = asked(&store, &TcpAccepts::new("no-such-host.invalid:1"), at(0));
    assert!(unreachable(&nowhere, "cannot resolve no-such-host.invalid:1"), "{nowhere:?}");
    // No one can connect to a broadcast address. That says nothing about the port.
    let broadcast = asked(&store, &TcpAccepts::new("255.255.255.255:9"), at(0));
    assert!(unreachable(&broadcast, "cannot connect to 255.255.255.255:9"), "{broadcast:?}");
}

#[test]
fn a_command_answers_by_its_exit_code() {
    let (store, dir) = (memory(), tempfile::tempdir().unwrap());
    let shell = |text: &str| CommandSucceeds::shell(text).dir(dir.path()).timeout(secs(60));
    assert_eq!(asked(&store, &shell("test -e ready"), at(0)), PokeOutcome::NotYet);
    fs::write(dir.path().join("ready"), "").unwrap();
    assert_eq!(asked(&store, &shell("test -e ready"), at(0)), PokeOutcome::Landed(None));
    let argv = r#"{"argv": ["test", "$A b", "=", "$A b"], "timeout_s": 60}"#;
    assert_eq!(
        asked(&store, &read::<CommandSucceeds>(argv), at(0)),
        PokeOutcome::Landed(None),
        "no shell reads its arguments"
    );
    let env = shell("test \"$A\" = 'x y'").env("A", "x y");
    assert_eq!(asked(&store, &env, at(0)), PokeOutcome::Landed(None));
    assert_eq!(asked(&store, &shell("read -r line"), at(0)), PokeOutcome::NotYet, "it has no input");
    // Its environment is its own, also where the guard is started.
    let path = shell("test \"$PATH\" = /nowhere").env("PATH", "/nowhere");
    assert_eq!(asked(&store, &path, at(0)), PokeOutcome::Landed(None));
    let same = "test \"$guard $code $1\" = 'mine too '";
    let names = shell(same).env("guard", "mine").env("code", "too");
    assert_eq!(asked(&store, &names, at(0)), PokeOutcome::Landed(None));

    assert_eq!(asked(&store, &shell("exit 3"), at(0)), PokeOutcome::NotYet);
    let hopeless = read::<CommandSucceeds>(r#"{"shell": "exit 3", "fails_on": [2, 3], "timeout_s": 60}"#);
    let hopeless = asked(&store, &hopeless, at(0));
    assert_eq!(hopeless, PokeOutcome::Failed("the command exited with 3".into()));
    let missing = asked(&store, &read::<CommandSucceeds>(r#"{"argv": ["no-such-program"]}"#), at(0));
    assert!(unreachable(&missing, "exit code 127"), "{missing:?}");
    let killed = asked(&store, &shell("kill -KILL $$"), at(0));
    assert!(unreachable(&killed, "signal 9"), "{killed:?}");
    let nowhere = asked(&store, &shell("true").dir(dir.path().join("nowhere")), at(0));
    assert!(unreachable(&nowhere, "no directory"), "{nowhere:?}");
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

/// Nothing is written to this file any more, soon after what wrote to it was killed.
fn still(beats: &Path) {
    let began = Instant::now();
    loop {
        let seen = lines(beats);
        std::thread::sleep(Duration::from_millis(400));
        if lines(beats) == seen {
            return;
        }
        assert!(began.elapsed() < secs(10), "a command lives on");
    }
}

#[test]
fn an_overlong_command_is_killed_with_all_its_children() {
    let (store, dir) = (memory(), tempfile::tempdir().unwrap());
    let beats = dir.path().join("beats");
    // Children in the background and one in the foreground, all of which beat for a minute.
    let beat = "(n=0; while test $n -lt 1200; do n=$((n+1)); echo x >> beats; sleep 0.05; done)";
    let command = CommandSucceeds::shell(format!("trap '' TERM; {beat} & {beat} & {beat}")).dir(dir.path());
    let began = Instant::now();
    let answer = asked(&store, &command.timeout(secs(3)), at(0));
    assert!(unreachable(&answer, "longer than its timeout of 3 s"), "{answer:?}");
    assert!(began.elapsed() < secs(30));
    assert!(lines(&beats) > 0);
    still(&beats);

    // What a command leaves behind when it ends is asked to end.
    let quick = CommandSucceeds::shell(format!("{beat} & sleep 0.2")).dir(dir.path()).timeout(secs(60));
    assert_eq!(asked(&store, &quick, at(0)), PokeOutcome::Landed(None));
    still(&beats);
}

/// The environment variable that makes this test program the poker's process that is killed.
const POKES_IN: &str = "STATIONMASTER_TEST_POKES_IN";

#[test]
fn a_poker_that_is_killed_takes_its_commands_with_it() {
    let beat = "n=0; while test $n -lt 1200; do n=$((n+1)); echo x >> beats; sleep 0.05; done";
    if let Ok(dir) = std::env::var(POKES_IN) {
        asked(&memory(), &CommandSucceeds::shell(beat).dir(dir).timeout(secs(60)), at(0));
        unreachable!("it was killed");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut process = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_poker_that_is_killed_takes_its_commands_with_it"])
        .env(POKES_IN, dir.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let (beats, began) = (dir.path().join("beats"), Instant::now());
    while lines(&beats) < 3 {
        assert!(began.elapsed() < secs(60), "the command never began");
        std::thread::sleep(Duration::from_millis(10));
    }
    process.kill().unwrap();
    process.wait().unwrap();
    still(&beats);
}

/// The environment variable that makes this test program a host to which the system gives orphans.
#[cfg(target_os = "linux")]
const ADOPTS: &str = "STATIONMASTER_TEST_ADOPTS";

/// The children of this process that have ended and were not waited for.
#[cfg(target_os = "linux")]
fn zombies() -> Vec<u32> {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let zombie = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let (_, stat) = stat.rsplit_once(')').unwrap_or_default();
        let mut words = stat.split_whitespace();
        words.next() == Some("Z") && words.next() == Some(&std::process::id().to_string())
    };
    processes.filter_map(|name| name.parse().ok()).filter(zombie).collect()
}

#[test]
#[cfg(target_os = "linux")]
fn a_host_to_which_the_system_gives_orphans_waits_for_those_of_its_commands() {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    if std::env::var(ADOPTS).is_err() {
        // In a process of its own: what it adopts, and which children it has, is a matter of the whole process.
        let name = "a_host_to_which_the_system_gives_orphans_waits_for_those_of_its_commands";
        let mut process = Command::new(std::env::current_exe().unwrap());
        let output = process.args(["--exact", name]).env(ADOPTS, "").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    // As the first process of a container does without being asked.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    // The host's children, one in a group of its own, end meanwhile. Whatever started them waits for them.
    let child = |command: &mut Command| command.args(["-c", "exit 7"]).spawn().unwrap();
    let mut hosts = [child(&mut Command::new("/bin/sh")), child(Command::new("/bin/sh").process_group(0))];
    let (store, dir) = (memory(), tempfile::tempdir().unwrap());
    let shell = |text: &str| CommandSucceeds::shell(text).dir(dir.path()).timeout(secs(60));
    for _ in 0..3 {
        let overlong = shell("(sleep 100; true) & sleep 100; true").timeout(Duration::from_millis(200));
        assert!(unreachable(&asked(&store, &overlong, at(0)), "longer than its timeout"));
        assert_eq!(asked(&store, &shell("(sleep 100; true) & true"), at(0)), PokeOutcome::Landed(None));
        // This one ignores signals, and ends when the poke is long over.
        let stubborn = shell("trap '' TERM; (sleep 0.3; echo x >> ended) & true");
        assert_eq!(asked(&store, &stubborn, at(0)), PokeOutcome::Landed(None));
    }
    let began = Instant::now();
    let ours = || zombies().into_iter().filter(|pid| !hosts.iter().any(|host| host.id() == *pid)).count();
    while lines(&dir.path().join("ended")) < 3 || ours() > 0 {
        assert!(began.elapsed() < secs(30), "{} processes were not waited for", ours());
        assert_eq!(asked(&store, &shell("true"), at(0)), PokeOutcome::Landed(None));
    }
    assert!(hosts.iter_mut().all(|host| host.wait().unwrap().code() == Some(7)));
}

#[test]
fn contexts_that_make_no_sense_fail_and_say_what_to_correct() {
    let store = memory();
    for (kind, context, part) in [
        ("command_succeeds", "{}", "either an argv or a shell text"),
        ("command_succeeds", r#"{"argv": [""]}"#, "either an argv or a shell text"),
        ("command_succeeds", r#"{"argv": ["a"], "shell": "b"}"#, "either an argv or a shell text"),
        ("command_succeeds", r#"{"argv": ["a\u0000"]}"#, "NUL"),
        ("command_succeeds", r#"{"shell": "a", "env": {"A=B": "c"}}"#, "\"A=B\" cannot be a variable"),
        ("command_succeeds", r#"{"argv": "ls"}"#, "expected a sequence"),
        ("tcp_accepts", r#"{"address": "localhost"}"#, "no host:port"),
        ("tcp_accepts", r#"{"address": ":80"}"#, "no host:port"),
        ("tcp_accepts", r#"{"address": "localhost:0"}"#, "no host:port"),
        ("tcp_accepts", r#"{"address": "localhost:99999"}"#, "no host:port"),
    ] {
        let context = PokeContext::from_json(context).unwrap();
        let PokeOutcome::Failed(why) = answer(&store, kind, context.clone(), at(0)) else {
            panic!("{kind} took {context}");
        };
        assert!(
            why.contains(part) && why.contains(&format!("this {kind} sensor is wrong")),
            "{context}: {why}"
        );
        assert!(why.contains("register it with, say, {"), "{why}");
    }
}

#[test]
fn equal_conditions_share_a_context_and_are_read_back() {
    fn survives<C: Condition + PartialEq + std::fmt::Debug>(condition: &C) {
        assert_eq!(C::read(&condition.context().unwrap()).as_ref(), Ok(condition));
        let settings = Settings::new(secs(1), secs(1)).unwrap();
        let sensor = condition.sensor(LeaseRef::new(TaskId(1), 1), settings).unwrap();
        assert_eq!((sensor.kind.as_str(), sensor.context), (C::KIND, condition.context().unwrap()));
    }
    survives::<CommandSucceeds>(&read(
        r#"{"argv": ["a", "b"], "dir": "/", "env": {"A": "b"}, "timeout_s": 9, "fails_on": [1]}"#,
    ));
    survives(&CommandSucceeds::shell("true"));
    survives(&TcpAccepts::new("a:1").connect_timeout(secs(1)));
    let context = read::<CommandSucceeds>(r#"{"argv": ["grep", "-q", "done"], "dir": "/data"}"#).context();
    assert_eq!(context.unwrap().as_str(), r#"{"argv":["grep","-q","done"],"dir":"/data","timeout_s":5}"#);
    let context = TcpAccepts::new("db.internal:5432").context();
    assert_eq!(context.unwrap().as_str(), r#"{"address":"db.internal:5432","connect_timeout_s":3}"#);
}
