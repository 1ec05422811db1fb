//! What the pages say, and whom they obey.

use std::sync::{Arc, Mutex};

use stationmaster::TaskState;
use stationmaster::admission::Subject;
use stationmaster::dashboard::Dashboard;
use stationmaster::dashboard::axum::Router;

use crate::http::{Answer, Server, escaped, form, send};
use crate::world::{HOSTILE, SECRET, World};

const PAGES: [&str; 14] = [
    "/overview",
    "/tasks",
    "/tasks?state=waiting&pool=db",
    "/runs",
    "/runs?zoom=1h",
    "/runs?zoom=90d&status=running",
    "/sensors",
    "/health",
    "/audit",
    "/next",
    "/next?queue=default",
    "/before?namespace=prod&workflow=nightly&run=2026-01-31&task=load-59",
    "/task?namespace=prod&workflow=nightly&run=2026-01-31&task=load-00",
    "/task?namespace=prod&workflow=nightly&run=2026-01-31&task=senses",
];

fn read_only(world: &World) -> Server {
    Server::new(Dashboard::new(world.shared()).router())
}

fn task_page(name: &str) -> String {
    format!("/task?namespace=prod&workflow=nightly&run=2026-01-31&task={}", escaped(name))
}

fn of_task<'a>(verb: &'a str, name: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("verb", verb),
        ("namespace", "prod"),
        ("workflow", "nightly"),
        ("run", "2026-01-31"),
        ("task", name),
    ]
}

#[test]
fn every_page_says_what_is_in_the_store() {
    let world = World::new();
    let server = read_only(&world);
    let says = |page: &str, texts: &[&str]| {
        let answer = server.get(page);
        assert_eq!(answer.status, 200, "{page}: {}", answer.body);
        for text in texts {
            assert!(answer.body.contains(text), "{page} does not say {text}: {}", answer.body);
        }
    };
    says(
        "/overview",
        &[
            "pool db: 0 open of 2, needs 1",
            "tasks?state=waiting&amp;pool=db\">58</a></td>",
            "2 running, 0 granted",
            "load-00",
            "waits to be tried again",
            "worker-1",
            "3 in 1m",
            "data-head=\"Token\">",
            "tasks?state=leased&amp;pool=db\">2</a> of 2",
        ],
    );
    says(
        "/tasks?state=failed",
        &["prod/<wbr>nightly/<wbr>2026-01-31/<wbr></span>fails", " on this page, the last"],
    );
    says("/tasks?state=up_for_retry", &["no route to host", "<caption>Tasks: state up for retry</caption>"]);
    says(
        "/tasks?pool=db&limit_key=tenant",
        &["<caption>Tasks: state any, pool db, limit key tenant</caption>"],
    );
    says("/tasks?state=leased&pool=db", &["state=leased&amp;holder=worker-1", "lease ends"]);
    says(
        "/task?namespace=prod&workflow=nightly&run=2026-01-31&task=load-59",
        &["pool db: 0 open of 2, needs 1", "57 ready tasks"],
    );
    says(&task_page("retries"), &["no route to host", "up for retry", "not before", "bar life"]);
    // All that stands before it is listed, as data.
    let pauses = [Subject::Queue("default".parse().unwrap()), Subject::Family("ten".parse().unwrap())];
    world.store.write(|tx| tx.pause(&pauses)).unwrap();
    says(
        &task_page("load-59"),
        &[
            "<ul class=\"reasons\"><li><a href=\"overview#queue-default\">queue default: paused</a></li>",
            "<li><a href=\"overview#family-ten\">limits ten*: paused</a></li>",
            "pool=db\">pool db: 0 open of 2, needs 1</a></li></ul>",
        ],
    );
    world.store.write(|tx| tx.resume(&pauses)).unwrap();
    says(&task_page("senses"), &["file_exists", "Poked every", "30s"]);
    says("/runs?zoom=24h", &["prod/<wbr>open", "prod/<wbr>ended", "2 runs were active"]);
    says("/runs?zoom=7d", &["3 runs were active"]);
    // An hour on 8 nodes, and another on 2.
    says(
        "/runs?zoom=24h&user=ann",
        &[
            "1 run was active",
            "prod/<wbr>ended",
            "value=\"ann\"",
            "data-head=\"Nodes\">2</td>",
            "10.00 node-hours",
        ],
    );
    says("/runs?zoom=24h&method=scheduled", &["1 run was active", "prod/<wbr>ended"]);
    says(
        "/runs?zoom=24h&method=scheduled&user=bob",
        &["No run was active in this window.", "Active runs<span class=\"note\"> – none"],
    );
    says("/sensors", &["file_exists", "no worker pokes them"]);
    says("/health", &["worker-1", "all queues", "tasks?state=leased&amp;holder=worker-1\">2</a>"]);
    says("/health", &["On disk", "free pages", " KiB</td>"]);
    says("/health", &["sqlite", "load-00", "Ready tasks", "Sensors</a> wait, and no worker pokes them"]);
    says("/audit", &["Every counter is equal"]);
}

#[test]
fn shares_say_who_holds_what_and_what_its_part_is() {
    let world = World::new();
    let server = read_only(&world);
    assert!(!server.get("/overview").body.contains("Shares"), "there is none");
    world.shared_pool();
    let body = server.get("/overview?n=1").body;
    let row = |share: &str, fields: [&str; 4]| {
        let heads = ["Holds", "Part", "Weight", "Ready"];
        let fields = heads
            .iter()
            .zip(fields)
            .map(|(head, field)| format!("<td role=\"cell\" data-head=\"{head}\">{field}</td>"));
        let fields: String = fields.collect();
        let (_, of) = body.split_once(&format!("state=waiting&amp;limit_key={share}")).expect(share);
        let of = of.split("</tr>").next().unwrap();
        // The number leads to those who hold it.
        let of = of.split("<a ").map(|part| match part.starts_with("href=\"tasks?state=leased") {
            true => part.split_once('>').unwrap().1.replacen("</a>", "", 1),
            false => format!("<a {part}"),
        });
        let of: String = of.collect();
        assert!(of.contains(&fields), "{share}: {fields} {of}");
    };
    row("team%2Fbig", ["3", "3.0", "3", "5"]);
    row("%3Cscript", ["1", "1.0", "1", "7"]);
    assert!(!body.contains("<script>window") && !body.contains("shares more"), "{body}");
    for n in 0..45 {
        world.share(&format!("team/{n}"), 1);
    }
    let body = server.get("/overview?n=2").body;
    assert_eq!(
        body.matches("data-head=\"Of its part\"").count(),
        40,
        "20 that hold the most, and 20 more that wait"
    );
    assert!(body.contains("There are 7 shares more"), "{body}");
}

/// The run of an attempt leads to its task, and other values narrow the page.
#[test]
fn rows_of_runs_lead_on() {
    use stationmaster::ops::StopBeforeStart;
    use stationmaster::run::{RunKey, RunRecord};

    let world = World::new();
    let task = world.task("load-00");
    let now = task.enqueued_at;
    let attempt = task.attempt_run(1).unwrap();
    let runs = [
        RunRecord::open(attempt.clone(), now).workflow("nightly".parse().unwrap()).user("bob & co"),
        RunRecord::open(RunKey::new("prod", "nightly@home").unwrap(), now),
    ];
    world.store.write(|tx| tx.record_runs(&runs, StopBeforeStart::Reject)).unwrap();
    let server = read_only(&world);
    assert_eq!(server.get("/runs?zoom=24h").body.matches("href=\"tasks?key=").count(), 1);
    let body = server.get("/runs?zoom=24h").body;
    // It may be broken behind the characters that separate its parts.
    let parts = attempt.id.as_str().split_inclusive(['/', '_', '.', ':', '@']);
    let id: String = parts
        .map(
            |part| {
                if part.ends_with(char::is_alphanumeric) { part.to_owned() } else { format!("{part}<wbr>") }
            },
        )
        .collect();
    let link = format!("href=\"tasks?key={}\">{id}</a>", task.id.0);
    assert!(body.contains(&link), "{link}: {body}");
    assert!(body.contains("namespace=prod&amp;workflow=nightly\">nightly</a>"), "{body}");
    assert!(body.contains("user=bob+%26+co\">bob &amp; co</a>"), "{body}");
    let found = server.get(&format!("/tasks?key={}", task.id.0)).body;
    assert!(found.contains("<h1>Task prod/nightly/2026-01-31/load-00</h1>"), "{found}");
}

/// The node-hours of a window by user; a name leads to that user's runs, and a filter stays.
#[test]
fn runs_are_counted_by_user() {
    use stationmaster::ops::StopBeforeStart;
    use stationmaster::run::{RunKey, RunRecord, RunStatus};
    use std::time::Duration;

    let world = World::new();
    let server = read_only(&world);
    let users = |page: &str| {
        let body = server.get(page).body;
        let (_, section) = body.split_once("<section id=\"users\"").expect(page);
        section.split("</section>").next().unwrap().to_owned()
    };
    let row = |name: &str, numbers: [&str; 4]| {
        let fields = ["Active", "Started", "Stopped", "Node-hours"].into_iter().zip(numbers);
        let fields =
            fields.map(|(head, field)| format!("<td role=\"cell\" data-head=\"{head}\">{field}</td>"));
        format!("{name}</th>{}", fields.collect::<String>())
    };
    let all = users("/runs?zoom=24h&status=completed");
    let ann =
        row("<a href=\"runs?zoom=24h&amp;status=completed&amp;user=ann\">ann</a>", ["1", "1", "1", "10.00"]);
    assert!(all.contains(&ann), "{ann} is not in {all}");
    assert!(users("/runs?zoom=24h&method=manual").contains("No run of this window has a user."));

    // 20 users have a row, and the other four one together.
    let long_ago = world.task("fails").enqueued_at - Duration::from_secs(20 * 86_400);
    let hour = Duration::from_secs(3_600);
    let run = |at: u32| {
        let run = RunRecord::open(RunKey::new("prod", format!("of-{at:02}")).unwrap(), long_ago);
        let run = if at == 23 { run } else { run.user(format!("user-{at:02}")) };
        run.nodes(long_ago, 1 + at % 23).closed(long_ago + hour, RunStatus::Completed)
    };
    let runs: Vec<RunRecord> = (0..24).map(run).collect();
    world.store.write(|tx| tx.record_runs(&runs, StopBeforeStart::Reject)).unwrap();
    let from = (chrono::Utc::now() - chrono::Duration::days(21)).format("%Y-%m-%dT%H:%M");
    let to = (chrono::Utc::now() - chrono::Duration::days(19)).format("%Y-%m-%dT%H:%M");
    let all = users(&format!("/runs?from={from}&to={to}"));
    let at = |text: &str| all.find(text).unwrap_or_else(|| panic!("{text} is not in {all}"));
    assert!(
        at(&row("user-22</a>", ["1", "1", "1", "23.00"])) < at(&row("user-03</a>", ["1", "1", "1", "4.00"]))
    );
    // Of users 00 to 02, and of the run of no user.
    at(&row("4 others", ["4", "4", "4", "7.00"]));
    assert!(!all.contains("user-02"), "{all}");
}

/// Both ends may be typed, to the second.
#[test]
fn a_window_between_two_instants_is_just_that() {
    let world = World::new();
    let server = read_only(&world);
    let now = chrono::Utc::now();
    let ago = |hours: i64, form: &str| (now - chrono::Duration::hours(hours)).format(form).to_string();
    let (from, to) = (ago(6, "%Y-%m-%dT%H:%M"), ago(4, "%Y-%m-%dT%H:%M:%S"));
    let answer = server.get(&format!("/runs?from={from}&to={to}"));
    let words = |text: &str| assert!(answer.body.contains(text), "{text}: {}", answer.body);
    words("1 run was active");
    words("prod/<wbr>ended");
    words(", a bar for 5m");
    words(&format!("{}:00 UTC to {} UTC", from.replace('T', " "), to.replace('T', " ")));
    words(&format!("name=\"from\" step=\"1\" value=\"{from}\""));
    let later = answer.body.split("\">Later</a>").next().unwrap().rsplit("href=\"").next().unwrap();
    let later = server.get(&format!("/{}", later.replace("&amp;", "&")));
    assert!(later.body.contains(&format!("{} UTC to ", to.replace('T', " "))), "{}", later.body);
    let today = server.get(&format!("/runs?from={}T00:00", now.format("%Y-%m-%d")));
    assert!(today.body.contains("aria-current=\"true\">Today"), "{}", today.body);
    assert!(!today.body.contains(">Later<"));
}

/// Whether an open run will still be active is not known.
#[test]
fn a_chart_ends_now() {
    let world = World::new();
    let server = read_only(&world);
    let at = |minutes: i64| {
        let at = chrono::Utc::now() + chrono::Duration::minutes(minutes);
        at.format("%Y-%m-%dT%H:%M").to_string()
    };
    let columns = |from: i64, to: i64| {
        let body = server.get(&format!("/runs?from={}&to={}", at(from), at(to))).body;
        assert!(body.contains("prod/<wbr>open"), "{body}");
        body.matches("class=\"column\"").count()
    };
    let (past, both) = (columns(-240, 0), columns(-60, 180));
    assert!(0 < both && both < past / 3, "{both} of {past}");
}

/// Each window begins where the one before it ends.
#[test]
fn earlier_and_later_are_whole_windows() {
    let world = World::new();
    let server = read_only(&world);
    let to = |answer: &Answer, name: &str| {
        let before = answer.body.split(&format!("\">{name}</a>")).next().unwrap();
        let link = before.rsplit("href=\"").next().unwrap().replace("&amp;", "&");
        format!("/{link}")
    };
    let window = |answer: &Answer| {
        let note = answer.body.split("<p class=\"note\">").find(|note| note.contains(", a bar for")).unwrap();
        let (begin, rest) = note.split_once(" to ").unwrap();
        (begin.to_owned(), rest.split_once(", a bar").unwrap().0.to_owned())
    };
    let now = server.get("/runs?zoom=1h");
    let earlier = server.get(&to(&now, "Earlier"));
    assert_eq!(window(&earlier).1, window(&now).0);
    let earliest = server.get(&to(&earlier, "Earlier"));
    assert_eq!(window(&earliest).1, window(&earlier).0);
    assert_eq!(window(&server.get(&to(&earliest, "Later"))), window(&earlier));
}

#[test]
fn a_list_goes_on_over_its_pages() {
    let world = World::new();
    let server = read_only(&world);
    let first = server.get("/tasks?state=waiting&queue=default");
    let link = first.body.split("rel=\"next\" href=\"").nth(1).expect("more than a page waits");
    let link = link.split('"').next().unwrap().replace("&amp;", "&");
    assert!(link.contains("queue=default"), "filters go along: {link}");
    let second = server.get(&format!("/{link}"));
    let names = |answer: &Answer| answer.body.matches("load-").count();
    // Each name is once in a link and once in its text.
    assert_eq!((names(&first) + names(&second)) / 2, 58);
    assert!(!second.body.contains("rel=\"next\""));
}

#[test]
fn what_cannot_be_asked_is_refused_with_a_reason() {
    let world = World::new();
    let server = read_only(&world);
    for (path, status, text) in [
        ("/nothing", 404, "no such page"),
        ("/task?namespace=prod", 400, "The name of the workflow is missing"),
        (task_page("missing").as_str(), 404, "There is no task"),
        ("/tasks?state=odd", 400, "no such state"),
        ("/tasks?workflow=nightly", 400, "names no namespace"),
        ("/tasks?after=zzz", 400, ""),
        ("/tasks?namespace=a%00b", 400, "NUL"),
        ("/runs?zoom=2y", 400, "zoom"),
        ("/runs?until=soon", 400, "until"),
        ("/runs?method=odd", 400, "method"),
        ("/runs?from=noon", 400, "from: an instant"),
        ("/runs?to=2026-01-31T03:00", 400, "from: with"),
        ("/runs?from=2026-01-31T03:00&to=2026-01-31T03:00", 400, "to: the window ends"),
        ("/runs?from=9999-12-31T23:59&to=10000-01-01T00:00", 400, "to: an instant"),
        ("/runs?until=99999999999999999999", 400, "until"),
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.body.contains(text), "{path}: {}", answer.body);
        // What was typed can be corrected.
        let has_form = path.starts_with("/tasks") || path.starts_with("/runs");
        assert_eq!(answer.body.contains("form class=\"search\""), has_form, "{path}: {}", answer.body);
    }
    assert!(server.get("/tasks?workflow=nightly").body.contains("name=\"workflow\" value=\"nightly\""));
    assert_eq!(server.get("/runs?until=-9223372036854775808&zoom=90d").status, 200);
    assert_eq!(server.get("/runs?until=9223372036854775807").status, 200);
    assert_eq!(server.get("/runs?from=1970-01-01T00:00&to=9999-12-31T23:59:59").status, 200);
    assert_eq!(server.get("/runs?from=9999-12-31T23:59:59").status, 200);
}

#[test]
fn hostile_names_are_text_everywhere() {
    let world = World::new();
    let board = Dashboard::new(world.shared()).show_payloads(true).allow_changes(|_| Some(HOSTILE.into()));
    let server = Server::new(board.router());
    let hostile = task_page(HOSTILE);
    let pools = format!("/tasks?pool={}", escaped(HOSTILE));
    let pages =
        PAGES.into_iter().chain([hostile.as_str(), pools.as_str(), "/runs?zoom=7d", "/tasks?state=failed"]);
    let mut shown = 0;
    for page in pages {
        let body = server.get(page).body;
        assert!(!body.contains("<script>window") && !body.contains("<img"), "{page}");
        // A form sends a name as it is. No one reads it there.
        let read: String =
            body.split("value=\"").map(|part| part.split_once('"').map_or("", |(_, rest)| rest)).collect();
        assert!(!read.contains('\u{202e}'), "{page}");
        shown += usize::from(body.contains("&lt;script&gt;window"));
    }
    assert!(shown >= 5, "{shown} pages show a hostile name");
    let done = server.submit("/overview", &[("verb", "pause"), ("kind", "pool"), ("name", HOSTILE)]);
    assert!(done.status == 200 && !done.body.contains("<img"), "{}", done.body);
}

#[test]
fn payloads_are_hidden_unless_asked_for() {
    let world = World::new();
    let page = task_page("load-00");
    let hidden = read_only(&world).get(&page).body;
    assert!(!hidden.contains(SECRET) && hidden.contains("26 bytes, hidden"), "{hidden}");
    assert!(!read_only(&world).get(&task_page("senses")).body.contains("/data/ready"));
    let server = Server::new(Dashboard::new(world.shared()).show_payloads(true).router());
    assert!(server.get(&page).body.contains(SECRET));
    assert!(server.get(&task_page("senses")).body.contains("/data/ready"));
}

#[test]
fn every_answer_keeps_the_page_to_itself() {
    let world = World::new();
    let server = read_only(&world);
    let others = ["/", "/style.css", "/script.js", "/icon.svg", "/nothing", "/tasks?state=odd"];
    let mut bytes = 0;
    for path in PAGES.into_iter().chain(others) {
        let answer = server.get(path);
        let policy = answer.header("content-security-policy").unwrap();
        for part in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"]
        {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("referrer-policy"), Some("same-origin"), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(answer.header("set-cookie"), None, "{path}: who only looks needs none");
        if path.contains('.') {
            bytes += answer.body.len();
        }
        // What the policy forbids would not work.
        assert!(!answer.body.contains(" style=\"") && !answer.body.contains(" onclick="), "{path}");
    }
    assert!(bytes > 1_000 && bytes < 50_000, "{bytes} bytes of files");
}

#[test]
fn nothing_changes_unless_the_host_says_who_changes_it() {
    let world = World::new();
    let server = read_only(&world);
    for page in PAGES {
        let body = server.get(page).body;
        assert!(!body.contains("method=\"post\"") && !body.contains("name=\"mark\""), "{page}");
    }
    let answer = server.post(&[], &of_task("cancel", "load-40"));
    assert_eq!(answer.status, 403);
    assert_eq!(world.state("load-40"), TaskState::Scheduled);
    // One may change something, the others may not.
    let board = Dashboard::new(world.shared())
        .allow_changes(|parts| (parts.headers.get("x-user")? == "ann").then(|| "ann".into()));
    let server = Server::new(board.router());
    let page = task_page("load-40");
    let of = |user: &str| send(server.at, "GET", &page, &[("X-User", user)], "");
    assert!(of("ann").mark().is_some());
    assert!(of("bob").mark().is_none(), "a page with forms is not shown to those who may not use them");
    let ann = of("ann");
    let cookie = ann.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let mark = ann.mark().unwrap();
    let fields = [&of_task("cancel", "load-40")[..], &[("mark", &mark)]].concat();
    assert_eq!(server.post(&[("X-User", "bob"), ("Cookie", &cookie)], &fields).status, 403);
    assert_eq!(world.state("load-40"), TaskState::Scheduled);
    assert_eq!(server.post(&[("X-User", "ann"), ("Cookie", &cookie)], &fields).status, 200);
    assert_eq!(world.state("load-40"), TaskState::Cancelled);
}

#[test]
fn a_form_of_another_site_is_refused() {
    let world = World::new();
    let server = Server::new(Dashboard::new(world.shared()).allow_changes(|_| Some("ann".into())).router());
    let page = server.get("/overview");
    let set = page.header("set-cookie").unwrap();
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
    let cookie = set.split(';').next().unwrap();
    let mark = page.mark().unwrap();
    let pause = [("verb", "pause"), ("kind", "pool"), ("name", "db")];
    let with = [&pause[..], &[("mark", &mark)]].concat();
    let paused = || world.store.read(|tx| tx.paused()).unwrap();
    let own = format!("http://{}", server.at);
    for (why, headers, fields) in [
        ("no cookie", vec![], &with[..]),
        ("no mark", vec![("Cookie", cookie)], &pause[..]),
        (
            "another's mark",
            vec![("Cookie", "stationmaster_form=0123456789abcdef0123456789abcdef")],
            &with[..],
        ),
        ("another origin", vec![("Cookie", cookie), ("Origin", "http://evil.example")], &with[..]),
        ("no origin", vec![("Cookie", cookie), ("Origin", "null")], &with[..]),
        ("another site", vec![("Cookie", cookie), ("Sec-Fetch-Site", "cross-site")], &with[..]),
    ] {
        assert_eq!(server.post(&headers, fields).status, 403, "{why}");
        assert!(paused().is_empty(), "{why}");
    }
    let get = send(server.at, "GET", &format!("/change?{}", form(&with)), &[("Cookie", cookie)], "");
    assert_eq!(get.status, 405, "a link changes nothing");
    assert_eq!(server.post(&[("Cookie", cookie), ("Origin", &own)], &with).status, 200);
    assert_eq!(paused(), [Subject::Pool("db".parse().unwrap())]);
    let long = "x".repeat(40_000);
    let too_long = [&with[..], &[("message", &long)]].concat();
    assert_eq!(server.post(&[("Cookie", cookie)], &too_long).status, 413);
}

#[test]
fn changes_are_made_reported_and_shown_at_once() {
    let world = World::new();
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&told);
    let board = Dashboard::new(world.shared())
        .allow_changes(|_| Some("ann\n<b>".into()))
        .log(move |change| log.lock().unwrap().push(change.to_string()));
    let server = Server::new(board.router());
    let last = || told.lock().unwrap().last().unwrap().clone();

    let page = task_page("load-41");
    let cancel = [&of_task("cancel", "load-41")[..], &[("message", "not today"), ("grace", "0")]].concat();
    let done = server.submit(&page, &cancel);
    assert!(done.status == 200 && done.body.contains("cancelled; it was scheduled"), "{}", done.body);
    let task = world.task("load-41");
    assert_eq!(task.state, TaskState::Cancelled);
    assert_eq!(task.message.unwrap(), "cancelled by ann\n<b> on the dashboard: not today");
    assert_eq!(last(), "ann\\n<b>: cancel task prod/nightly/2026-01-31/load-41: cancelled; it was scheduled");
    assert!(server.get(&page).body.contains("state cancelled"), "what was shown before is forgotten");

    let done = server.submit(&page, &of_task("retry", "load-41"));
    assert!(done.body.contains("ready again"), "{}", done.body);
    assert_eq!(world.state("load-41"), TaskState::Scheduled);
    server.submit(&page, &of_task("retry", "retries"));
    assert!(world.task("retries").is_ready(), "it need not wait for its retry");

    let running = server.submit(&page, &[&of_task("cancel", "load-00")[..], &[("grace", "60")]].concat());
    assert!(running.body.contains("asked to stop"), "{}", running.body);
    assert!(world.task("load-00").lease.unwrap().cancel_at.is_some());

    let pause = |verb: &str| server.submit(&page, &[("verb", verb), ("kind", "queue"), ("name", "default")]);
    assert!(pause("pause").body.contains("paused; "));
    assert!(server.get("/overview").body.contains("queue default: paused"), "it is the reason of the others");
    assert!(pause("resume").body.contains("resumed"));
    assert_eq!(last(), "ann\\n<b>: resume queue default: resumed");
    let told_before = told.lock().unwrap().len();
    for bad in [&[("verb", "drop")][..], &[("verb", "pause"), ("kind", "door")], &[("verb", "cancel")]] {
        assert_eq!(server.submit(&page, bad).status, 400);
    }
    assert_eq!(told.lock().unwrap().len(), told_before);
}

#[test]
fn it_works_under_any_path() {
    let world = World::new();
    let board = || Dashboard::new(world.shared()).allow_changes(|_| Some("ann".into())).router();
    let app = Router::new().nest_service("/ops/jobs", board()).nest("/other", board());
    let server = Server::new(app);
    let folders = [("/ops/jobs", "jobs/overview"), ("/ops/jobs/", "overview"), ("/other", "other/overview")];
    for (at, to) in folders {
        let answer = server.get(at);
        assert_eq!((answer.status, answer.header("location")), (303, Some(to)), "{at}");
    }
    let alone = Server::new(board());
    assert_eq!(alone.get("/").header("location"), Some("overview"));
    let page = server.get("/ops/jobs/overview");
    assert_eq!(page.status, 200);
    assert_eq!(server.get("/ops/jobs/style.css").status, 200);
    assert_eq!(server.get("/style.css").status, 404);
    for link in page.body.split("href=\"").skip(1) {
        assert!(!link.starts_with('/') && !link.starts_with("http"), "relative: {link:.60}");
    }
    assert!(page.body.contains("action=\"change\""));
    assert!(!page.header("set-cookie").unwrap().contains("Path"), "its folder, whatever a proxy makes of it");
}

#[test]
fn a_page_that_many_ask_for_is_computed_once() {
    use stationmaster::store::{MemoryStore, Store, StoreInfo, Tx, TxMode};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug)]
    struct Counted(MemoryStore, AtomicUsize);
    impl Store for Counted {
        fn info(&self) -> StoreInfo {
            self.0.info()
        }
        fn transact(
            &self,
            mode: TxMode,
            body: &mut dyn FnMut(&mut Tx<'_>) -> stationmaster::Result<()>,
        ) -> stationmaster::Result<()> {
            self.1.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(50));
            self.0.transact(mode, body)
        }
    }
    let store = Arc::new(Counted(MemoryStore::new(), AtomicUsize::new(0)));
    let server = Server::new(Dashboard::new(store.clone()).router());
    server.get("/audit");
    let alone = store.1.swap(0, Ordering::SeqCst);
    assert_eq!(alone, 1);
    let at = server.at;
    let askers: Vec<_> =
        (0..20).map(|_| std::thread::spawn(move || send(at, "GET", "/audit?x=1", &[], "").status)).collect();
    assert!(askers.into_iter().all(|asker| asker.join().unwrap() == 200));
    assert_eq!(store.1.load(Ordering::SeqCst), 1);
}

#[test]
fn what_sharing_saves_is_that_of_the_most_eager_of_each_target() {
    use std::time::Duration;

    use stationmaster::canonical::PokeContext;
    use stationmaster::ops::AdmitRequest;
    use stationmaster::sensor::{NewSensor, Settings};
    use stationmaster::store::MemoryStore;
    use stationmaster::{NewTask, Timestamp};

    let of_none = Server::new(Dashboard::new(Arc::new(MemoryStore::new())).router()).get("/sensors").body;
    assert!(of_none.contains("No sensor waits.") && !of_none.contains("Pokes an hour"), "{of_none}");
    let store = MemoryStore::new();
    let now = Timestamp::UNIX_EPOCH;
    // Alone 120, 60 and 60 times an hour; together 120 and 60.
    let wanted = [("a", "x", 30), ("b", "x", 60), ("c", "y", 60)];
    let tasks: Vec<NewTask> = wanted.iter().map(|(name, ..)| NewTask::new(crate::world::key(name))).collect();
    store.write(|tx| tx.enqueue(now, &tasks)).unwrap();
    let order =
        AdmitRequest::new("w".try_into().unwrap(), "t".try_into().unwrap(), 3, Duration::from_secs(60))
            .started();
    let granted = store.write(|tx| tx.admit(now, &order)).unwrap().granted;
    let sensors: Vec<NewSensor> = granted
        .iter()
        .map(|task| {
            let (_, path, seconds) =
                wanted.iter().find(|(name, ..)| *name == task.key.task.as_str()).unwrap();
            let settings = Settings::new(Duration::from_secs(*seconds), Duration::from_secs(3_600)).unwrap();
            let context = PokeContext::from_json(&format!(r#"{{"path":"{path}"}}"#)).unwrap();
            NewSensor::new(task.lease_ref(), "file".parse().unwrap(), context, settings)
        })
        .collect();
    store.write(|tx| tx.register(now, &sensors)).unwrap();
    let body = Server::new(Dashboard::new(Arc::new(store)).router()).get("/sensors").body;
    assert!(body.contains("180 instead of 240: sharing saves 25 %"), "{body}");
}

#[test]
fn what_sharing_saved_is_shown_by_period_and_kind() {
    use std::time::Duration;

    use stationmaster::Timestamp;
    use stationmaster::clock::{Clock, SystemClock};
    use stationmaster::sensor::PokeCounts;
    use stationmaster::store::MemoryStore;
    use stationmaster::store::contract::PokeCountRow;
    use stationmaster::testing::raw;

    let of_none = Server::new(Dashboard::new(Arc::new(MemoryStore::new())).router()).get("/sensors").body;
    assert!(of_none.contains("No worker has stored that it poked in the last 7 days."), "{of_none}");
    let (store, hour) = (MemoryStore::new(), 3_600_000_000);
    let this_hour = SystemClock.now().as_micros().div_euclid(hour) * hour;
    // The last hour of yesterday, UTC. It is one of the last 24.
    let before_midnight = (this_hour / hour).rem_euclid(24) + 1;
    let row = |hours: i64, kind: &str, poked, saved| {
        let began = Timestamp::from_micros(this_hour - hours * hour);
        let counts = PokeCounts::new(began, kind.try_into().unwrap(), poked, saved, Duration::from_secs(90));
        PokeCountRow::new("w".try_into().unwrap(), 1, counts)
    };
    let rows = [
        row(0, "file", 1_000, 3_000),
        row(0, "<table>", 30, 0),
        row(before_midnight, "night", 5, 5),
        row(72, "file", 100, 0),
        row(24 * 7 + 1, "file", 7_777, 7_777),
    ];
    store.write(|tx| Ok(raw(tx).put_poke_counts(&rows, Timestamp::MIN)?)).unwrap();
    let body = Server::new(Dashboard::new(Arc::new(store)).router()).get("/sensors").body;
    let shown = |period: &str, fields: [&str; 5]| {
        let heads = ["Kind", "Pokes made", "Pokes saved", "Share saved", "Time poking"];
        let cells = heads.iter().zip(fields);
        let cells = cells.map(|(head, field)| format!("<td role=\"cell\" data-head=\"{head}\">{field}</td>"));
        let row = format!("<th scope=\"row\" role=\"rowheader\">{period}</th>{}", cells.collect::<String>());
        assert!(body.contains(&row), "{row} in {body}");
    };
    shown("Today, UTC", ["all kinds", "1,030", "3,000", "74 %", "3m"]);
    shown("7 days", ["night", "5", "5", "50 %", "1m 30s"]);
    let (today, _) = body.split_once("24 hours").unwrap();
    assert!(!today.contains("night"), "{today}");
    for period in ["Today, UTC", "24 hours"] {
        shown(period, ["&lt;table&gt;", "30", "0", "0 %", "1m 30s"]);
        shown(period, ["file", "1,000", "3,000", "75 %", "1m 30s"]);
    }
    shown("7 days", ["file", "1,100", "3,000", "73 %", "3m"]);
    assert!(!body.contains("7,777"));
}
