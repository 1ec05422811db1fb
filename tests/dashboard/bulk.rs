//! Changing many tasks of a list at once.

use stationmaster::ops::Finish;
use stationmaster::{NewTask, TaskKey, TaskState};

use crate::stage::{Stage, at, plain};

fn key(name: &str) -> TaskKey {
    TaskKey::new("n", "w", "r", name).unwrap()
}

/// Two tasks that failed, one that runs, one that waits for an instant, and one that is ready.
fn filled() -> Stage {
    let stage = Stage::new();
    let new = |name: &str| NewTask::new(key(name));
    stage.enqueue(0, &[new("fails"), new("fails too"), new("runs")]);
    let granted = stage.run(1, 3);
    let ends: Vec<Finish> =
        granted[..2].iter().map(|task| Finish::failed(task.lease_ref(), "no route to host")).collect();
    stage.store.write(|tx| tx.finish(at(2), &ends)).unwrap();
    stage.enqueue(3, &[new("later").not_before(at(9_000)), new("ready")]);
    stage.set(10);
    stage
}

fn number(stage: &Stage, name: &str) -> String {
    let found = stage.store.read(|tx| tx.tasks(&[key(name)])).unwrap();
    found[0].as_ref().unwrap().id.0.to_string()
}

fn state(stage: &Stage, name: &str) -> Option<TaskState> {
    let found = stage.store.read(|tx| tx.tasks(&[key(name)])).unwrap();
    found[0].as_ref().map(|task| task.state)
}

fn send(stage: &Stage, fields: &[(&str, &str)], numbers: &[&str]) -> (u16, String) {
    let numbers: Vec<(&str, &str)> = numbers.iter().map(|number| ("number", *number)).collect();
    let answer = stage.server.submit("/overview", &[fields, &numbers].concat());
    (answer.status, answer.body)
}

fn result(body: &str) -> String {
    let (_, after) = body.split_once("id=\"result\">").unwrap_or_else(|| panic!("{body}"));
    plain(after.split("</div>").next().unwrap())
}

#[test]
fn a_list_has_a_box_for_each_task_if_the_reader_may_change_them() {
    let stage = filled();
    let body = stage.body(10, "tasks?state=failed&queue=default");
    for name in ["fails", "fails too"] {
        let number = number(&stage, name);
        let field = format!("name=\"number\" value=\"{number}\" aria-label=\"Select n/w/r/{name}\"");
        assert!(body.contains(&field), "{field}: {body}");
    }
    assert!(body.contains("name=\"list\" value=\"tasks?state=failed&amp;queue=default\""), "{body}");
    assert!(
        !stage.body(10, "tasks?state=skipped").contains("action=\"change\""),
        "there is nothing to select"
    );
}

#[test]
fn many_are_run_again_at_once_and_each_is_reported() {
    let stage = filled();
    let of = |name: &str| number(&stage, name);
    let (a, b, c, d, e) = (of("fails"), of("fails too"), of("runs"), of("later"), of("ready"));
    let retry = [("verb", "retry"), ("list", "tasks?state=failed&queue=default")];
    let (status, body) = send(&stage, &retry, &[&a, &b, &c, &d, &e, "77"]);
    assert_eq!(status, 200, "{body}");
    assert_eq!(
        result(&body),
        "retry: 3 of 6 done. task n/w/r/runs: left as it is: it is running. task n/w/r/ready: left as it is: it is \
         ready already. task number 77: there is no such task."
    );
    assert!(body.contains("href=\"tasks?state=failed&amp;queue=default\">Go back"), "{body}");
    for name in ["fails", "fails too", "later"] {
        let found = stage.store.read(|tx| tx.tasks(&[key(name)])).unwrap();
        assert!(found[0].as_ref().unwrap().is_ready(), "{name}");
    }
    assert_eq!(state(&stage, "runs"), Some(TaskState::Running));
    let told = stage.told.lock().unwrap().clone();
    assert_eq!(told.len(), 6, "{told:?}");
    assert_eq!(told[1], "ann: retry task n/w/r/fails too: ready again");
    assert_eq!(told[3], "ann: retry task n/w/r/later: ready now");
}

#[test]
fn many_are_cancelled_or_deleted_at_once() {
    let stage = filled();
    let of = |name: &str| number(&stage, name);
    let (a, c, e) = (of("fails"), of("runs"), of("ready"));
    let cancel = [("verb", "cancel"), ("list", "tasks"), ("grace", "60"), ("message", "not today")];
    let said = result(&send(&stage, &cancel, &[&a, &c, &e]).1);
    assert_eq!(said, "cancel: 2 of 3 done. task n/w/r/fails: left as it is: it had ended as failed.");
    assert_eq!(state(&stage, "ready"), Some(TaskState::Cancelled));
    let runs = stage.store.read(|tx| tx.tasks(&[key("runs")])).unwrap().remove(0).unwrap();
    assert_eq!(runs.lease.unwrap().cancel_at, Some(at(70)));
    assert_eq!(runs.message.unwrap(), "cancelled by ann on the dashboard: not today");

    let said = result(&send(&stage, &[("verb", "delete"), ("list", "tasks")], &[&a, &c]).1);
    assert_eq!(
        said,
        "delete: 1 of 2 done. task n/w/r/runs: left as it is: it is running, so cancel it first."
    );
    assert_eq!(state(&stage, "fails"), None);
    assert_eq!(
        stage.told.lock().unwrap().last().unwrap().as_str(),
        "ann: delete task n/w/r/runs: left as it is: it is running, so cancel it first"
    );
}

#[test]
fn what_no_list_sends_is_refused() {
    let stage = filled();
    let retry = [("verb", "retry"), ("list", "tasks")];
    let (status, body) = send(&stage, &retry, &[]);
    assert!(status == 400 && body.contains("No task is selected"), "{body}");
    assert_eq!(send(&stage, &retry, &["x"]).0, 400);
    assert_eq!(send(&stage, &retry, &["1"; 51]).0, 400);
    assert!(stage.told.lock().unwrap().is_empty());
    for list in ["javascript:alert(1)", "//evil.example", "tasks:x", "overview?a"] {
        let (status, body) = send(&stage, &[("verb", "retry"), ("list", list)], &["1"]);
        assert_eq!(status, 200, "{body}");
        assert!(body.contains("<a href=\"tasks\">Go back"), "{list}: {body}");
    }
}

/// What waits for an instant need not wait for it.
#[test]
fn a_task_that_is_due_later_runs_now() {
    let stage = filled();
    let page = "task?namespace=n&workflow=w&run=r&task=later";
    assert!(stage.body(10, page).contains("<button>Run it now</button>"));
    let ready = stage.body(10, "task?namespace=n&workflow=w&run=r&task=ready");
    assert!(!ready.contains("Run it"), "{ready}");
    let fields = [("verb", "retry"), ("namespace", "n"), ("workflow", "w"), ("run", "r"), ("task", "later")];
    let (_, body) = send(&stage, &fields, &[]);
    assert_eq!(result(&body), "retry task n/w/r/later: ready now");
    assert!(
        body.contains("href=\"task?namespace=n&amp;workflow=w&amp;run=r&amp;task=later\">Go back"),
        "{body}"
    );
}
