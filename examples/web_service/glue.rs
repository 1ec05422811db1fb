//! The code that any such host writes: the store, connections for transactions with its own rows, the services, and
//! a clean stop.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use stationmaster::service::{LoopHandle, Poker, Service, Upkeep, Worker, drive};
use stationmaster::store::PostgresStore;
use stationmaster::store::postgres::{PostgresOptions, Schema, tokio_postgres};
use stationmaster::tokio::AsyncStore;
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};
use tokio_postgres::{Client, Config, NoTls};

use crate::{domain, web};

pub(crate) type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// The state of each process.
pub(crate) struct App {
    pub(crate) store: Arc<PostgresStore>,
    pub(crate) jobs: AsyncStore, // the same store, awaited
    pub(crate) schema: Schema,   // of the store's tables, for transactions of the host's own
    config: Config,
    clients: [Mutex<Option<Client>>; domain::PLACES + 1], // one for each handler, and one for pokes
}

impl App {
    /// Opens the store. The host's own tables are in the schema of this name, the store's in another one next to it.
    pub(crate) fn open(url: &str, name: &str) -> Result<Arc<Self>> {
        let schema = Schema::new(format!("{name}_jobs"))?;
        let store = Arc::new(PostgresStore::connect(url, PostgresOptions::new().schema(schema.clone()))?);
        let mut config: Config = url.parse()?;
        config.options(format!("-c search_path={name}"));
        let (jobs, clients) = (AsyncStore::new(store.clone()), Default::default());
        Ok(Arc::new(Self { store, jobs, schema, config, clients }))
    }

    /// Returns a free connection for the host's own rows, or waits for the first one. A pool such as deadpool's does
    /// more: each caller gets the first one that becomes free.
    pub(crate) async fn client(&self) -> stationmaster::Result<MappedMutexGuard<'_, Client>> {
        let free = self.clients.iter().find_map(|client| client.try_lock().ok());
        let mut place = if let Some(free) = free { free } else { self.clients[0].lock().await };
        if place.as_ref().is_none_or(Client::is_closed) {
            let (client, connection) = self.config.connect(NoTls).await?;
            tokio::spawn(connection);
            *place = Some(client);
        }
        Ok(MutexGuard::map(place, |place| place.as_mut().expect("it was connected")))
    }
}

/// Runs one process until this handle or a signal stops it.
pub(crate) fn process(app: Arc<App>, port: u16, role: &str, name: &str, stop: LoopHandle) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    domain::define(&app)?;
    let rest = LoopHandle::new();
    let signal = stop.clone();
    ctrlc::set_handler(move || signal.stop())?;
    let _listening = [stop.listen(&app.store)?, rest.listen(&app.store)?];
    let upkeep = Upkeep::new(app.store.clone()).grace(domain::LEASE / 2).retain_ended_for(domain::KEEP);
    let upkeep = tend(upkeep, rest.clone(), &app);
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

/// Runs a service on its own thread until the handle is stopped.
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
