//! The trial: starts the processes, plays customers and operator over HTTP, kills processes, and runs the checks.

use std::io::{Read, stdin};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::service::LoopHandle;
use tokio::runtime::Runtime;

use crate::check::{self, Seen};
use crate::domain::{Film, TABLES, minute};
use crate::glue::{App, Result};

const FILMS: i64 = 300;
const KILLS: usize = 8;
const PROCESSES: [(&str, &str); 5] =
    [("web", "web"), ("gpu", "gpu-1"), ("cpu", "cpu-1"), ("gpu", "gpu-2"), ("cpu", "cpu-2")];
const SECOND: Duration = Duration::from_secs(1);

/// The server, unless the environment names another one.
const SERVER: &str = "postgres://postgres@127.0.0.1:5432/test";

/// Returns the URL of the server.
pub(crate) fn server() -> String {
    std::env::var("STATIONMASTER_TEST_POSTGRES").unwrap_or_else(|_| SERVER.into())
}

/// Returns a handle that is stopped when the process that started this one ends for any reason.
pub(crate) fn stop() -> LoopHandle {
    let handle = LoopHandle::new();
    let stops = handle.clone();
    spawn(move || {
        let _ = stdin().read_to_end(&mut Vec::new());
        stops.stop();
    });
    handle
}

/// Runs the trial. The process fails if a check failed.
pub(crate) fn run() -> Result<()> {
    let (began, schema) = (Instant::now(), format!("web_service_{}", std::process::id()));
    let runtime = Runtime::new()?;
    let app = App::open(&server(), &schema)?;
    let sql = |sql: String| -> Result<()> {
        runtime.block_on(async { Ok(app.client().await?.batch_execute(&sql).await?) })
    };
    sql(format!("CREATE SCHEMA {schema}; {TABLES}"))?;
    let (first_minute, mut killed) = (minute(SystemClock.now()), Vec::new());

    let mut fleet = Fleet::start(schema.clone())?;
    let site = Site::new(fleet.port);
    let bar = ProgressBar::new(FILMS.unsigned_abs());
    bar.set_style(ProgressStyle::with_template("{elapsed:>4} {wide_bar} {pos}/{len} films  {msg}")?);
    let (customers, operator) = (site.clone(), site.clone());
    let customers = spawn(move || customers.upload_films());
    let operator = spawn(move || operator.operate());
    let mut next_kill = Instant::now() + 3 * SECOND;
    // Set before checking whether everything has ended, because a bill of the next minute may be enqueued right
    // after.
    let mut idle_at;
    loop {
        idle_at = SystemClock.now();
        let done = runtime.block_on(check::progress(&app))?;
        bar.set_position(done.unsigned_abs());
        if killed.len() < KILLS && Instant::now() >= next_kill {
            let (name, at) = fleet.kill(killed.len() % PROCESSES.len())?;
            bar.suspend(|| {
                println!(
                    "{:5.1} s  killed {name}, {done} of {FILMS} films done",
                    began.elapsed().as_secs_f64()
                )
            });
            killed.push((name, at));
            next_kill = Instant::now() + 3 * SECOND;
        } else if killed.len() == KILLS && done == FILMS && site.is_idle()? {
            break;
        }
        if began.elapsed() > 240 * SECOND {
            bar.suspend(|| println!("it takes too long: {}", site.get("/ops").unwrap_or_default()));
            break;
        }
        sleep(SECOND / 5);
    }
    let panicked = |_| "a thread of the trial panicked";
    let seen = Seen {
        minutes: first_minute..=minute(idle_at),
        films: FILMS,
        killed,
        cancelled: customers.join().map_err(panicked)??,
        paused: operator.join().map_err(panicked)??,
        stopped: fleet.stop()?,
    };
    bar.finish_and_clear();

    let holds = runtime.block_on(check::check(&app, &seen))?;
    let verdict =
        format!("{FILMS} films, {} kills, {:.0} s", seen.killed.len(), began.elapsed().as_secs_f64());
    if !holds {
        println!("FAILED: {verdict}; the tables stay in the schemas {schema} and {schema}_jobs");
        std::process::exit(1);
    }
    sql(format!("DROP SCHEMA {schema} CASCADE; DROP SCHEMA {schema}_jobs CASCADE"))?;
    println!("all of it holds: {verdict}");
    Ok(())
}

/// The processes, each under a name that it keeps when it is restarted.
struct Fleet {
    schema: String,
    port: u16,
    children: Vec<Child>,
}

impl Fleet {
    fn start(schema: String) -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut fleet = Self { schema, port, children: Vec::new() };
        for number in 0..PROCESSES.len() {
            let child = fleet.spawn(number)?;
            fleet.children.push(child);
        }
        Ok(fleet)
    }

    fn spawn(&self, number: usize) -> Result<Child> {
        let (role, name) = PROCESSES[number];
        let mut program = Command::new(std::env::current_exe()?);
        program.args([&self.schema, &self.port.to_string(), role, name]);
        Ok(program.stdin(Stdio::piped()).spawn()?)
    }

    /// Kills a process, and starts it again. Returns its name, and an instant at which it was still alive.
    fn kill(&mut self, number: usize) -> Result<(String, i64)> {
        let at = SystemClock.now().as_micros();
        self.children[number].kill()?;
        self.children[number].wait()?;
        self.children[number] = self.spawn(number)?;
        Ok((PROCESSES[number].1.to_owned(), at))
    }

    /// Stops all of them. Returns how many stopped cleanly.
    fn stop(mut self) -> Result<usize> {
        self.children.iter_mut().for_each(|child| drop(child.stdin.take()));
        let until = Instant::now() + 20 * SECOND;
        let mut well = 0;
        for mut child in self.children {
            while child.try_wait()?.is_none() && Instant::now() < until {
                sleep(SECOND / 50);
            }
            child.kill()?;
            well += usize::from(child.wait()?.success());
        }
        Ok(well)
    }
}

/// The web role, as clients see it.
#[derive(Clone)]
struct Site {
    http: ureq::Agent,
    url: String,
}

impl Site {
    fn new(port: u16) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let http = config.timeout_global(Some(5 * SECOND)).build().into();
        Self { http, url: format!("http://127.0.0.1:{port}") }
    }

    /// Repeats a request until there is a response, because the web role may have just been killed.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<(u16, String)> {
        let (url, until) = (format!("{}{path}", self.url), Instant::now() + 30 * SECOND);
        loop {
            let answer = match method {
                "POST" => {
                    self.http.post(&url).header("content-type", "application/json").send(body.to_string())
                }
                "DELETE" => self.http.delete(&url).call(),
                _ => self.http.get(&url).call(),
            };
            let answer = answer
                .and_then(|mut answer| Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?)));
            match answer {
                Ok((status, body)) if status < 500 => return Ok((status, body)),
                other if Instant::now() > until => return Err(format!("{method} {path}: {other:?}").into()),
                _ => sleep(SECOND / 10),
            }
        }
    }

    fn get(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.ask("GET", path, &Value::Null)?.1)?)
    }

    /// Uploads all films, and cancels some. Returns those that were cancelled.
    fn upload_films(&self) -> Result<Vec<i64>> {
        let mut cancelled = Vec::new();
        for id in 1..=FILMS {
            let region = ["eu", "us", "asia"][id as usize % 3].to_owned();
            let film = Film { id, customer: format!("customer-{}", id % 5), region };
            self.ask("POST", "/films", &json!(film))?;
            // Some while they wait, some while they are being made, some while they wait for their region.
            let unwanted = match id % 20 {
                0 => Some(id),
                7 => Some(id - 2),
                13 => Some(id - 50).filter(|id| *id > 0),
                _ => None,
            };
            if let Some(unwanted) = unwanted
                && self.ask("DELETE", &format!("/films/{unwanted}"), &Value::Null)?.0 == 200
            {
                cancelled.push(unwanted);
            }
            sleep(SECOND / 25);
        }
        Ok(cancelled)
    }

    /// Opens the regions, and pauses the GPUs in between. Returns the interval in which nothing may have begun on
    /// them.
    fn operate(&self) -> Result<(i64, i64)> {
        let post = |path: &str| self.ask("POST", path, &Value::Null);
        sleep(5 * SECOND);
        post("/regions/eu")?;
        sleep(2 * SECOND);
        post("/queues/gpu/pause")?;
        let paused = SystemClock.now().as_micros();
        while self.get("/ops")?["drains"]["gpu"] != "drained" {
            sleep(SECOND / 10);
        }
        sleep(2 * SECOND);
        let until = SystemClock.now().as_micros();
        post("/queues/gpu/resume")?;
        post("/regions/us")?;
        sleep(5 * SECOND);
        post("/regions/asia")?;
        Ok((paused, until))
    }

    /// Returns true if no task waits or runs.
    fn is_idle(&self) -> Result<bool> {
        let ops = self.get("/ops")?;
        let counts = ops["tasks"].as_array().ok_or("the page has no counts")?;
        let is_open = |count: &&Value| {
            let state = count["state"].as_str().unwrap_or_default();
            ["scheduled", "up_for_retry", "queued", "running", "sensing"].contains(&state)
        };
        Ok(counts.iter().filter(is_open).all(|count| count["tasks"] == 0))
    }
}
