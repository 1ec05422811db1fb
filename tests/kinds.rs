//! The built-in kinds, each through a poker: what they answer, and that what makes no sense says what to correct.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use stationmaster::canonical::PokeContext;
use stationmaster::id::SensorKind;
use stationmaster::ops::{Finish, Mark, Outcome};
use stationmaster::run::{RunKey, RunRecord, RunStatus};
use stationmaster::sensor::{NewSensor, Poked, SensorRecord, Settings};
use stationmaster::service::kinds::{
    CommandSucceeds, Condition, FileExists, RunEnded, TaskEnded, TcpAccepts, TimeReached, builtin,
};
use stationmaster::service::{Admitter, AdmitterOptions, PokeLog, Poker, PokerOptions, Service};
use stationmaster::store::{MemoryStore, Store, StoreExt};
use stationmaster::testing::raw;
use stationmaster::time::from_micros;
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskNo, TaskState, time};

fn at(seconds: i64) -> DateTime<Utc> {
    from_micros(seconds * 1_000_000)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[derive(Clone, Default)]
struct Answers(Arc<Mutex<Vec<Poked>>>);

impl PokeLog for Answers {
    fn poked(&self, _: &SensorRecord, _: DateTime<Utc>, answer: &Poked) {
        self.0.lock().unwrap().push(answer.clone());
    }
}

/// What the first poke of a sensor of this kind answers, in a tick of this instant.
fn answer(store: &Arc<dyn Store>, kind: &str, context: PokeContext, now: DateTime<Utc>) -> Poked {
    let name = format!("t{}", store.read(|tx| Ok(raw(tx).last_sensor_change()?)).unwrap());
    let key = TaskKey::new("ns", "w", "sensors", &name).unwrap();
    store.write(|tx| tx.enqueue(now, &[NewTask::new(key.clone())])).unwrap();
    let mut admitter =
        Admitter::new(store.clone(), "h".try_into().unwrap(), AdmitterOptions::default()).unwrap();
    let granted = admitter.tick(now).unwrap().granted;
    let lease = granted.iter().find(|task| task.key == key).unwrap().lease_ref();
    let settings = Settings::new(secs(1), secs(1_000_000)).unwrap();
    let sensor = NewSensor::new(lease, SensorKind::new(kind).unwrap(), context, settings);
    store
        .write(|tx| {
            tx.start(now, &[lease])?;
            tx.register(now, std::slice::from_ref(&sensor))
        })
        .unwrap();
    let log = Answers::default();
    let poker = Poker::new(store.clone(), "p".try_into().unwrap(), PokerOptions::default()).unwrap();
    let mut poker = builtin(poker, store.clone()).unwrap().log(log.clone());
    let began = Instant::now();
    while log.0.lock().unwrap().is_empty() {
        assert!(began.elapsed() < secs(60), "the poke never answered");
        poker.tick(now).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    poker.leave().unwrap();
    // Out of the way of the next.
    store.write(|tx| tx.mark(now, &[Mark::new(key.clone(), TaskState::Skipped, "asked")])).unwrap();
    log.0.lock().unwrap().remove(0)
}

fn asked<C: Condition>(store: &Arc<dyn Store>, condition: &C, now: DateTime<Utc>) -> Poked {
    answer(store, C::KIND, condition.context().unwrap(), now)
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

fn unreachable(answer: &Poked, part: &str) -> bool {
    matches!(answer, Poked::Unreachable(why) if why.contains(part))
}

#[test]
fn an_instant_is_reached_to_the_microsecond() {
    let store = memory();
    let wanted = TimeReached::new(from_micros(5_000_001));
    assert_eq!(asked(&store, &wanted, at(5)), Poked::NotYet);
    assert_eq!(asked(&store, &wanted, from_micros(5_000_001)), Poked::Landed(None));
}

#[test]
fn a_file_is_found_by_path_when_it_is_old_enough() {
    let (store, dir) = (memory(), tempfile::tempdir().unwrap());
    let now = Utc::now();
    // Characters that mean something in a pattern mean nothing in a path.
    let path = dir.path().join("in [1]*.csv");
    assert_eq!(asked(&store, &FileExists::at(&path), now), Poked::NotYet);
    fs::write(&path, "12345").unwrap();
    let landed = Poked::Landed(Some(format!("{{\"path\":\"{}\",\"bytes\":5}}", path.display())));
    assert_eq!(asked(&store, &FileExists::at(&path), now), landed);

    let written = DateTime::from(fs::metadata(&path).unwrap().modified().unwrap());
    let settled = FileExists::at(&path).min_age(secs(60));
    assert_eq!(asked(&store, &settled, time::add(written, secs(59))), Poked::NotYet);
    assert_eq!(asked(&store, &settled, time::add(written, secs(61))), landed);

    // Below a file there is nothing, and nothing can come: that is for a person to see.
    let below = asked(&store, &FileExists::at(path.join("below")), now);
    assert!(unreachable(&below, "below"), "{below:?}");
    assert!(matches!(asked(&store, &FileExists::at(dir.path()), now), Poked::Landed(_)), "a directory");
}

#[test]
fn a_file_is_found_by_pattern_the_first_that_is_old_enough() {
    let (store, dir) = (memory(), tempfile::tempdir().unwrap());
    let now = Utc::now();
    let place = dir.path().to_str().unwrap();
    let glob = FileExists::matching(format!("{place}/*/part-[0-9].csv"));
    fs::create_dir_all(dir.path().join("day")).unwrap();
    for other in ["day/part-x.csv", "part-1.csv", "day/.part-1.csv"] {
        fs::write(dir.path().join(other), "").unwrap();
    }
    assert_eq!(asked(&store, &glob, now), Poked::NotYet);
    let hidden = FileExists::matching(format!("{place}/day/*1.csv"));
    assert_eq!(asked(&store, &hidden, now), Poked::NotYet, "a file of a writer at work");
    for name in ["day/part-1.csv", "day/part-2.csv"] {
        fs::write(dir.path().join(name), "ab").unwrap();
    }
    let young = fs::File::options().write(true).open(dir.path().join("day/part-1.csv")).unwrap();
    young.set_modified(std::time::SystemTime::now() + secs(3600)).unwrap();
    let landed =
        |answer: &Poked, name: &str| matches!(answer, Poked::Landed(Some(value)) if value.contains(name));
    assert!(landed(&asked(&store, &glob, now), "part-1.csv"));
    let old = asked(&store, &glob.clone().min_age(secs(60)), time::add(now, secs(120)));
    assert!(landed(&old, "part-2.csv"), "{old:?}");
    let deep = asked(&store, &FileExists::matching(format!("{place}/**/part-2.csv")), now);
    assert!(landed(&deep, "part-2.csv"), "{deep:?}");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("nowhere", dir.path().join("day/broken.csv")).unwrap();
        let broken = asked(&store, &FileExists::matching(format!("{place}/day/broken.*")), now);
        assert_eq!(broken, Poked::NotYet);
    }
}

#[test]
fn a_port_is_open_closed_or_has_no_name() {
    let store = memory();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let wanted = TcpAccepts::new(&address);
    assert_eq!(asked(&store, &wanted, at(0)), Poked::Landed(Some(address.clone())));
    drop(listener);
    assert_eq!(asked(&store, &wanted, at(0)), Poked::NotYet);
    let nowhere = asked(&store, &TcpAccepts::new("no-such-host.invalid:1"), at(0));
    assert!(unreachable(&nowhere, "cannot resolve no-such-host.invalid:1"), "{nowhere:?}");
    // Nobody can connect to a broadcast address: that says nothing about the port.
    let broadcast = asked(&store, &TcpAccepts::new("255.255.255.255:9"), at(0));
    assert!(unreachable(&broadcast, "cannot connect to 255.255.255.255:9"), "{broadcast:?}");
}

#[test]
#[cfg(unix)]
fn a_command_answers_by_its_exit_code() {
    let (store, dir) = (memory(), tempfile::tempdir().unwrap());
    let shell = |text: &str| CommandSucceeds::shell(text).dir(dir.path()).timeout(secs(60));
    assert_eq!(asked(&store, &shell("test -e ready"), at(0)), Poked::NotYet);
    fs::write(dir.path().join("ready"), "").unwrap();
    assert_eq!(asked(&store, &shell("test -e ready"), at(0)), Poked::Landed(None));
    let argv = CommandSucceeds::argv(["test", "$A b", "=", "$A b"]).timeout(secs(60));
    assert_eq!(asked(&store, &argv, at(0)), Poked::Landed(None), "no shell reads its arguments");
    let env = shell("test \"$A\" = 'x y'").env("A", "x y");
    assert_eq!(asked(&store, &env, at(0)), Poked::Landed(None));
    assert_eq!(asked(&store, &shell("read -r line"), at(0)), Poked::NotYet, "it has no input");
    // Its environment is its own, also where the guard is started.
    let path = shell("test \"$PATH\" = /nowhere").env("PATH", "/nowhere");
    assert_eq!(asked(&store, &path, at(0)), Poked::Landed(None));
    let same = "test \"$guard $code $1\" = 'mine too '";
    let names = shell(same).env("guard", "mine").env("code", "too");
    assert_eq!(asked(&store, &names, at(0)), Poked::Landed(None));

    assert_eq!(asked(&store, &shell("exit 3"), at(0)), Poked::NotYet);
    let hopeless = asked(&store, &shell("exit 3").fails_on([2, 3]), at(0));
    assert_eq!(hopeless, Poked::Failed("the command exited with 3".into()));
    let missing = asked(&store, &CommandSucceeds::argv(["no-such-program"]), at(0));
    assert!(unreachable(&missing, "exit code 127"), "{missing:?}");
    let killed = asked(&store, &shell("kill -KILL $$"), at(0));
    assert!(unreachable(&killed, "signal 9"), "{killed:?}");
    let nowhere = asked(&store, &shell("true").dir(dir.path().join("nowhere")), at(0));
    assert!(unreachable(&nowhere, "no directory"), "{nowhere:?}");
}

#[cfg(unix)]
fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
#[cfg(unix)]
fn an_overlong_command_is_killed_with_all_its_children() {
    let (store, dir) = (memory(), tempfile::tempdir().unwrap());
    let beats = dir.path().join("beats");
    // Children in the background and one in the foreground, all of which beat for a minute.
    let beat = "(n=0; while test $n -lt 1200; do n=$((n+1)); echo x >> beats; sleep 0.05; done)";
    let command = CommandSucceeds::shell(format!("trap '' TERM; {beat} & {beat} & {beat}")).dir(dir.path());
    let began = Instant::now();
    let answer = asked(&store, &command.timeout(Duration::from_millis(500)), at(0));
    assert!(unreachable(&answer, "longer than its timeout of 0.5 s"), "{answer:?}");
    assert!(began.elapsed() < secs(30));
    let seen = lines(&beats);
    assert!(seen > 0);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(lines(&beats), seen, "a child lives on");

    // What a command leaves behind when it ends is asked to end.
    let quick = CommandSucceeds::shell(format!("{beat} & sleep 0.2")).dir(dir.path()).timeout(secs(60));
    assert_eq!(asked(&store, &quick, at(0)), Poked::Landed(None));
    std::thread::sleep(Duration::from_millis(200));
    let seen = lines(&beats);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(lines(&beats), seen, "a child lives on");
}

/// The environment variable that makes this test program the poker's process that is killed.
#[cfg(unix)]
const POKES_IN: &str = "STATIONMASTER_TEST_POKES_IN";

#[test]
#[cfg(unix)]
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
    std::thread::sleep(Duration::from_millis(200));
    let seen = lines(&beats);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(lines(&beats), seen, "the command lives on");
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
    // Children of the host's, one in a group of its own, end meanwhile: whoever started them waits for them.
    let child = |command: &mut Command| command.args(["-c", "exit 7"]).spawn().unwrap();
    let mut hosts = [child(&mut Command::new("/bin/sh")), child(Command::new("/bin/sh").process_group(0))];
    let (store, dir) = (memory(), tempfile::tempdir().unwrap());
    let shell = |text: &str| CommandSucceeds::shell(text).dir(dir.path()).timeout(secs(60));
    for _ in 0..3 {
        let overlong = shell("(sleep 100; true) & sleep 100; true").timeout(Duration::from_millis(200));
        assert!(unreachable(&asked(&store, &overlong, at(0)), "longer than its timeout"));
        assert_eq!(asked(&store, &shell("(sleep 100; true) & true"), at(0)), Poked::Landed(None));
        // This one heeds nobody, and ends when the poke is long over.
        let stubborn = shell("trap '' TERM; (sleep 0.3; echo x >> ended) & true");
        assert_eq!(asked(&store, &stubborn, at(0)), Poked::Landed(None));
    }
    let began = Instant::now();
    let ours = || zombies().into_iter().filter(|pid| !hosts.iter().any(|host| host.id() == *pid)).count();
    while lines(&dir.path().join("ended")) < 3 || ours() > 0 {
        assert!(began.elapsed() < secs(30), "{} processes were not waited for", ours());
        assert_eq!(asked(&store, &shell("true"), at(0)), Poked::Landed(None));
    }
    assert!(hosts.iter_mut().all(|host| host.wait().unwrap().code() == Some(7)));
}

#[test]
fn another_task_is_waited_for_in_the_states_that_were_asked_for() {
    let store = memory();
    let key = TaskKey::new("ns", "w", "r", "upstream").unwrap();
    let wanted = TaskEnded::new(key.clone());
    assert_eq!(asked(&store, &wanted, at(0)), Poked::NotYet, "it is not there");
    store.write(|tx| tx.enqueue(at(0), &[NewTask::new(key.clone())])).unwrap();
    let admitted = wanted.clone().lands_on([TaskState::Queued]);
    assert_eq!(asked(&store, &admitted, at(0)), Poked::Landed(None));
    let end =
        |to: TaskState| store.write(|tx| tx.mark(at(1), &[Mark::new(key.clone(), to, "why not")])).unwrap();
    end(TaskState::Failed);
    let failed = Poked::Failed("task ns/w/r/upstream is failed: why not".into());
    assert_eq!(asked(&store, &wanted, at(1)), failed);
    let patient = wanted.clone().fails_on([]);
    assert_eq!(asked(&store, &patient, at(1)), Poked::NotYet);
    store.write(|tx| tx.clear(at(2), std::slice::from_ref(&key))).unwrap();
    assert_eq!(asked(&store, &wanted, at(2)), Poked::NotYet);
    let task = store.read(|tx| tx.tasks(std::slice::from_ref(&key))).unwrap().remove(0).unwrap();
    let done = Finish::new(task.lease_ref(), Outcome::Success { value: Some("7 rows".into()) });
    store
        .write(|tx| {
            tx.start(at(3), &[done.lease])?;
            tx.finish(at(3), std::slice::from_ref(&done))
        })
        .unwrap();
    let landed = Poked::Landed(Some("7 rows".into()));
    assert_eq!(asked(&store, &wanted, at(3)), landed);
    assert_eq!(asked(&store, &patient, at(3)), landed);
}

#[test]
fn a_run_is_waited_for_by_its_status() {
    let store = memory();
    let key = RunKey::new("ns", "run").unwrap();
    let wanted = RunEnded::new(key.clone());
    let put = |run: RunRecord| store.write(|tx| Ok(raw(tx).put_runs(std::slice::from_ref(&run))?)).unwrap();
    assert_eq!(asked(&store, &wanted, at(0)), Poked::NotYet, "it is not there");
    let open = RunRecord::open(key.clone(), at(0));
    put(open.clone().status(RunStatus::Completed));
    assert_eq!(asked(&store, &wanted, at(0)), Poked::NotYet, "it did not stop");
    put(open.clone().closed(at(1), RunStatus::Completed));
    assert_eq!(asked(&store, &wanted, at(1)), Poked::Landed(Some("completed".into())));
    put(open.closed(at(1), RunStatus::Killed));
    assert_eq!(asked(&store, &wanted, at(1)), Poked::Failed("run run of ns is killed".into()));
    let any = wanted.clone().lands_on([RunStatus::Killed]);
    assert_eq!(asked(&store, &any, at(1)), Poked::Landed(Some("killed".into())));
    assert_eq!(asked(&store, &wanted.fails_on([RunStatus::Failed]), at(1)), Poked::NotYet);
}

#[test]
fn contexts_that_make_no_sense_fail_and_say_what_to_correct() {
    let store = memory();
    for (kind, context, part) in [
        ("file_exists", "{}", "either a path or a glob"),
        ("file_exists", r#"{"path": "/a", "glob": "/b"}"#, "either a path or a glob"),
        ("file_exists", r#"{"path": ""}"#, "either a path or a glob"),
        ("file_exists", r#"{"glob": "/a/***"}"#, "glob \"/a/***\""),
        ("file_exists", r#"{"path": "/a\u0000"}"#, "NUL"),
        ("file_exists", r#"{"glob": "/*\u0000"}"#, "NUL"),
        ("file_exists", r#"{"paht": "/a"}"#, "unknown field `paht`"),
        ("file_exists", r#"{"path": "/a", "min_age_s": -1}"#, "a number of seconds"),
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
        ("time_reached", r#"{"at": "tomorrow"}"#, "invalid characters"),
        ("task_ended", r#"{"task": "load"}"#, "invalid type"),
        (
            "task_ended",
            r#"{"task": {"namespace": "a", "workflow": "b", "run": "c", "task": ""}}"#,
            "task id is empty",
        ),
        (
            "run_ended",
            r#"{"run": {"namespace": "a", "id": "b"}, "lands_on": ["done"]}"#,
            "unknown variant `done`",
        ),
    ] {
        let context = PokeContext::from_json(context).unwrap();
        let Poked::Failed(why) = answer(&store, kind, context.clone(), at(0)) else {
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
        let sensor = condition.sensor(LeaseRef::new(TaskNo(1), 1), settings).unwrap();
        assert_eq!((sensor.kind.as_str(), sensor.context), (C::KIND, condition.context().unwrap()));
    }
    let key = TaskKey::new("a", "b", "c", "d").unwrap();
    survives(&FileExists::at("/a").min_age(Duration::from_nanos(1_234_567)));
    survives(&FileExists::matching("/a*"));
    survives(&CommandSucceeds::argv(["a", "b"]).dir("/").env("A", "b").timeout(secs(9)).fails_on([1]));
    survives(&CommandSucceeds::shell("true"));
    survives(&TcpAccepts::new("a:1").connect_timeout(secs(1)));
    survives(&TimeReached::new(Utc::now()));
    survives(&TaskEnded::new(key.clone().mapped(3)).lands_on([TaskState::Failed]));
    survives(&RunEnded::new(RunKey::new("a", "b").unwrap()).fails_on([]));

    use TaskState::{Failed, Success};
    let order = [[Success, Failed], [Failed, Success]];
    let [one, other] = order.map(|states| TaskEnded::new(key.clone()).lands_on(states).context().unwrap());
    assert_eq!(one, other);
}
