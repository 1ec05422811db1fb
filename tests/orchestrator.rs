//! The main job as its users run it: a process, files, signals, exit codes.
#![cfg(all(unix, feature = "sqlite"))]

#[cfg(feature = "postgres")]
mod scratch;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::store::sqlite::SqliteOptions;
use stationmaster::store::{SqliteStore, Store};
use stationmaster::{TaskKey, TaskState};
use tempfile::TempDir;

/// The example's binary, which `cargo test` builds next to the tests.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().and_then(Path::parent).unwrap();
        let binary = profile.join("examples").join("orchestrator");
        assert!(binary.exists(), "{} is missing: run `cargo build --example orchestrator`", binary.display());
        binary
    })
}

/// A directory with a workflow in it, whose runs are kept in a file there or in a schema on a server.
struct Place {
    folder: TempDir,
    #[cfg(feature = "postgres")]
    schema: Option<scratch::Scratch>,
}

impl Place {
    /// One with each database that the program takes.
    fn each(workflow: &Value) -> Vec<Self> {
        let text = serde_json::to_string_pretty(workflow).unwrap();
        vec![
            Self::with_text(&text),
            #[cfg(feature = "postgres")]
            Self { schema: Some(scratch::Scratch::new()), ..Self::with_text(&text) },
        ]
    }

    fn with_text(text: &str) -> Self {
        let place = Self {
            folder: TempDir::new().unwrap(),
            #[cfg(feature = "postgres")]
            schema: None,
        };
        fs::write(place.folder.path().join("flow.json"), text).unwrap();
        place
    }

    fn command(&self) -> Command {
        let mut command = Command::new(binary());
        command.arg("flow.json").current_dir(self.folder.path()).stdin(Stdio::null());
        #[cfg(feature = "postgres")]
        if let Some(schema) = &self.schema {
            command.args(["--db", &scratch::url(), "--schema", schema.0.as_str()]);
        }
        command
    }

    fn run(&self) -> Ended {
        end_of(self.spawn())
    }

    fn spawn(&self) -> Child {
        spawn(&mut self.command())
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("stationmaster-work").join("flow")
    }

    /// Opens the database of the runs, as the inspector would.
    fn store(&self) -> Box<dyn Store> {
        #[cfg(feature = "postgres")]
        if let Some(schema) = &self.schema {
            return Box::new(schema.open(|options| options));
        }
        Box::new(SqliteStore::open(self.work().join("stationmaster.db"), SqliteOptions::new()).unwrap())
    }

    fn data(&self, file: &str) -> PathBuf {
        self.work().join("data/flow-0001").join(file)
    }

    fn lines(&self, file: &str) -> usize {
        fs::read_to_string(self.data(file)).unwrap_or_default().lines().count()
    }

    fn log(&self, path: &str) -> String {
        fs::read_to_string(self.work().join("logs/flow-0001").join(path)).unwrap_or_default()
    }

    fn await_lines(&self, file: &str, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.lines(file) < count {
            assert!(Instant::now() < deadline, "{file} did not get {count} lines");
            sleep(Duration::from_millis(10));
        }
    }
}

#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for the end. What hangs is killed, so that a broken program fails its test instead of stopping all of them.
fn end_of(mut process: Child) -> Ended {
    let deadline = Instant::now() + Duration::from_secs(60);
    while process.try_wait().unwrap().is_none() {
        if Instant::now() >= deadline {
            process.kill().unwrap();
            panic!("it hangs: {:?}", process.wait_with_output().unwrap());
        }
        sleep(Duration::from_millis(10));
    }
    let output = process.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Ended {
    /// The last line without the time the run took.
    fn verdict(&self) -> &str {
        self.stdout.lines().last().and_then(|line| line.rsplit_once(", ")).map_or("", |(line, _)| line)
    }
}

fn flow(tasks: Value) -> Value {
    json!({
        "name": "flow",
        "max_active_tasks": 4,
        "pools": [{"name": "narrow", "slots": 1}, {"name": "wide", "slots": 4}],
        "limits": [{"name": "one", "max": 1}],
        "tasks": tasks
    })
}

#[test]
fn a_run_ends_and_the_next_one_is_another() {
    let flow = flow(json!([
        {"name": "first", "command": "echo hello; echo $TASK/$ATTEMPT >> marks", "pool": "narrow"},
        {"name": "many", "command": "echo $MAP_INDEX >> marks", "map": 3, "after": ["first"], "limits": ["one"]},
        {"name": "flaky", "command": "test $ATTEMPT -ge 2", "retry": {"delay_s": 0.1, "max_attempts": 2}},
        {"name": "last", "command": "test $(wc -l < marks) -eq 4", "after": ["many", "flaky"]}
    ]));
    for place in Place::each(&flow) {
        let ended = place.run();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.verdict(), "run flow-0001: success, 6 tasks (6 success, 0 failed, 0 skipped)");
        assert!(ended.stdout.contains("narrow: 1 of 1 slots"), "{ended:?}");
        assert!(ended.stdout.contains("active in the last hour: 1 runs, 7 attempts"), "{ended:?}");
        assert_eq!(place.log("first/attempt-1.log"), "hello\n");
        assert_eq!(place.log("flaky/attempt-2.log"), "");

        let shown = ended.stdout.lines().rev().nth(1).unwrap();
        let of_run = " tasks --namespace orchestrator --workflow flow --run flow-0001";
        assert!(shown.starts_with("show it: cargo run --features cli") && shown.ends_with(of_run), "{shown}");
        #[cfg(feature = "cli")]
        shows_all_tasks(shown);

        let again = place.run();
        assert_eq!(again.verdict(), "run flow-0002: success, 6 tasks (6 success, 0 failed, 0 skipped)");
        assert!(again.stdout.contains("active in the last hour: 2 runs, 14 attempts"), "{again:?}");
    }
}

/// Runs the command of this line with the program that was built for the test.
#[cfg(feature = "cli")]
fn shows_all_tasks(line: &str) {
    let (_, arguments) = line.split_once(" -- ").unwrap();
    let command = format!("{} {arguments}", env!("CARGO_BIN_EXE_stationmaster"));
    let shown = end_of(spawn(Command::new("sh").args(["-c", &command]).stdin(Stdio::null())));
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert_eq!(shown.stdout.matches("success").count(), 6, "{shown:?}");
}

#[cfg(feature = "postgres")]
#[test]
fn a_database_whose_url_makes_no_sense_is_refused() {
    let place = Place::with_text(&flow(json!([{"name": "a", "command": "true"}])).to_string());
    let url = "postgres://nobody@127.0.0.1:none/none";
    let refused = end_of(spawn(place.command().args(["--db", url])));
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("cannot use the PostgreSQL database"), "{refused:?}");
}

#[test]
fn sensors_of_every_kind_wait_and_share() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap();
    let wait =
        |name: &str, what: Value| json!({"name": name, "wait_for": what, "interval_s": 0.2, "timeout_s": 20});
    let mut shared = wait("shared", json!({"file": "late"}));
    shared["map"] = json!(30);
    // The first and the last of them have been looked for three times.
    let looks = |index: usize| {
        format!("test $(grep -c 'not yet' ../../logs/flow-0001/shared/{index}/attempt-1.log) -ge 3")
    };
    let maker = format!("until {} && {}; do sleep 0.1; done; touch late", looks(0), looks(29));
    let flow = flow(json!([
        shared,
        wait("command", json!({"command": "test -e late"})),
        wait("tcp", json!({"tcp": port.to_string()})),
        wait("time", json!({"time": "2026-01-01T00:00:00Z"})),
        wait("after", json!({"after_s": 0.5})),
        {"name": "maker", "command": maker, "priority": 9},
        {"name": "end", "command": "test -e late", "after": ["shared", "command", "tcp", "time", "after"]}
    ]));
    for place in Place::each(&flow) {
        let ended = place.run();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.verdict(), "run flow-0001: success, 36 tasks (36 success, 0 failed, 0 skipped)");
        let pokes = ended.stdout.lines().find(|line| line.starts_with("pokes: ")).unwrap();
        let numbers: Vec<usize> = pokes.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(numbers[0] < 60 && numbers[1] >= 29 * 3, "{pokes}");
        for index in [0, 29] {
            let log = place.log(&format!("shared/{index}/attempt-1.log"));
            let (first, last) = (log.lines().next().unwrap(), log.lines().last().unwrap());
            let pokes: Vec<&str> = log.lines().filter(|line| line.contains(" UTC poke ")).collect();
            assert!(first.contains(" UTC registered by ") && pokes[0].ends_with("not yet"), "{log}");
            assert!(last.contains(" UTC landed: ") && last.ends_with(r#"late","bytes":0}"#), "{log}");
        }
    }
}

#[test]
fn a_failure_ends_what_depends_on_it_and_nothing_else() {
    let flow = flow(json!([
        {"name": "bad", "command": "echo oh no >&2; exit 3", "retry": {"delay_s": 0, "max_attempts": 2}},
        {"name": "below", "command": "touch below", "after": ["bad"]},
        {"name": "deeper", "command": "touch deeper", "after": ["below", "good"]},
        {"name": "good", "command": "touch good"},
        {"name": "hangs", "command": "n=0; while test $n -lt 200; do n=$((n+1)); echo x >> beats; sleep 0.05; done", "timeout_s": 0.5},
        {"name": "never", "wait_for": {"file": "nowhere"}, "interval_s": 0.2, "timeout_s": 0.5, "soft_fail": true},
        {"name": "skipped", "command": "touch skipped", "after": ["never", "good"]},
        {"name": "hopeless", "wait_for": {"file": "nowhere"}, "interval_s": 0.2, "timeout_s": 0.5}
    ]));
    for place in Place::each(&flow) {
        let ended = place.run();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert_eq!(ended.verdict(), "run flow-0001: failed, 8 tasks (1 success, 5 failed, 2 skipped)");
        for text in [
            "exit code 3",
            "upstream bad failed",
            "upstream below failed",
            "longer than its timeout of 0.5 s",
        ] {
            assert!(ended.stdout.contains(text), "{text}: {ended:?}");
        }
        assert_eq!(place.log("bad/attempt-2.log"), "oh no\n");
        assert!(
            place.data("good").exists() && !place.data("below").exists() && !place.data("skipped").exists()
        );
        still(&place, "beats");
    }
}

#[test]
fn what_cannot_run_is_refused_before_anything_is_written() {
    let task = |fields: Value| {
        let mut task = json!({"name": "a", "command": "true"});
        task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        flow(json!([task])).to_string()
    };
    let cases = [
        (task(json!({"pool": "nope"})), "task a names pool \"nope\", which does not exist"),
        (
            task(json!({"pool": "narrow", "pool_slots": 2})),
            "needs 2 slots of pool narrow, which has 1: lower",
        ),
        (task(json!({"pool_slots": 0})), "pool_slots 0"),
        (task(json!({"limits": ["nope"]})), "limit \"nope\", which is not in `limits`"),
        (task(json!({"after": ["b"]})), "waits for \"b\", which is no task"),
        (task(json!({"after": ["a"]})), "in a circle, a after a: remove"),
        (task(json!({"timeout_s": 0})), "timeout_s of 0"),
        (task(json!({"timeout_s": -1})), "a number of seconds"),
        (task(json!({"retry": {"delay_s": 1}})), "retried for ever: give its retry max_attempts"),
        (task(json!({"retry": {"delay_s": -1, "max_attempts": 2}})), "a number of seconds"),
        (task(json!({"name": "../a"})), "a task is named \"../a\": use"),
        (task(json!({"wait_for": {"file": "x"}})), "either a command or a wait_for"),
        (task(json!({"comand": "true"})), "unknown field `comand`"),
        (task(json!({"map": 0})), "map must be 1 to"),
        (task(json!({"interval_s": 1})), "interval_s and soft_fail are for sensors"),
        (flow(json!([])).to_string(), "no tasks"),
        (
            flow(json!([{"name": "a", "command": "x"}, {"name": "a", "command": "y"}])).to_string(),
            "task a is there twice",
        ),
        (flow(json!([{"name": "a", "wait_for": {"tcp": "x"}}])).to_string(), "give host:port"),
        (
            flow(json!([{"name": "a", "wait_for": {"file": "x"}, "interval_s": 0}])).to_string(),
            "interval_s below",
        ),
        (
            flow(json!([
                {"name": "z", "command": "x", "after": ["a"]},
                {"name": "a", "command": "x", "after": ["c"]},
                {"name": "b", "command": "x", "after": ["a"]},
                {"name": "c", "command": "x", "after": ["b"]}
            ]))
            .to_string(),
            "in a circle, a after c after b after a: remove",
        ),
        ("{\n  \"name\": \"flow\",\n  \"tasks\": [,]\n}".to_owned(), "line 3 column 13"),
    ];
    for (text, message) in cases {
        let place = Place::with_text(&text);
        let ended = place.run();
        assert_eq!(ended.code, Some(2), "{text}: {ended:?}");
        assert!(ended.stderr.contains(message), "{text}: {}", ended.stderr);
        assert!(!place.folder.path().join("stationmaster-work").exists(), "{text}");
    }
}

#[test]
fn files_that_are_not_ours_are_refused_and_left_alone() {
    let place = Place::with_text(&flow(json!([{"name": "a", "command": "true"}])).to_string());
    let run = |arguments: &[&str]| end_of(spawn(place.command().args(arguments)));
    let text = "a letter, and no database at all\n".repeat(100);
    fs::write(place.folder.path().join("letter"), &text).unwrap();
    let ended = run(&["--db", "letter"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("cannot use the database letter"), "{ended:?}");
    assert_eq!(fs::read_to_string(place.folder.path().join("letter")).unwrap(), text);
    assert!(!place.folder.path().join("letter-work").exists());

    assert_eq!(run(&["--db", "no/such/folder.db"]).code, Some(2));
    assert!(!place.folder.path().join("no").exists());
    assert_eq!(run(&["--workers", "0"]).code, Some(2));
    let missing = end_of(spawn(Command::new(binary()).arg("nowhere.json").current_dir(place.folder.path())));
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("cannot read the workflow nowhere.json"), "{missing:?}");
}

/// Three tasks that are soon done, and one that beats until a file appears.
fn long_flow() -> Vec<Place> {
    Place::each(&flow(json!([
        {"name": "a", "command": "echo x >> a"},
        {"name": "b", "command": "echo x >> b", "after": ["a"]},
        {"name": "sensor", "wait_for": {"file": "go"}, "interval_s": 0.2, "timeout_s": 60},
        {"name": "slow", "pool": "narrow", "after": ["b"],
         "command": "echo x >> starts; n=0; while ! test -e go && test $n -lt 600; do n=$((n+1)); echo x >> beats; sleep 0.05; done"},
        {"name": "last", "command": "echo x >> last", "pool": "narrow", "after": ["slow", "sensor"]}
    ])))
}

/// Nothing is written to this file any more, soon after what wrote to it was killed.
fn still(place: &Place, file: &str) {
    let began = Instant::now();
    loop {
        let before = place.lines(file);
        sleep(Duration::from_millis(400));
        if place.lines(file) == before {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "an orphan goes on writing to {file}");
    }
}

fn resumed(place: &Place) -> Ended {
    fs::write(place.data("go"), "").unwrap();
    let ended = place.run();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.starts_with("run flow-0001 resumed"), "{ended:?}");
    assert_eq!(ended.verdict(), "run flow-0001: success, 5 tasks (5 success, 0 failed, 0 skipped)");
    assert_eq!([place.lines("a"), place.lines("b"), place.lines("last")], [1, 1, 1], "repeated");
    assert_eq!(place.lines("starts"), 2);
    ended
}

#[test]
fn killed_it_leaves_no_orphan_and_is_resumed() {
    for place in long_flow() {
        let mut process = place.spawn();
        place.await_lines("beats", 5);
        process.kill().unwrap();
        process.wait().unwrap();
        still(&place, "beats");
        let ended = resumed(&place);
        assert!(ended.stdout.contains("reaped   slow"), "{ended:?}");
    }
}

#[test]
fn interrupted_it_gives_everything_back_and_is_resumed_at_once() {
    for signal in ["-INT", "-TERM"] {
        for place in long_flow() {
            let process = place.spawn();
            place.await_lines("beats", 5);
            assert!(
                Command::new("kill").args([signal, &process.id().to_string()]).status().unwrap().success()
            );
            let ended = end_of(process);
            assert_eq!(ended.code, Some(130), "{ended:?}");
            assert_eq!(
                ended.stdout.lines().last(),
                Some("run flow-0001: interrupted; the same command resumes it"),
                "{ended:?}"
            );
            still(&place, "beats");
            let ended = resumed(&place);
            assert!(!ended.stdout.contains("reaped"), "it waited for its own leases: {ended:?}");
        }
    }
}

#[test]
fn a_cancelled_command_is_killed_and_what_depends_on_it_is_skipped() {
    let flow = flow(json!([
        {"name": "good", "command": "sleep 1; echo x >> good"},
        {"name": "slow", "pool": "narrow", "priority": 9,
         "command": "n=0; while test $n -lt 600; do n=$((n+1)); echo x >> beats; sleep 0.05; done"},
        {"name": "blocked", "command": "echo x >> blocked", "pool": "narrow", "retry": {"delay_s": 0, "max_attempts": 3}},
        {"name": "never", "wait_for": {"file": "nowhere"}, "interval_s": 0.2, "timeout_s": 60},
        {"name": "below", "command": "touch below", "after": ["slow", "good"]}
    ]));
    for place in Place::each(&flow) {
        let process = place.spawn();
        place.await_lines("beats", 5);
        let keys = ["slow", "blocked", "never"]
            .map(|name| TaskKey::new("orchestrator", "flow", "flow-0001", name).unwrap());
        let store = place.store();
        let senses = |task: Option<stationmaster::TaskRecord>| {
            task.is_some_and(|task| task.state == TaskState::Sensing)
        };
        while !store.read(|tx| tx.tasks(&keys[2..])).unwrap().into_iter().any(senses) {
            sleep(Duration::from_millis(10));
        }
        // Longer than `end_of` waits, so the end of the grace is not what ends the command.
        let grace = Duration::from_secs(600);
        store.write(|tx| tx.cancel(SystemClock.now(), grace, &keys, "not needed")).unwrap();
        let ended = end_of(process);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert_eq!(
            ended.verdict(),
            "run flow-0001: cancelled, 5 tasks (1 success, 0 failed, 1 skipped, 3 cancelled)"
        );
        assert!(ended.stdout.contains("cancelled slow"), "{ended:?}");
        assert_eq!([place.lines("good"), place.lines("blocked")], [1, 0], "{ended:?}");
        assert!(!place.data("below").exists(), "{ended:?}");
        still(&place, "beats");
    }
}

#[test]
fn an_unfinished_run_is_resumed_only_with_its_own_definition() {
    for place in long_flow() {
        let mut process = place.spawn();
        place.await_lines("beats", 1);
        process.kill().unwrap();
        process.wait().unwrap();
        fs::write(
            place.folder.path().join("flow.json"),
            flow(json!([{"name": "a", "command": "true"}])).to_string(),
        )
        .unwrap();
        let ended = place.run();
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert_eq!(place.lines("a"), 1);
        assert!(ended.stderr.contains("changed since the unfinished run flow-0001 began"), "{ended:?}");
    }
}
