//! What depends on a terminal: colours, width, questions, and when a watch ends.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use stationmaster::TaskState;

use crate::world::{World, key, worlds};

/// The program on a terminal of its own.
struct Terminal {
    child: Child,
    master: File,
    reader: JoinHandle<String>,
}

/// Starts the program on a new terminal, and returns the only file on its other side.
fn start(world: &World, columns: u16, args: &[&str], variables: &[(&str, &str)]) -> (Child, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    // The program must not hold the other side of its own terminal open.
    fcntl_setfd(&master, FdFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = File::from(
        open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap(),
    );
    tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let end = || Stdio::from(slave.try_clone().unwrap());
    let child = world
        .command(args)
        .envs(variables.iter().copied())
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    (child, File::from(master))
}

impl Terminal {
    fn start(world: &World, columns: u16, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let (child, master) = start(world, columns, args, variables);
        let mut from = master.try_clone().unwrap();
        let reader = thread::spawn(move || {
            let (mut text, mut part) = (Vec::new(), [0; 4096]);
            // When the last end of the other side is closed, reading fails.
            while let Ok(length @ 1..) = from.read(&mut part) {
                text.extend_from_slice(&part[..length]);
            }
            String::from_utf8(text).unwrap()
        });
        Self { child, master, reader }
    }

    fn ends(mut self) -> (i32, String) {
        let code = within(&mut self.child);
        drop(self.master);
        (code, self.reader.join().unwrap())
    }
}

/// Waits for the end, and not for ever.
fn within(child: &mut Child) -> i32 {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().expect("an end by itself");
        }
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it goes on");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn colours_and_width_are_those_of_the_terminal() {
    for world in worlds() {
        let args = ["tasks", "--state", "failed"];
        let (code, shown) = Terminal::start(&world, 70, &args, &[]).ends();
        assert_eq!(code, 0, "{shown}");
        assert!(shown.contains("\u{1b}[") && !shown.contains("\u{1b}]0;"), "{shown}");
        let (_, plain) = Terminal::start(&world, 70, &args, &[("NO_COLOR", "1")]).ends();
        assert!(!plain.contains('\u{1b}') && plain.contains("failed"), "{plain}");
        assert!(plain.lines().count() > 2, "it is wrapped: {plain}");
        let (_, wide) = Terminal::start(&world, 250, &args, &[("NO_COLOR", "1")]).ends();
        assert_eq!(wide.lines().count(), 2, "a head and a task: {wide}");
        // Not on a terminal: neither colours, nor wrapping.
        let piped = world.show(&args).ends(0);
        assert!(!piped.contains('\u{1b}') && piped.lines().count() == 2, "{piped}");
        assert!(world.show(&["--color", "always", "tasks", "--state", "failed"]).ends(0).contains("\u{1b}["));
        // JSON on a terminal holds nothing that the terminal acts on.
        let (_, json) = Terminal::start(&world, 70, &["--json", "tasks", "--all"], &[]).ends();
        assert!(
            !json.contains('\u{1b}') && !json.contains('\u{9b}') && json.contains("\\u001b]0;"),
            "{json}"
        );
    }
}

#[test]
fn a_question_is_answered_on_the_terminal() {
    for world in worlds() {
        let args = ["cancel", "--queue", "gpu", "--state", "waiting"];
        for (answer, code, state) in [("\n", 1, TaskState::Scheduled), ("y\n", 0, TaskState::Cancelled)] {
            let mut terminal = Terminal::start(&world, 100, &args, &[("NO_COLOR", "1")]);
            terminal.master.write_all(answer.as_bytes()).unwrap();
            let (ended, shown) = terminal.ends();
            assert_eq!(ended, code, "{shown}");
            assert!(shown.contains("Cancel 2 tasks? [y/N]") && shown.contains("render[3]"), "{shown}");
            assert!(!shown.contains('\u{1b}'), "{shown}");
            assert_eq!(world.state(&crate::world::hostile()), Some(state));
        }
        assert_eq!(world.state(&key("check")), Some(TaskState::Scheduled));
    }
}

#[test]
fn a_grace_begins_with_the_answer() {
    for world in worlds() {
        let args = ["--json", "cancel", "prod", "nightly", "r1", "load", "--grace", "1s"];
        let mut terminal = Terminal::start(&world, 100, &args, &[]);
        thread::sleep(Duration::from_millis(1_500));
        terminal.master.write_all(b"y\n").unwrap();
        let (code, shown) = terminal.ends();
        assert_eq!(code, 0, "{shown}");
        assert!(
            shown.contains("asked_until"),
            "a grace that ended while the question stood would end it: {shown}"
        );
    }
}

#[test]
fn a_watch_shows_changes_and_ends_with_its_reader() {
    for world in worlds() {
        let mut command = world.command(&["--json", "tasks", "--count", "--watch=200ms"]);
        let mut child = command.spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let (mut text, mut part) = (String::new(), [0; 4096]);
        let mut wait_for = |wanted: &str| {
            while !text.contains(wanted) {
                let length = out.read(&mut part).unwrap();
                assert!(length > 0, "{wanted} is missing in {text}");
                text.push_str(std::str::from_utf8(&part[..length]).unwrap());
            }
        };
        wait_for(r#""state":"cancelled","tasks":0"#);
        world.show(&["cancel", "--queue", "gpu", "--yes"]).ends(0);
        wait_for(r#""state":"cancelled","tasks":2"#);
        drop(out);
        assert_eq!(within(&mut child), 0);
        // A feed in which nothing happens writes nothing, and sees that its reader has gone all the same.
        let mut child = world.command(&["--json", "feed", "--after", "9", "--watch=30s"]).spawn().unwrap();
        thread::sleep(Duration::from_millis(300));
        drop(child.stdout.take());
        let start = Instant::now();
        within(&mut child);
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn a_watch_ends_with_its_terminal() {
    for world in worlds() {
        let (mut child, mut master) = start(&world, 80, &["queues", "--watch=30s"], &[]);
        let (mut shown, mut part) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&shown).contains("gpu") {
            let length = master.read(&mut part).unwrap();
            shown.extend_from_slice(&part[..length]);
        }
        assert!(shown.starts_with(b"\x1b[H\x1b[2J"), "it is drawn from the top");
        assert!(child.try_wait().unwrap().is_none(), "it goes on while somebody looks");
        let start = Instant::now();
        drop(master);
        within(&mut child);
        assert!(start.elapsed() < Duration::from_secs(20), "long before it is shown again");
    }
}
