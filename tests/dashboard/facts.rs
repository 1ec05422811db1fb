//! What the pages say of a task in each part of its life.

use std::time::Duration;

use stationmaster::backoff::RetryPolicy;
use stationmaster::ops::{AdmitRequest, Finish};
use stationmaster::{NewTask, TaskKey};

use crate::stage::{Stage, at, fact, plain, rows};
use crate::world::HOSTILE;

const PAGE: &str = "task?namespace=n&workflow=w&run=r&task=t";

fn key() -> TaskKey {
    TaskKey::new("n", "w", "r", "t").unwrap()
}

fn task() -> NewTask {
    NewTask::new(key()).retry(RetryPolicy::fixed(Duration::from_secs(60)).max_attempts(5).build().unwrap())
}

fn listed(stage: &Stage, second: i64, state: &str) -> String {
    rows(&stage.body(second, &format!("tasks?state={state}")), "list").remove(0)
}

/// A task keeps the instants and the message of its attempt before until the next ones replace them.
#[test]
fn instants_and_messages_are_those_of_the_present_attempt() {
    let stage = Stage::new();
    stage.enqueue(0, &[task()]);
    let first = stage.run(10, 1).remove(0);
    stage.store.write(|tx| tx.finish(at(30), &[Finish::failed(first.lease_ref(), "busy")])).unwrap();

    let body = stage.body(40, PAGE);
    let is = |body: &str, name: &str, text: Option<&str>| {
        assert_eq!(fact(body, name).as_deref(), text, "{name}: {body}");
    };
    is(&body, "Attempt", Some("1 of 5"));
    is(&body, "Ended", Some("10s ago · 1970-01-01 00:00:30 UTC"));
    is(&body, "Took", Some("20s"));
    is(&body, "Message", Some("busy"));
    assert!(listed(&stage, 40, "waiting").contains("due in 50s"));

    // Granted, and not yet started.
    let lease = Duration::from_secs(1_000);
    let order = AdmitRequest::new("worker-2".try_into().unwrap(), "t".try_into().unwrap(), 1, lease);
    let second = stage.store.write(|tx| tx.admit(at(100), &order)).unwrap().granted.remove(0);
    let body = stage.body(105, PAGE);
    is(&body, "Attempt", Some("2 of 5"));
    is(&body, "Granted", Some("5s ago · 1970-01-01 00:01:40 UTC"));
    is(&body, "Waited", Some("10s"));
    for name in ["Started", "First started", "Ended", "Took", "Message", "Last ended or cleared"] {
        is(&body, name, None);
    }
    is(&body, "Previous message", Some("busy"));
    assert!(listed(&stage, 105, "leased").contains("granted 5s ago"));
    assert!(rows(&stage.body(105, "overview"), "running")[0].contains("granted 5s ago"));

    stage.store.write(|tx| tx.start(at(110), &[second.lease_ref()])).unwrap();
    let body = stage.body(115, PAGE);
    is(&body, "Started", Some("5s ago · 1970-01-01 00:01:50 UTC"));
    is(&body, "First started", Some("1m 45s ago · 1970-01-01 00:00:10 UTC"));
    is(&body, "Ended", None);
    is(&body, "Took", None);
    assert!(listed(&stage, 115, "leased").contains("started 5s ago"));
    assert!(rows(&stage.body(115, "overview"), "running")[0].contains("started 5s ago"));

    stage.store.write(|tx| tx.finish(at(120), &[Finish::success(second.lease_ref())])).unwrap();
    is(&stage.body(121, PAGE), "Took", Some("10s"));
    stage.store.write(|tx| tx.clear(at(200), &[key()])).unwrap();
    let body = stage.body(230, PAGE);
    is(&body, "Attempt", Some("2, of which 2 do not count: 0 of 5"));
    is(&body, "Ready since", Some("30s ago · 1970-01-01 00:03:20 UTC"));
    is(&body, "Last ended or cleared", Some("30s ago · 1970-01-01 00:03:20 UTC"));
    is(&body, "Took", None);
    assert!(listed(&stage, 230, "waiting").contains("ready 30s ago"));

    // It never ran again, so its end is no end of an attempt.
    stage.store.write(|tx| tx.cancel(at(300), Duration::ZERO, &[key()], "not today")).unwrap();
    let body = stage.body(301, PAGE);
    is(&body, "Ended", Some("1s ago · 1970-01-01 00:05:00 UTC"));
    is(&body, "Took", None);
    is(&body, "Message", Some("not today"));
}

#[test]
fn what_a_holder_says_is_shown_and_so_is_a_cancel_that_it_was_asked_for() {
    let stage = Stage::new();
    stage.enqueue(0, &[task()]);
    let lease = stage.run(0, 1).remove(0).lease_ref();
    stage.store.write(|tx| tx.note(at(5), &[(lease, format!("12 of 40 {HOSTILE}"))])).unwrap();
    let cancel = |tx: &mut stationmaster::store::Tx<'_>| {
        tx.cancel(at(6), Duration::from_secs(60), &[key()], "too slow")
    };
    for page in [PAGE, "tasks?state=leased", "overview"] {
        let body = stage.body(7, page);
        assert!(
            body.contains("12 of 40 &lt;script&gt;") && !body.contains("<script>window"),
            "{page}: {body}"
        );
        assert!(!body.contains("asked to stop"), "{page}");
    }
    assert!(fact(&stage.body(7, PAGE), "Says").unwrap().ends_with("2s ago"));
    stage.store.write(cancel).unwrap();
    for page in [PAGE, "tasks?state=leased", "overview"] {
        let says = |second: i64, text: &str| {
            let body = plain(&stage.body(second, page));
            assert!(body.contains(text), "{page}: {text}: {body}");
        };
        says(8, "asked to stop, must do so by 1970-01-01 00:01:06 UTC (in 58s)");
        says(70, "asked to stop, had to do so by 1970-01-01 00:01:06 UTC (4s ago)");
    }
    let body = stage.body(8, PAGE);
    assert_eq!(fact(&body, "Why it is cancelled").as_deref(), Some("too slow"));
    assert_eq!(fact(&body, "Message"), None);
}

#[test]
fn attempts_are_shown_the_latest_first_with_their_holders() {
    let stage = Stage::new();
    stage.enqueue(0, &[task()]);
    for second in [10, 100] {
        let lease = stage.run(second, 1).remove(0).lease_ref();
        stage
            .store
            .write(|tx| tx.finish(at(second + 1), &[Finish::failed(lease, format!("at {second}"))]))
            .unwrap();
    }
    let body = stage.body(200, PAGE);
    let attempts = rows(&body, "attempts");
    assert!(
        attempts[0].starts_with("2 | up for retry | worker-1 | 1m 40s ago · 1970-01-01 00:01:40 UTC"),
        "{attempts:?}"
    );
    assert!(attempts[0].ends_with("at 100") && attempts[1].ends_with("at 10"), "{attempts:?}");
    assert!(body.contains("state=leased&amp;holder=worker-1\">worker-1</a></td>"), "{body}");
    assert!(body.contains("first 1,000 characters are kept"));
}

/// Whatever a person has of a task leads to it.
#[test]
fn a_number_or_a_key_is_looked_up() {
    let stage = Stage::new();
    let odd = TaskKey::new("n/x", "[w", "r", HOSTILE).unwrap().mapped(3);
    stage.enqueue(0, &[task(), NewTask::new(odd.clone())]);
    let number = |key: &TaskKey| {
        let found = stage.store.read(|tx| tx.tasks(std::slice::from_ref(key))).unwrap();
        found[0].as_ref().unwrap().id.0.to_string()
    };
    let found = |text: &str| stage.page(1, &format!("tasks?key={}", crate::http::escaped(text)));
    for text in [number(&key()), "n/w/r/t".into(), " [\"n\",\"w\",\"r\",\"t\"]".into()] {
        let answer = found(&text);
        assert_eq!(answer.status, 200, "{text}: {}", answer.body);
        assert!(answer.body.contains("<h1>Task n/w/r/t</h1>"), "{text}: {}", answer.body);
    }
    // What a page shows for copying is found again, and is no markup.
    let body = found(&number(&odd)).body;
    let typed = fact(&body, "Typed as").unwrap();
    assert!(!body.contains("<script>window") && !body.contains("<img"), "{body}");
    let typed = typed.trim_end_matches(" Copy").replace("&quot;", "\"");
    let typed = typed.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    assert!(typed.contains("\\u202e"), "{typed}");
    assert!(found(&typed).body.contains("<dt>Number</dt><dd>2</dd>"), "{typed}");
    for (text, status, says) in [
        ("99", 404, "There is no task of number 99."),
        ("n/w/r/none", 404, "There is no task n/w/r/none."),
        ("n/w", 400, "key: it is the"),
    ] {
        let answer = found(text);
        assert_eq!(answer.status, status, "{text}");
        assert!(answer.body.contains(says), "{text}: {}", answer.body);
        assert!(
            answer.body.contains(&format!("name=\"key\" value=\"{text}\"")),
            "the form is kept: {}",
            answer.body
        );
    }
}

/// What is over is not said to come.
#[test]
fn a_lease_that_is_over_ended() {
    let stage = Stage::new();
    stage.enqueue(0, &[task()]);
    stage.run(0, 1);
    assert!(listed(&stage, 900, "leased").contains("lease ends in 1m 40s"));
    assert_eq!(fact(&stage.body(900, PAGE), "Lease ends").unwrap(), "in 1m 40s · 1970-01-01 00:16:40 UTC");
    assert_eq!(fact(&stage.body(900, "health"), "Next lease ends").unwrap(), "in 1m 40s");
    assert!(listed(&stage, 1_005, "leased").contains("lease ended 5s ago expired"));
    assert_eq!(fact(&stage.body(1_005, PAGE), "Lease ended").unwrap(), "5s ago · 1970-01-01 00:16:40 UTC");
    assert_eq!(fact(&stage.body(1_005, "health"), "A lease ended").unwrap(), "5s ago");
}

/// A grace is for a holder.
#[test]
fn a_grace_is_offered_only_for_tasks_that_someone_holds() {
    let stage = Stage::new();
    stage.enqueue(0, &[task()]);
    let offers = |page: &str| {
        let body = stage.body(1, page);
        assert!(body.contains("value=\"cancel\"") && body.contains("name=\"message\""), "{page}: {body}");
        body.contains("name=\"grace\"")
    };
    assert!(!offers(PAGE) && !offers("tasks?state=waiting"));
    stage.run(2, 1);
    assert!(offers(PAGE) && offers("tasks?state=leased"));
}

/// A column is left out while no row has anything in it.
#[test]
fn notes_have_a_column_when_there_is_one() {
    let stage = Stage::new();
    stage.enqueue(0, &[task()]);
    let lease = stage.run(0, 1).remove(0).lease_ref();
    let heads = || {
        let body = stage.body(5, "overview");
        let (_, section) = body.split_once("<section id=\"running\"").unwrap();
        plain(section.split("</thead>").next().unwrap())
    };
    assert!(heads().ends_with("SinceLease ends"), "{}", heads());
    stage.store.write(|tx| tx.note(at(5), &[(lease, "12 of 40".to_owned())])).unwrap();
    assert!(heads().ends_with("SinceLease endsSays"), "{}", heads());
}

/// What is paused can be resumed on the overview, so the reason leads there.
#[test]
fn a_pause_leads_to_what_is_paused() {
    use stationmaster::admission::{IfExists, Subject};
    use stationmaster::pool::{PoolSpec, Slots};

    let stage = Stage::new();
    let pool = PoolSpec::new("a b/c", Slots::Limited(1)).unwrap();
    stage.store.write(|tx| tx.define([&pool], IfExists::Replace)).unwrap();
    stage.enqueue(0, &[task().pool("a b/c".parse().unwrap())]);
    for (subject, id) in [
        (Subject::Pool("a b/c".parse().unwrap()), "pool-a+b%2Fc"),
        (Subject::Queue("default".parse().unwrap()), "queue-default"),
    ] {
        let subjects = std::slice::from_ref(&subject);
        stage.store.write(|tx| tx.pause(subjects)).unwrap();
        let link = format!("<a href=\"overview#{id}\">{subject}: paused</a>");
        let overview = stage.body(1, "overview");
        for body in [&stage.body(1, PAGE), &overview] {
            assert!(body.contains(&link), "{link}: {body}");
        }
        assert!(overview.contains(&format!("id=\"{id}\"")), "{id}: {overview}");
        stage.store.write(|tx| tx.resume(subjects)).unwrap();
    }
}

/// Who reads the feed is part of the store's condition.
#[test]
fn consumers_of_the_feed_are_under_health() {
    use stationmaster::feed::TaskEvent;
    use stationmaster::service::{FeedReader, Service};

    let stage = Stage::new();
    assert!(plain(&stage.body(1, "health")).contains("No one reads the feed."));
    let mut reader =
        FeedReader::new(stage.store.clone(), "mailer".try_into().unwrap(), |_: &TaskEvent| Ok(()));
    reader.tick(at(5)).unwrap();
    let consumers = rows(&stage.body(10, "health"), "consumers");
    assert_eq!(consumers, ["mailer | 0 | 5s ago | 0"]);
    let sensors = stage.body(10, "sensors");
    assert!(!sensors.contains("mailer") && sensors.contains("href=\"health#consumers\""), "{sensors}");
}
