//! A store is made, used and dropped wherever the host likes.

use std::sync::Arc;

use crate::scratch::ScratchStore;
use crate::{pools, put};

fn live_a_whole_life() {
    let scratch = ScratchStore::open(|options| options);
    put(&scratch.store, "p").unwrap();
    assert_eq!(pools(&scratch.store), 1);
}

#[test]
fn outside_of_any_runtime() {
    live_a_whole_life();
}

#[tokio::test(flavor = "current_thread")]
async fn inside_a_runtime_of_one_thread() {
    live_a_whole_life();
    tokio::task::yield_now().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inside_a_runtime_of_many_threads() {
    live_a_whole_life();
    let scratch = Arc::new(ScratchStore::open(|options| options));
    let used: Vec<_> = (0..8)
        .map(|n| {
            let scratch = Arc::clone(&scratch);
            tokio::spawn(async move { put(&scratch.store, &n.to_string()) })
        })
        .collect();
    for used in used {
        used.await.unwrap().unwrap();
    }
    assert_eq!(pools(&scratch.store), 8);
    // The last one to hold it drops it on a thread of the runtime.
    tokio::spawn(async move { drop(scratch) }).await.unwrap();
}

#[test]
fn made_inside_and_dropped_outside() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let scratch = runtime.block_on(async { ScratchStore::open(|options| options) });
    drop(runtime);
    put(&scratch.store, "p").unwrap();
    assert_eq!(pools(&scratch.store), 1);
}

#[test]
fn dropped_while_a_panic_unwinds() {
    let panicked = std::thread::spawn(|| {
        let scratch = ScratchStore::open(|options| options);
        let name = scratch.scratch.0.clone();
        let _hold = scratch;
        std::panic::resume_unwind(Box::new(name));
    });
    let name = panicked.join().unwrap_err().downcast::<stationmaster::store::postgres::Schema>().unwrap();
    crate::scratch::query(&format!("DROP SCHEMA \"{name}\" CASCADE"));
}
