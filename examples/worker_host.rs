//! A whole host: a worker with two kinds of places, and upkeep. It ends when everything is done, or at
//! Ctrl-C.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stationmaster::clock::{Clock, SystemClock};
use stationmaster::service::{Attempt, LoopHandle, Upkeep, WakingStore, Worker, drive};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{NewTask, TaskKey};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (handle, rest, left) = (LoopHandle::new(), LoopHandle::new(), AtomicUsize::new(20));
    let store: Arc<dyn Store> = Arc::new(WakingStore::new(MemoryStore::new(), handle.clone()));
    for n in 0..20 {
        let task = NewTask::new(TaskKey::new("prod", "films", "r1", format!("film-{n:02}"))?);
        let task = [task.queue(["cpu", "gpu"][n % 2].try_into()?).payload(format!("film-{n:02}.mov"))];
        store.write(|tx| tx.enqueue(SystemClock.now(), &task))?;
    }
    let (signal, done, reaps) = (handle.clone(), handle.clone(), rest.clone());
    ctrlc::set_handler(move || signal.stop())?;
    let worker = Worker::new(store.clone(), "host-1".try_into()?).queue("cpu".try_into()?, 8);
    let worker = worker.queue("gpu".try_into()?, 2).handler(move |attempt: &Attempt| {
        println!("{}: {}", attempt.task().lane.queue, attempt.task().payload); // your work goes here
        (left.fetch_sub(1, Ordering::SeqCst) == 1).then(|| done.stop());
        Ok::<(), std::io::Error>(())
    });
    let upkeep = std::thread::spawn(move || {
        let go_on = |_| std::ops::ControlFlow::Continue(());
        drive(&mut Upkeep::new(store), &SystemClock, &reaps, Duration::from_secs(10), go_on);
    });
    println!("{} ends were stored", worker.run(&handle)?.stored);
    rest.stop();
    upkeep.join().map_err(|_| "upkeep panicked")?;
    Ok(())
}
