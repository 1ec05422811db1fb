//! With feature `tracing` the services' edges have the spans and events that `service::spans` describes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stationmaster::canonical::PokeContext;
use stationmaster::error::StoreErrorKind;
use stationmaster::ops::Finish;
use stationmaster::sensor::{NewSensor, PokeOutcome, Settings};
use stationmaster::service::{
    Admitter, FeedReader, ObservedStore, Observer, PokeRequest, Poker, Service, Upkeep,
};
use stationmaster::store::{MemoryStore, Store, TxMode};
use stationmaster::task::Feed;
use stationmaster::task::LeaseLoss;
use stationmaster::testing::FaultStore;
use stationmaster::{LeaseRef, NewTask, TaskKey, Timestamp};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::subscriber::with_default;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// A span that was made, or an event.
#[derive(Debug, Clone)]
struct Note {
    target: String,
    level: Level,
    /// A span's name, an event's message.
    name: String,
    fields: BTreeMap<String, String>,
    /// The span in which it lies.
    inside: Option<String>,
    is_span: bool,
}

impl Note {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("{self:?} has no {name}"))
    }

    fn names(&self) -> Vec<&str> {
        self.fields.keys().map(String::as_str).collect()
    }
}

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }
}

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Note>>>);

impl Notes {
    fn note(&self, metadata: &Metadata<'_>, mut fields: BTreeMap<String, String>, inside: Option<&str>) {
        let message = fields.remove("message");
        self.0.lock().push(Note {
            target: metadata.target().into(),
            level: *metadata.level(),
            name: message.unwrap_or_else(|| metadata.name().into()),
            fields,
            inside: inside.map(str::to_owned),
            is_span: metadata.is_span(),
        });
    }

    fn all(&self, target: &str, name: &str) -> Vec<Note> {
        let of_it = |note: &&Note| note.target == format!("stationmaster::{target}") && note.name == name;
        self.0.lock().iter().filter(of_it).cloned().collect()
    }

    fn only(&self, target: &str, name: &str) -> Note {
        let mut all = self.all(target, name);
        assert_eq!(all.len(), 1, "{target} {name}: {all:?}");
        all.remove(0)
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Notes {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, context: Context<'_, S>) {
        let mut fields = BTreeMap::new();
        attributes.record(&mut Fields(&mut fields));
        self.note(attributes.metadata(), fields, context.lookup_current().map(|span| span.name()));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields));
        self.note(event.metadata(), fields, context.lookup_current().map(|span| span.name()));
    }
}

fn noted(work: impl FnOnce()) -> Notes {
    let notes = Notes::default();
    with_default(tracing_subscriber::registry().with(notes.clone()), work);
    notes
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn task(name: &str) -> NewTask {
    NewTask::new(TaskKey::new("ns", "w", "r", name).unwrap()).feed(Feed::EndsAndSensors)
}

fn admitter(store: Arc<dyn Store>) -> Admitter {
    Admitter::new(store, "worker-1".try_into().unwrap()).budget(2).lease(Duration::from_secs(10))
}

#[test]
fn an_admission_and_a_lost_lease() {
    let store = Arc::new(MemoryStore::new());
    let notes = noted(|| {
        store
            .write(|tx| {
                tx.enqueue(at(0), &["a", "b", "c"].map(|name| task(name).lease_loss(LeaseLoss::Fail)))
            })
            .unwrap();
        admitter(store.clone()).tick(at(3)).unwrap();
        Upkeep::new(store.clone()).grace(Duration::ZERO).tick(at(5)).unwrap();
        Upkeep::new(store.clone()).grace(Duration::ZERO).tick(at(13)).unwrap();
    });
    let span = notes.only("admitter", "admit");
    assert!(span.is_span && span.level == Level::DEBUG);
    assert_eq!((span.field("holder"), span.field("budget")), ("worker-1", "2"));

    let event = notes.only("admitter", "admitted");
    assert_eq!((event.level, event.inside.as_deref()), (Level::DEBUG, Some("admit")));
    assert_eq!(event.names(), ["conflicts", "granted", "promoted", "refused", "took_s"]);
    assert_eq!((event.field("granted"), event.field("refused")), ("2", "1"));
    let granted = notes.all("admitter", "granted");
    assert!(granted.iter().all(|event| event.level == Level::TRACE));
    assert_eq!(granted.iter().map(|event| event.field("task")).collect::<Vec<_>>(), ["ns/w/r/a", "ns/w/r/b"]);
    assert_eq!(granted[0].field("waited_s"), "3.0");
    assert_eq!((granted[0].field("attempt"), granted[0].field("epoch")), ("1", "1"));

    assert_eq!(notes.all("upkeep", "reap").len(), 2);
    let reaped = notes.all("upkeep", "reaped");
    assert_eq!((reaped[0].level, reaped[0].field("expired")), (Level::DEBUG, "0"));
    assert_eq!((reaped[1].level, reaped[1].field("failed")), (Level::WARN, "2"));
    assert_eq!(
        reaped[1].names(),
        ["cancelled", "expired", "failed", "forgotten", "ready", "retry", "took_s"]
    );
    let expired = notes.all("upkeep", "lease expired");
    assert_eq!((expired.len(), expired[0].level), (2, Level::DEBUG));
    assert_eq!((expired[0].field("holder"), expired[0].field("became")), ("worker-1", "failed"));
    assert_eq!(expired[0].inside.as_deref(), Some("reap"));
}

#[test]
fn a_renewal_and_a_lease_that_is_lost_to_its_keeper() {
    let notes = noted(|| {
        let store = Arc::new(MemoryStore::new());
        store.write(|tx| tx.enqueue(at(0), &[task("a")])).unwrap();
        let mut admitter = admitter(store.clone());
        let mut keeper = admitter.keeper();
        let kept = keeper.keep(&admitter.tick(at(0)).unwrap().granted[0]);
        keeper.tick(at(5)).unwrap();
        store.write(|tx| tx.finish(at(6), &[Finish::success(kept.lease())])).unwrap();
        keeper.tick(at(10)).unwrap();
    });
    assert_eq!(notes.all("keeper", "keep").len(), 2);
    let renewed = notes.all("keeper", "renewed");
    assert_eq!(renewed[0].names(), ["busy", "expired", "lost", "renewed", "took_s"]);
    assert_eq!((renewed[0].level, renewed[0].field("renewed")), (Level::DEBUG, "1"));
    assert_eq!((renewed[1].level, renewed[1].field("lost")), (Level::WARN, "1"));
    assert_eq!(renewed[1].inside.as_deref(), Some("keep"));
}

#[test]
fn a_tick_that_fails_warns() {
    let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new())));
    let notes = noted(|| {
        store.refuse(TxMode::Write, 1);
        admitter(store.clone()).tick(at(0)).unwrap_err();
        store.refuse(TxMode::Write, 1);
        Poker::new(store.clone(), "p".try_into().unwrap()).tick(at(0)).unwrap_err();
    });
    for (target, span) in [("admitter", "admit"), ("poker", "cycle")] {
        let event = notes.only(target, "tick failed");
        assert_eq!((event.level, event.inside.as_deref()), (Level::WARN, Some(span)));
        assert_eq!(
            (event.field("result"), event.field("error")),
            (StoreErrorKind::Io.as_str(), "begin failed on purpose")
        );
    }
    assert!(notes.all("admitter", "admitted").is_empty());
}

#[test]
fn pokes_events_and_transactions() {
    struct Nobody;
    impl Observer for Nobody {}
    let store: Arc<dyn Store> = Arc::new(ObservedStore::new(MemoryStore::new(), Arc::new(Nobody)));
    let notes = Notes::default();
    // The host's part logs on the poker's threads: their subscriber is the global one.
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(notes.clone())).unwrap();
    store.write(|tx| tx.enqueue(at(0), &[task("a"), task("b")])).unwrap();
    let granted = admitter(store.clone()).tick(at(0)).unwrap().granted;
    let leases: Vec<LeaseRef> = granted.iter().map(|task| task.lease_ref()).collect();
    let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(900)).unwrap();
    let context = PokeContext::from_json(r#"{"path":"x"}"#).unwrap();
    let sensor =
        |lease: &LeaseRef| NewSensor::new(*lease, "file".try_into().unwrap(), context.clone(), settings);
    let sensors: Vec<NewSensor> = leases.iter().map(sensor).collect();
    store
        .write(|tx| {
            tx.start(at(0), &leases)?;
            tx.register(at(0), &sensors)
        })
        .unwrap();
    let poke = |request: &PokeRequest| {
        tracing::info!(target: "host", sensors = request.sensors, "looking");
        PokeOutcome::Landed(None)
    };
    let poker =
        Poker::new(store.clone(), "poker-1".try_into().unwrap()).wait_for_answers(Duration::from_secs(60));
    poker.kind("file".try_into().unwrap(), poke).tick(at(0)).unwrap();
    FeedReader::new(store.clone(), "mailer".try_into().unwrap(), |event| match event.task.task.as_str() {
        "b" => Err("not yet".into()),
        _ => Ok(()),
    })
    .tick(at(0))
    .unwrap();

    let cycle = notes.only("poker", "cycle");
    assert!(cycle.is_span && cycle.level == Level::DEBUG && cycle.field("worker") == "poker-1");
    let cycled = notes.only("poker", "cycled");
    assert_eq!((cycled.level, cycled.inside.as_deref()), (Level::DEBUG, Some("cycle")));
    let fields = ["poked", "saved", "landed", "gained", "due", "loaded"].map(|name| cycled.field(name));
    assert_eq!(fields, ["1", "1", "2", "16", "1", "2"]);
    assert_eq!(cycled.names().len(), 22);

    let poke = notes.only("poker", "poke");
    assert!(poke.is_span && poke.level == Level::TRACE);
    assert_eq!((poke.field("kind"), poke.field("targets")), ("file", "1"));
    let looking = notes.0.lock().iter().find(|note| note.target == "host").cloned().unwrap();
    assert_eq!((looking.inside.as_deref(), looking.field("sensors")), (Some("poke"), "2"));

    let span = notes.only("feed", "read_feed");
    assert!(span.is_span && span.field("consumer") == "mailer");
    let read = notes.only("feed", "read");
    assert_eq!((read.level, read.inside.as_deref()), (Level::WARN, Some("read_feed")));
    assert_eq!(
        ["accepted", "refused", "lost", "has_turn"].map(|name| read.field(name)),
        ["1", "true", "0", "true"]
    );
    let failed = notes.only("feed", "event refused");
    assert_eq!((failed.level, failed.field("error")), (Level::DEBUG, "not yet"));
    assert_eq!((failed.field("task"), failed.field("seq")), ("ns/w/r/b", "2"));

    let transactions = notes.all("store", "transaction");
    assert!(transactions.len() > 5 && transactions.iter().all(|event| event.level == Level::TRACE));
    assert_eq!(transactions[0].names(), ["mode", "result", "took_s"]);
    assert_eq!((transactions[0].field("mode"), transactions[0].field("result")), ("write", "ok"));
    let poker_writes =
        |note: &&Note| note.inside.as_deref() == Some("cycle") && note.field("mode") == "write";
    assert!(transactions.iter().any(|note| poker_writes(&note)), "the store's events lie in the tick's span");
}
