//! Reads an attempt's log file and the store's data about it, as one log.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::{FileLog, line, rotated};
use crate::error::Result;
use crate::id::TaskKey;
use crate::ops::{Life, sensor_lives};
use crate::sensor::life;
use crate::store::{self, Store};

/// The length of the instant at the beginning of each line.
const INSTANT: usize = "2026-01-01 00:00:00.000".len();

impl FileLog {
    /// Returns a reader of this attempt's whole life as a sensor. Its first call returns the last `last` lines. Each
    /// further call returns the lines since then. A host that follows the log calls it every second or so.
    ///
    /// The lines come from the file and from the store ([`ReadTx::sensor_log`]), ordered by their instants. An event
    /// that both contain is one line. If a worker on another machine poked the sensor, its pokes are in a file there,
    /// and a line names the worker. The same line appears if rotation has dropped what the worker wrote here.
    ///
    /// # Errors
    ///
    /// A call returns [`crate::Error::Store`] if the store fails. A file that cannot be read is a line that says so.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::TaskKey;
    /// use stationmaster::service::FileLog;
    /// use stationmaster::store::MemoryStore;
    ///
    /// let (store, log) = (MemoryStore::new(), FileLog::new("/var/log/airflow", FileLog::AIRFLOW)?);
    /// let mut reader = log.reader(&store, TaskKey::new("prod", "nightly", "2026-01-01", "wait")?, 1, 100);
    /// assert!(reader()?.is_empty(), "no such sensor");
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    ///
    /// [`ReadTx::sensor_log`]: crate::store::ReadTx::sensor_log
    pub fn reader<'a>(
        &'a self,
        store: &'a dyn Store,
        task: TaskKey,
        attempt: u32,
        last: usize,
    ) -> impl FnMut() -> Result<Vec<String>> + 'a {
        let mut seen: Option<HashSet<String>> = None;
        move || {
            let all = self.whole(store, &task, attempt)?;
            let new = match &seen {
                None => all[all.len().saturating_sub(last)..].to_vec(),
                Some(seen) => all.iter().filter(|line| !seen.contains(*line)).cloned().collect(),
            };
            seen = Some(all.into_iter().collect());
            Ok(new)
        }
    }

    /// Returns all lines, ordered by their instants.
    fn whole(&self, store: &dyn Store, task: &TaskKey, attempt: u32) -> Result<Vec<String>> {
        // The store first: what it knows by then is also in the file, unless the file is on another machine.
        let mut lives = store::read(store, |tx| sensor_lives(tx, std::slice::from_ref(task)))?;
        let Life { lines, attempt: latest, workers } = lives.pop().unwrap_or_default();
        let workers = if latest == attempt { workers } else { Vec::new() };
        let written = written(&self.path(task, attempt));
        let of_attempt = lines.into_iter().filter(|(of, ..)| *of == attempt);
        let known: Vec<String> = of_attempt.map(|(_, at, text)| line(at, &text)).collect();
        let elsewhere =
            workers.iter().filter(|(_, worker)| !written.iter().any(|line| life::tells_of(line, worker)));
        let elsewhere: Vec<String> = elsewhere
            .filter(|_| !known.is_empty())
            .map(|(since, worker)| line(*since, &life::not_here(worker)))
            .collect();
        let there: HashSet<&String> = written.iter().collect();
        let known = known.into_iter().filter(|line| !there.contains(line)).collect::<Vec<String>>();
        // At the same instant, the file's lines precede the store's.
        let mut all: Vec<String> = written.into_iter().chain(known).chain(elsewhere).collect();
        all.sort_by(|a, b| a.get(..INSTANT).cmp(&b.get(..INSTANT)));
        Ok(all)
    }
}

/// Returns the lines of a log and of its rotated file.
fn written(path: &Path) -> Vec<String> {
    let mut aside = lines_of(&rotated(path));
    loop {
        let here = lines_of(path);
        // If the log was rotated between the two reads, its earlier lines were not read.
        let now = lines_of(&rotated(path));
        if now == aside {
            return aside.into_iter().chain(here).collect();
        }
        aside = now;
    }
}

/// Returns the complete lines of a file. Empty if there is no such file.
fn lines_of(path: &Path) -> Vec<String> {
    match fs::read(path) {
        Ok(bytes) => {
            // The last line may still be being written.
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            String::from_utf8_lossy(bytes.get(..whole).unwrap_or_default())
                .lines()
                .map(str::to_owned)
                .collect()
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => vec![format!("{} cannot be read: {error}", path.display())],
    }
}
