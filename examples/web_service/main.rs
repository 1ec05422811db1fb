//! A web service with workers, in five processes on one PostgreSQL database: axum, the host's own tables, and stationmaster.
//!
//! A customer uploads a film over HTTP. It is cut on a `cpu` worker and rendered on a `gpu` worker, concurrently. When
//! both are done it is published, as soon as its region is open. A customer may render 2 films at once, and start 2
//! per second after the first 4. Once a minute a bill is written.
//!
//! ```sh
//! cargo run --release --all-features --example web_service   # STATIONMASTER_TEST_POSTGRES names another server
//! ```
//!
//! It starts its own processes, plays customers and operator, and kills a process every few seconds. Then it checks
//! its own rows and the store, prints a table, and succeeds only if everything holds. Otherwise the tables stay, for
//! inspection. Each process is also a program of its own, which ends when its standard input ends, or by SIGTERM:
//! `web_service SCHEMA PORT (web|gpu|cpu) NAME`.
//!
//! `glue.rs` can be copied unchanged. It needs the crates `ctrlc` with the feature `termination` (otherwise SIGTERM gives
//! nothing back) and `tokio` with `rt-multi-thread`, `net` and `sync`. Your `domain` has the constants `LEASE`, `PLACES`
//! and `KEEP` and the functions `define`, `schedule`, `kinds` and `handlers`, and your `web` has `serve`. Your `main`
//! has the URL of your server and a `LoopHandle::new()`.
//!
//! `glue.rs` and `main.rs` are all that is neither the domain (`domain.rs`: tables, handlers; `web.rs`: routes) nor
//! the trial (`trial.rs`, `check.rs`). This command counts their lines, which are at most 90:
//!
//! ```sh
//! cat examples/web_service/{main,glue}.rs | grep -cvE '^\s*(//.*)?$'
//! ```

mod check;
mod domain;
mod glue;
mod trial;
mod web;

fn main() -> glue::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let app = |schema: &str| glue::App::open(&trial::server(), schema);
    match &arguments[..] {
        [schema, port, role, name] => glue::process(app(schema)?, port.parse()?, role, name, trial::stop()),
        _ => trial::run(),
    }
}
