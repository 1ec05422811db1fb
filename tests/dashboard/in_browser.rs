//! A browser opens every page, searches, zooms, waits for news, and changes something.

use serde_json::json;
use stationmaster::TaskState;
use stationmaster::admission::Subject;
use stationmaster::dashboard::Dashboard;
use stationmaster::dashboard::axum::Router;

use crate::browser::{Browser, find};
use crate::http::{Server, escaped};
use crate::world::{HOSTILE, World};

#[test]
fn a_browser_shows_the_pages_and_keeps_them_up_to_date() {
    let Some(program) = find() else {
        eprintln!("SKIPPED: no Chromium was found, so no browser opened the dashboard");
        return;
    };
    let world = World::new();
    let board = |may: bool| {
        let board = Dashboard::new(world.shared()).show_payloads(true);
        if may { board.allow_changes(|_| Some("ann".into())).router() } else { board.router() }
    };
    let server = Server::new(Router::new().nest("/ops", board(true)).nest("/look", board(false)));
    let base = format!("http://{}/", server.at);
    let mut browser = Browser::start(&program);

    // Every page by its link, from the folder's own address.
    browser.open(&format!("{base}ops"));
    assert_eq!(browser.eval("location.pathname"), "/ops/overview");
    for name in ["tasks", "runs", "sensors", "health", "audit", "overview", "next", "overview"] {
        browser.follow(&format!("a[href={name}]"));
        assert_eq!(browser.eval("document.querySelectorAll('h1').length"), 1, "{name}");
        assert_eq!(browser.eval("location.pathname"), format!("/ops/{name}"));
        // Nothing is wider than the page itself, also on a phone.
        for width in [1280, 360] {
            let size =
                json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500 });
            browser.call("Emulation.setDeviceMetricsOverride", size);
            // A phone's own width: `innerWidth` grows with a page that is too wide.
            let wide = browser.eval("document.documentElement.scrollWidth").as_u64().unwrap();
            assert!(wide <= width, "{name} at {width}: {wide}");
            // The cards of a phone are not cut either.
            let cut = "[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth)\
                       .map(box => box.ariaLabel).join()";
            assert!(width > 500 || browser.eval(cut) == "", "{name}: {}", browser.eval(cut));
        }
        browser.call("Emulation.clearDeviceMetricsOverride", json!({}));
    }
    let bars = "[...document.querySelectorAll('svg.bar')].every(bar => bar.getAttribute('aria-label'))";
    assert_eq!(browser.eval(bars), true);
    let named = "[...document.querySelectorAll('input:not([type=hidden]), select')].every(field => field.labels.length || field.ariaLabel)";
    assert_eq!(browser.eval("getComputedStyle(document.body).margin"), "0px", "the styles are applied");

    // Search.
    browser.follow("header a[href=tasks]");
    assert_eq!(browser.eval(named), true);
    browser.eval("document.querySelector('#state').value = 'failed'");
    browser.follow("form.search button");
    let found = browser.text("#list");
    assert!(found.contains("fails") && !found.contains("load-"), "{found}");
    browser.eval("for (const [id, value] of Object.entries({namespace: 'prod', workflow: 'nightly', run: '2026-01-31', task: 'load-07'})) document.getElementById(id).value = value");
    browser.follow("form.search button");
    assert!(browser.text("h1").contains("load-07"), "a task that is named in full is shown");
    assert!(browser.text("#facts").contains("pool db: 0 open of 2"), "{}", browser.text("#facts"));

    // Zoom.
    browser.follow("header a[href=runs]");
    assert!(!browser.text("#runs").contains("<script>"), "the run of 30 hours ago");
    assert_eq!(browser.eval("document.querySelectorAll('#active-chart rect.column').length"), 72);
    browser.follow("nav.zoom a[href^='runs?zoom=90d']");
    assert_eq!(browser.eval("document.querySelectorAll('#active-chart rect.column').length"), 90);
    assert!(browser.text("#runs").contains("3 runs were active"), "{}", browser.text("#runs"));

    // News without loading again; what somebody uses stays.
    browser.open(&format!("{base}ops/tasks?state=waiting&namespace=prod"));
    browser.eval("window.loaded = 1; document.querySelector('#queue').value = 'half typed'; document.querySelector('#list a').focus(); window.focused = document.activeElement.textContent");
    world.enqueue("a-new-one");
    browser.wait("document.querySelector('#list').innerText.includes('a-new-one')");
    assert_eq!(browser.eval("window.loaded"), 1);
    assert_eq!(browser.eval("document.querySelector('#queue').value"), "half typed");
    assert_eq!(
        browser.eval("document.activeElement.tagName + document.activeElement.closest('#list').id"),
        "Alist"
    );
    assert_eq!(browser.text("#live-status"), "", "an update is not spoken");
    browser.eval("document.querySelector('#live-button').click()");
    assert_eq!(browser.text("#live-status"), "Updates are paused.");

    // Who may only look finds nothing to press.
    browser.open(&format!("{base}look/overview"));
    assert_eq!(browser.eval("document.querySelectorAll('main button').length"), 0);

    // Cancel and pause, in place: what came of it is said, and the page shows it.
    let page = format!("{base}ops/task?namespace=prod&workflow=nightly&run=2026-01-31&task=load-08");
    browser.open(&page);
    let says =
        |text: &str| format!("document.querySelector('#live-status').textContent.includes({})", json!(text));
    let shows =
        |id: &str, text: &str| format!("document.querySelector('#{id}').innerText.includes({})", json!(text));
    browser.eval("window.loaded = 1; document.querySelector('#actions summary').click(); document.querySelector('#message').value = 'typed'; document.querySelector('#actions button.danger').click()");
    browser.wait(&says("cancelled; it was scheduled"));
    assert_eq!(world.state("load-08"), TaskState::Cancelled);
    assert!(world.task("load-08").message.unwrap().ends_with("typed"));
    browser.wait(&shows("facts", "cancelled"));
    browser.eval("document.querySelector('#actions button').click()");
    browser.wait(&says("ready again"));
    browser.wait(&shows("facts", "Ready since"));
    browser.open(&format!("{base}ops/overview"));
    browser.eval("window.loaded = 1; document.querySelector(\"button[aria-label='pause pool db']\").click()");
    browser.wait(&says("paused; 2 leases go on"));
    assert_eq!(world.store.read(|tx| tx.paused()).unwrap(), [Subject::Pool("db".parse().unwrap())]);
    browser.wait(&shows("why", "pool db: paused"));
    browser.wait(&shows("attention", "pool db: paused"));
    browser.eval("document.querySelector('#attention button').click()");
    browser.wait(&says("resumed"));
    assert_eq!(browser.eval("window.loaded"), 1, "no page was loaded again");

    // Ticks outlive updates, and go with the change.
    browser.open(&format!("{base}ops/tasks?state=waiting"));
    browser.eval("document.querySelector('[data-tick=all]').click()");
    assert_eq!(browser.eval("document.querySelectorAll('.tick:checked').length"), 50);
    browser.eval("document.querySelector('[data-tick=\"\"]').click()");
    assert_eq!(browser.eval("document.querySelectorAll('.tick:checked').length"), 0);
    browser.eval(
        "const box = document.querySelector(\".tick[aria-label$='load-20']\"); box.click(); box.focus()",
    );
    // The page is fetched again; the list stays.
    browser.wait("document.querySelector('#live-at').textContent.startsWith('Updated ') && !document.querySelector('#live-at').textContent.includes('every')");
    assert_eq!(browser.eval("document.querySelectorAll('.tick:checked').length"), 1);
    // The Enter key in a field of this form does nothing on its own.
    browser
        .eval("document.querySelector('#list summary').click(); document.querySelector('#message').focus()");
    for kind in ["keyDown", "keyUp"] {
        let key = json!({ "type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r" });
        browser.call("Input.dispatchKeyEvent", key);
    }
    assert_eq!(browser.eval("window.sent === undefined"), true);
    browser.eval("document.querySelector('.bulk button[value=cancel]').click()");
    browser.wait(&says("cancel task prod/nightly/2026-01-31/load-20: cancelled"));
    assert_eq!(world.state("load-20"), TaskState::Cancelled);
    browser.wait("document.querySelectorAll('.tick:checked').length === 0 && !document.querySelector('#list').innerText.includes('load-20')");

    // A key is copied as it is typed.
    let granted = json!({ "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"] });
    browser.call("Browser.grantPermissions", granted);
    browser.open(&page);
    browser.eval("window.copied = new Promise(done => { navigator.clipboard.writeText = text => { done(text); return Promise.resolve(); }; }); document.querySelector('[data-copy]').click()");
    assert_eq!(browser.eval("window.copied"), "[\"prod\",\"nightly\",\"2026-01-31\",\"load-08\"]");
    assert_ne!(browser.eval("getComputedStyle(document.querySelector('[data-copy]')).display"), "none");

    // Without TLS a browser has no clipboard.
    browser.open(&page);
    browser.eval("Object.defineProperty(navigator, 'clipboard', { value: undefined }); document.execCommand = () => { window.copied = document.activeElement.value; return true; }; document.querySelector('.title [data-copy]').click()");
    browser.wait(&says("Copied."));
    assert_eq!(browser.eval("window.copied"), "[\"prod\",\"nightly\",\"2026-01-31\",\"load-08\"]");
    assert_eq!(browser.eval("document.querySelectorAll('textarea').length"), 0);

    // Hostile names are text.
    browser.open(&format!(
        "{base}ops/task?namespace=prod&workflow=nightly&run=2026-01-31&task={}",
        escaped(HOSTILE)
    ));
    assert!(browser.text("h1").contains("<script>window.pwned=1</script>"), "{}", browser.text("h1"));
    assert!(browser.text("#facts").contains("<img src=x"), "{}", browser.text("#facts"));
    browser.open(&format!("{base}ops/runs?zoom=7d"));
    assert!(browser.text("#runs").contains("<script>"));
    assert_eq!(
        browser.eval(
            "window.pwned === undefined && document.querySelectorAll('main img, main script').length === 0"
        ),
        true
    );

    // Without JavaScript everything can still be read, and changed by pages of its own.
    browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    browser.open(&format!("{base}ops/overview"));
    assert!(browser.text("#pools").contains("db"));
    browser.follow("button[aria-label='pause pool db']");
    assert!(browser.text("#result").contains("paused; 2 leases go on"), "{}", browser.text("main"));
    browser.follow("main a");
    assert_eq!(browser.eval("location.pathname + location.hash"), "/ops/overview#pools");
    assert!(browser.text("#why").contains("pool db: paused"), "{}", browser.text("#why"));
    browser.open(&page);
    assert_eq!(browser.eval("getComputedStyle(document.querySelector('[data-copy]')).display"), "none");
    browser.open(&format!("{base}ops/tasks?state=waiting"));
    assert_eq!(browser.eval("getComputedStyle(document.querySelector('[data-tick=all]')).display === 'none' || document.querySelector('[data-tick=all]').offsetParent === null"), true);
    browser.eval("document.querySelector(\".tick[aria-label$='load-30']\").checked = true");
    browser.follow(".bulk button[value=delete]");
    assert!(browser.text("#result").contains("deleted"), "{}", browser.text("main"));
    browser.follow("main a");
    assert_eq!(browser.eval("location.pathname + location.search"), "/ops/tasks?state=waiting");
    browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": false }));

    // Roles outlive the cards of a phone.
    let phone = json!({ "width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": true });
    browser.call("Emulation.setDeviceMetricsOverride", phone);
    browser.open(&format!("{base}ops/overview"));
    assert_eq!(browser.eval("getComputedStyle(document.querySelector('#pools td')).display"), "flow-root");
    assert_eq!(browser.eval("document.querySelector('#pools td').role"), "cell");

    let complaints = browser.complaints(&base);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// A page that is not up to date says since when, and why, also to someone who has scrolled down.
#[test]
fn a_browser_says_why_a_page_is_not_up_to_date() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use stationmaster::dashboard::axum::extract::Request;
    use stationmaster::dashboard::axum::http::{StatusCode, header};
    use stationmaster::dashboard::axum::middleware::{Next, from_fn};
    use stationmaster::dashboard::axum::response::IntoResponse;

    let Some(program) = find() else {
        eprintln!("SKIPPED: no Chromium was found, so no browser lost its server");
        return;
    };
    let world = World::new();
    let away = Arc::new(AtomicBool::new(false));
    let leads = Arc::clone(&away);
    let login = from_fn(move |request: Request, next: Next| {
        let leads = leads.load(Ordering::SeqCst);
        async move {
            if leads {
                return (StatusCode::SEE_OTHER, [(header::LOCATION, "https://login.example/")])
                    .into_response();
            }
            next.run(request).await
        }
    });
    let server = Server::new(Dashboard::new(world.shared()).router().layer(login));
    let mut browser = Browser::start(&program);
    let page =
        format!("http://{}/task?namespace=prod&workflow=nightly&run=2026-01-31&task=load-50", server.at);
    browser.open(&page);
    let says =
        |text: &str| format!("document.querySelector('#live-status').textContent.includes({})", json!(text));
    away.store(true, Ordering::SeqCst);
    browser.wait(&says(" UTC: the server leads elsewhere, perhaps to a login. Load the page again. It is"));
    assert!(browser.text("#live-status").starts_with("Not up to date since "));
    let small = json!({ "width": 600, "height": 300, "deviceScaleFactor": 1, "mobile": false });
    browser.call("Emulation.setDeviceMetricsOverride", small);
    browser.eval("scrollTo(0, document.body.scrollHeight)");
    assert_eq!(browser.eval("document.querySelector('#live-status').getBoundingClientRect().top"), 0);
    away.store(false, Ordering::SeqCst);
    browser.wait(&says("The page is up to date again."));
    let key = crate::world::key("load-50");
    world.store.write(|tx| tx.delete(std::slice::from_ref(&key))).unwrap();
    browser.wait(&says("There is no task prod/nightly/2026-01-31/load-50. It is asked again."));
    drop(server);
    browser.wait(&says("the server does not answer. It is asked again."));
}
