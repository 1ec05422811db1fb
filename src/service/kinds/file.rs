//! Sensors that wait for a file.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use glob::{MatchOptions, glob_with};
use serde::{Deserialize, Serialize};

use super::Condition;
use crate::base::setters;
use crate::seconds;
use crate::sensor::PokeOutcome;
use crate::service::poker::PokeRequest;
use crate::time::Timestamp;

/// Waits until a file or directory exists, by its path or by a pattern.
///
/// In a pattern `*` matches anything within a name, `?` one character, `[a-z]` one of these, and `**`
/// directories of any depth. A leading dot must be matched explicitly. If several files match, the first by
/// name that is old enough counts. A pattern skips directories that cannot be read; for a path they are
/// [`PokeOutcome::Unreachable`].
///
/// It lands with JSON: the path of the file, and its size in bytes.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::service::kinds::{Condition, FileExists};
/// // A file that its writer has left alone for a minute is likely to be whole.
/// let settled = FileExists::at("/data/in.csv").min_age(Duration::from_secs(60));
/// assert_eq!(settled.context()?.as_str(), r#"{"min_age_s":60,"path":"/data/in.csv"}"#);
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileExists {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    glob: Option<String>,
    #[serde(default, rename = "min_age_s", with = "seconds", skip_serializing_if = "Duration::is_zero")]
    min_age: Duration,
}

impl FileExists {
    /// Waits for the file at this path, which is taken literally.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: Some(path.into()), glob: None, min_age: Duration::ZERO }
    }

    /// Waits for a file whose path matches this pattern.
    pub fn matching(pattern: impl Into<String>) -> Self {
        Self { path: None, glob: Some(pattern.into()), min_age: Duration::ZERO }
    }

    setters! {
        /// Requires that the file has been unchanged for this long. Default: zero.
        min_age(age: Duration) { min_age = seconds::clip(age) }
    }

    fn look(&self, now: Timestamp) -> PokeOutcome {
        let path = self.path.as_deref().map(Path::as_os_str);
        let [path, glob] = [path, self.glob.as_deref().map(OsStr::new)].map(Option::unwrap_or_default);
        if [path, glob].iter().any(|text| text.as_encoded_bytes().contains(&0)) {
            return Self::wrong("it has a NUL character");
        }
        match (&self.path, &self.glob) {
            (Some(path), None) if !path.as_os_str().is_empty() => match fs::metadata(path) {
                Ok(file) => self.judge(path, &file, now),
                Err(error) if error.kind() == ErrorKind::NotFound => PokeOutcome::NotYet,
                Err(error) => PokeOutcome::Unreachable(format!("{}: {error}", path.display())),
            },
            (None, Some(pattern)) if !pattern.is_empty() => self.search(pattern, now),
            _ => Self::wrong("it must have either a path or a glob"),
        }
    }

    fn search(&self, pattern: &str, now: Timestamp) -> PokeOutcome {
        let options = MatchOptions { require_literal_leading_dot: true, ..MatchOptions::new() };
        let found = match glob_with(pattern, options) {
            Ok(found) => found,
            Err(error) => return Self::wrong(&format!("glob {pattern:?}: {error}")),
        };
        for path in found.flatten() {
            // It may have been deleted meanwhile.
            let Ok(file) = fs::metadata(&path) else { continue };
            let answer = self.judge(&path, &file, now);
            if answer != PokeOutcome::NotYet {
                return answer;
            }
        }
        PokeOutcome::NotYet
    }

    fn judge(&self, path: &Path, file: &Metadata, now: Timestamp) -> PokeOutcome {
        #[derive(Serialize)]
        struct Found<'a> {
            path: &'a str,
            bytes: u64,
        }

        if !self.min_age.is_zero() {
            match file.modified() {
                Ok(modified) if left_alone(modified, self.min_age, now) => {}
                Ok(_) => return PokeOutcome::NotYet,
                Err(error) => return PokeOutcome::Unreachable(format!("{}: {error}", path.display())),
            }
        }
        let found = Found { path: &path.to_string_lossy(), bytes: file.len() };
        PokeOutcome::Landed(serde_json::to_string(&found).ok())
    }
}

/// Returns true if the file has been unchanged for at least this long. Its time may be outside the range of a
/// [`Timestamp`].
fn left_alone(modified: SystemTime, age: Duration, now: Timestamp) -> bool {
    let since_epoch = u64::try_from(now.as_micros()).ok().map(Duration::from_micros);
    let now = since_epoch.and_then(|length| UNIX_EPOCH.checked_add(length));
    now.and_then(|now| now.checked_sub(age)).is_some_and(|latest| modified <= latest)
}

impl Condition for FileExists {
    const KIND: &'static str = "file_exists";
    const EXAMPLE: &'static str = r#"{"path": "/data/in.csv"} or {"glob": "/data/*.csv", "min_age_s": 60}"#;
}

/// Pokes for [`FileExists`].
pub fn file_exists(request: &PokeRequest) -> PokeOutcome {
    match FileExists::read(&request.context) {
        Ok(wanted) => wanted.look(request.now),
        Err(wrong) => wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_any_time_are_judged() {
        let (second, now) = (Duration::from_secs(1), Timestamp::from_micros(10_000_000));
        let written = |seconds: u64| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap();
        assert!(left_alone(written(9), second, now) && !left_alone(written(10), second, now));
        assert!(!left_alone(written(9), second, Timestamp::from_micros(-1)));
        // Years -270,000 and 280,000: some file systems store them.
        let far = Duration::from_secs(1 << 43);
        assert!(!left_alone(UNIX_EPOCH + far, second, now));
        #[cfg(unix)]
        assert!(left_alone(UNIX_EPOCH - far, second, now));
    }
}
