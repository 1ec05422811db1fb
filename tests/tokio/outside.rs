//! Outside a runtime, and after its end.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use stationmaster::Error;
use stationmaster::clock::SystemClock;
use stationmaster::service::{LoopHandle, Upkeep};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::tokio::{AsyncService, AsyncStore, drive};

use crate::cut::look;
use crate::operations::{operations, world};
use crate::scene::{at, secs};

/// What a future returns that is polled outside of any runtime.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits for what never comes"),
    }
}

#[test]
fn outside_a_runtime_every_operation_is_refused_and_nothing_is_done() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let world = world(&store);
    let before = look(&store, &world.keys);
    for (name, operation) in operations() {
        match at_once(operation(AsyncStore::new(store.clone()), world.clone())) {
            Err(Error::NoRuntime) => {}
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(look(&store, &world.keys), before, "{name}");
    }
}

#[test]
fn outside_a_runtime_a_service_does_not_run() {
    let upkeep = || AsyncService::new(Upkeep::new(Arc::new(MemoryStore::new())));
    let refused = at_once(upkeep().tick(at(0))).unwrap_err();
    assert!(matches!(refused, Error::NoRuntime) && !refused.is_retryable());
    assert!(matches!(at_once(upkeep().with(|_| ())), Err(Error::NoRuntime)));
    assert!(at_once(upkeep().undelivered()).is_none());
    let (mut upkeep, handle) = (upkeep(), LoopHandle::new());
    let each = |_| ControlFlow::Continue(());
    let driven = at_once(drive(&mut upkeep, &SystemClock, &handle, secs(1), each));
    assert!(matches!(driven, Err(Error::NoRuntime)));
}
