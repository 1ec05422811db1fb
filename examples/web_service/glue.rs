//! What any such host writes: the store, a connection for transactions with its own rows, the services, and a clean stop.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use stationmaster::service::{LoopHandle, Poker, Service, Upkeep, Worker, drive};
use stationmaster::store::PostgresStore;
use stationmaster::store::postgres::{PostgresOptions, Schema, tokio_postgres};
use stationmaster::tokio::AsyncStore;
use tokio::sync::{Mutex, MutexGuard};

use crate::{domain, web};

pub(crate) type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// What each process has.
pub(crate) struct App {
    pub(crate) store: Arc<PostgresStore>,
    pub(crate) jobs: AsyncStore, // the same store, awaited
    pub(crate) schema: Schema,   // of the store's tables, for transactions of the host's own
    config: tokio_postgres::Config,
    client: Mutex<tokio_postgres::Client>,
}

impl App {
    /// Opens the store. The host's own tables are in the schema of this name, the store's in one beside it.
    pub(crate) async fn open(name: &str) -> Result<Arc<Self>> {
        let url = std::env::var("STATIONMASTER_TEST_POSTGRES").unwrap_or_else(|_| domain::SERVER.into());
        let schema = Schema::new(format!("{name}_jobs"))?;
        let store = Arc::new(PostgresStore::connect(&url, PostgresOptions::new().schema(schema.clone()))?);
        let mut config: tokio_postgres::Config = url.parse()?;
        let client = Mutex::new(connect(config.options(format!("-c search_path={name}"))).await?);
        Ok(Arc::new(Self { jobs: AsyncStore::new(store.clone()), store, schema, config, client }))
    }

    /// Returns the host's own connection. A program with more to do has a pool of them, such as deadpool's.
    pub(crate) async fn client(&self) -> Result<MutexGuard<'_, tokio_postgres::Client>> {
        let mut client = self.client.lock().await;
        if client.is_closed() {
            *client = connect(&self.config).await?;
        }
        Ok(client)
    }
}

async fn connect(config: &tokio_postgres::Config) -> Result<tokio_postgres::Client> {
    let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Runs one process until this handle or a signal stops it.
pub(crate) fn process(schema: &str, port: u16, role: &str, name: &str, stop: LoopHandle) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let app = runtime.block_on(App::open(schema))?;
    domain::define(&app)?;
    let rest = LoopHandle::new();
    let (signal, works, pokes) = (stop.clone(), stop.clone(), rest.clone());
    stop.wakes_for_cancels(&rest);
    ctrlc::set_handler(move || signal.stop())?;
    let _listening = app.store.on_change(move |change| {
        change.tasks().then(|| works.wake());
        change.cancels().then(|| works.wake_for_cancel());
        change.sensors().then(|| pokes.wake());
    })?;
    let upkeep = tend(Upkeep::new(app.store.clone()).grace(domain::LEASE / 2), rest.clone(), &app);
    let poker = Poker::new(app.store.clone(), name.try_into()?).lease(domain::LEASE);
    let poker = tend(domain::kinds(poker, &app, runtime.handle())?, rest.clone(), &app);
    runtime.spawn(domain::schedule(app.clone()));
    if role == "web" {
        runtime.block_on(web::serve(app, port, stop.stopped()))?;
    } else {
        let worker = Worker::new(app.store.clone(), name.try_into()?).clock(app.store.clock());
        let worker = worker.lease(domain::LEASE).queue(role.try_into()?, domain::PLACES);
        domain::handlers(worker.on_error(|error| eprintln!("{error}")), app, runtime.handle()).run(&stop)?;
    }
    rest.stop();
    drop(upkeep.join());
    Ok(poker.join().map_err(|_| "the poker panicked")?.leave()?)
}

/// Runs a service on a thread of its own until the handle is stopped.
fn tend<S: Service + Send + 'static>(mut service: S, handle: LoopHandle, app: &App) -> JoinHandle<S> {
    let clock = app.store.clock();
    thread::spawn(move || {
        drive(&mut service, &clock, &handle, domain::LEASE / 4, |report| {
            report.map_or_else(|error| eprintln!("{error}"), drop);
            ControlFlow::Continue(())
        });
        service
    })
}
