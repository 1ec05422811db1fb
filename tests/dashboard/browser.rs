//! A headless Chromium, driven by its own protocol.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Browser {
    child: Child,
    socket: WebSocket<TcpStream>,
    session: Option<String>,
    calls: u64,
    pub events: Vec<Value>,
    _folder: tempfile::TempDir,
}

/// Returns where a Chromium is, if there is one: `STATIONMASTER_TEST_CHROMIUM`, or in a usual place.
pub fn find() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("STATIONMASTER_TEST_CHROMIUM") {
        return Some(path.into());
    }
    let usual = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    usual.into_iter().map(PathBuf::from).find(|path| path.exists())
}

impl Browser {
    pub fn start(program: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new(program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-dev-shm-usage", "--remote-debugging-port=0", "--window-size=1280,900"])
            .arg(format!("--user-data-dir={}", folder.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let file = folder.path().join("DevToolsActivePort");
        let begun = Instant::now();
        let (port, path) = loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if let Some((port, path)) = text.split_once('\n') {
                break (port.to_owned(), path.trim().to_owned());
            }
            assert!(begun.elapsed() < PATIENCE, "the browser did not start");
            std::thread::sleep(Duration::from_millis(50));
        };
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (socket, _) = tungstenite::client(format!("ws://127.0.0.1:{port}{path}"), stream).unwrap();
        let (session, calls, events) = (None, 0, Vec::new());
        let mut browser = Self { child, socket, session, calls, events, _folder: folder };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut order = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            order["sessionId"] = json!(session);
        }
        self.socket.send(Message::text(order.to_string())).unwrap();
        loop {
            let answer = self.read();
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    /// Reads what the browser says next, and keeps it if it is an event.
    fn read(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.socket.read().unwrap() {
                let said: Value = serde_json::from_str(&text).unwrap();
                if said["id"].is_null() {
                    self.events.push(said.clone());
                }
                return said;
            }
        }
    }

    /// Does what leads to another page, and waits until that is there.
    pub fn load(&mut self, mut lead: impl FnMut(&mut Self)) {
        let begin = self.events.len();
        lead(self);
        let is_there = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events[begin..].iter().any(is_there) {
            self.read();
        }
    }

    pub fn open(&mut self, url: &str) {
        self.load(|browser| {
            let opened = browser.call("Page.navigate", json!({ "url": url }));
            assert!(opened["errorText"].is_null(), "{url}: {opened}");
        });
    }

    pub fn eval(&mut self, script: &str) -> Value {
        let params = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let done = self.call("Runtime.evaluate", params);
        assert!(done["exceptionDetails"].is_null(), "{script}: {}", done["exceptionDetails"]);
        done["result"]["value"].clone()
    }

    pub fn text(&mut self, selector: &str) -> String {
        let script = format!("document.querySelector({})?.innerText ?? ''", json!(selector));
        self.eval(&script).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the script returns true.
    pub fn wait(&mut self, script: &str) {
        let begun = Instant::now();
        while self.eval(script) != json!(true) {
            assert!(begun.elapsed() < PATIENCE, "never: {script}\n{}", self.text("main"));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Clicks on what leads to another page.
    pub fn follow(&mut self, selector: &str) {
        self.load(|browser| {
            browser.eval(&format!("document.querySelector({}).click()", json!(selector)));
        });
    }

    /// Returns what the console says of errors, and the addresses that were asked for elsewhere.
    pub fn complaints(&self, base: &str) -> Vec<String> {
        let complaint = |event: &Value| {
            let params = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" if params["type"] == "error" => Some(params["args"].to_string()),
                "Log.entryAdded" if params["entry"]["level"] == "error" => Some(params["entry"].to_string()),
                "Network.requestWillBeSent" => {
                    let url = params["request"]["url"].as_str()?;
                    // What begins with `data:` holds its own data: the browser's picture beside a field for an instant.
                    (!url.starts_with(base) && !url.starts_with("data:")).then(|| url.to_owned())
                }
                _ => None,
            }
        };
        self.events.iter().filter_map(complaint).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends its own processes when it is asked. Killing comes after, if it does not.
        self.session = None;
        let order = json!({ "id": 0, "method": "Browser.close", "params": {} });
        let _ = self.socket.send(Message::text(order.to_string()));
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
