//! A whole host: a worker with two kinds of places, and a reaper. It ends when all is done, or at Ctrl-C.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stationmaster::clock::{Clock, SystemClock};
use stationmaster::service::{Job, LoopHandle, Reaper, WakingStore, Worker, drive};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{NewTask, TaskKey};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (handle, left) = (LoopHandle::new(), AtomicUsize::new(20));
    let store: Arc<dyn Store> = Arc::new(WakingStore::new(MemoryStore::new(), handle.clone()));
    for n in 0..20 {
        let task = NewTask::new(TaskKey::new("prod", "films", "r1", format!("film-{n:02}"))?);
        let task = [task.queue(["cpu", "gpu"][n % 2].try_into()?).payload(format!("film-{n:02}.mov"))];
        store.write(|tx| tx.enqueue(SystemClock.now(), &task))?;
    }
    let (stop, done, signal) = (handle.clone(), handle.clone(), handle.clone());
    ctrlc::set_handler(move || signal.stop())?;
    let worker = Worker::new(store.clone(), "host-1".try_into()?).queue("cpu".try_into()?, 8);
    let worker = worker.queue("gpu".try_into()?, 2).handler(move |job: &Job| {
        println!("{}: {}", job.task().lane.queue, job.task().payload); // in truth, something useful
        (left.fetch_sub(1, Ordering::SeqCst) == 1).then(|| done.stop());
        Ok::<(), std::io::Error>(())
    });
    let reaps = std::thread::spawn(move || {
        drive(&mut Reaper::new(store), &SystemClock, &stop, Duration::from_secs(10), |_| {
            std::ops::ControlFlow::Continue(())
        });
    });
    let report = worker.run(&handle)?;
    reaps.join().map_err(|_| "the reaper panicked")?;
    println!("{} ends were stored", report.stored);
    Ok(())
}
