//! A log file for each attempt of each sensor.

mod reader;

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::DateTime;
use parking_lot::Mutex;
use siphasher::sip::SipHasher24;

use super::poker::PokeLog;
use crate::base::setters;
use crate::error::Invalid;
use crate::id::TaskKey;
use crate::sensor::{PokeOutcome, SensorRecord};
use crate::time::Timestamp;

/// The ending of a rotated file. No log has such a name: names are escaped, templates with a `~` are refused, and a
/// name that was cut ends in a longer hash.
const ASIDE: &str = "~1";

/// The longest file or directory name, in bytes. Common file systems accept 255, and a rotated file needs two of
/// them.
const LONGEST_NAME: usize = 255 - ASIDE.len();

/// The default for the most bytes of an attempt's log.
const MOST_BYTES: u64 = 1 << 20;

/// The most bytes of a context, and of an outcome, in the log.
const LONGEST_TEXT: usize = 2_048;

/// Writes the life of each sensor to the log file of its attempt: its registration, each poke, changes of its worker,
/// outages, and its end. [`Self::reader`] reads it together with the store's data.
///
/// Each line opens the file, appends to it and closes it, so thousands of sensors hold no open file.
/// Directories are created as needed. Failures are counted ([`Self::failures`]) and do not affect the
/// sensors. Clones share the count.
///
/// # Paths
///
/// A template is a relative path with `/` between its parts and these placeholders: `{namespace}`, `{workflow}`,
/// `{run}`, `{task}`, `{map_index}`, `{attempt}`. A part that contains `{map_index}` is omitted for tasks that are
/// not mapped, so the last part, the file's name, must not contain it. A log cannot be outside the root, whatever
/// names tasks have. Bytes of names other than letters, digits and `_ - . + = @ : ,` are written as `%` and two
/// hexadecimal digits (on Windows `:` too). The names `.` and `..` are escaped, too. In a part longer than 253 bytes,
/// a hash of the whole part replaces the end.
///
/// So different names have different paths on case-sensitive file systems, except in a part with several
/// placeholders: `{workflow}-{task}` cannot tell `a-b` and `c` from `a` and `b-c`. Give each placeholder its own
/// part, with a text that distinguishes the parts, as [`Self::AIRFLOW`] does.
///
/// # Examples
///
/// ```
/// use stationmaster::TaskKey;
/// use stationmaster::service::FileLog;
///
/// let log = FileLog::new("/var/log/airflow", FileLog::AIRFLOW)?;
/// let key = TaskKey::new("prod", "nightly", "2026-01-01", "../wait")?;
/// let path = log.path(&key.clone().mapped(3), 1);
/// assert_eq!(
///     path.to_str(),
///     Some("/var/log/airflow/dag_id=nightly/run_id=2026-01-01/task_id=..%2Fwait/map_index=3/attempt=1.log"),
/// );
/// assert!(FileLog::new("/var/log", "{task}/{try}.log").is_err());
/// assert!(FileLog::new("/var/log", "{task}-{map_index}.log").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct FileLog {
    root: PathBuf,
    parts: Vec<Vec<Piece>>,
    most_bytes: u64,
    failures: Arc<Mutex<Failures>>,
}

/// The lines that were lost.
#[derive(Debug, Default)]
struct Failures {
    count: u64,
    /// The path and the error of the last lost line.
    last: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Namespace,
    Workflow,
    Run,
    Task,
    MapIndex,
    Attempt,
}

impl FileLog {
    /// Airflow's paths (since 2.3).
    pub const AIRFLOW: &str =
        "dag_id={workflow}/run_id={run}/task_id={task}/map_index={map_index}/attempt={attempt}.log";

    /// Creates a log below `root`, at the paths of this template.
    ///
    /// # Errors
    ///
    /// [`Invalid::Template`] if the template could lead outside the root, has an unknown placeholder, or does
    /// not name a file for tasks that are not mapped.
    pub fn new(root: impl Into<PathBuf>, template: &str) -> Result<Self, Invalid> {
        let parts = template.split('/').map(pieces).collect::<Result<Vec<_>, _>>()?;
        if parts.last().is_some_and(|file| file.contains(&Piece::MapIndex)) {
            let part = template.rsplit('/').next().unwrap_or_default().to_owned();
            return Err(refused(format!(
                "{part:?} names the file, so it cannot have {{map_index}}, which most tasks lack: give that a part of its \
                 own before it, say {{task}}/map_index={{map_index}}/attempt={{attempt}}.log"
            )));
        }
        Ok(Self { root: root.into(), parts, most_bytes: MOST_BYTES, failures: Arc::default() })
    }

    setters! {
        /// Sets how many bytes the log of an attempt may have, 1 MiB by default. A file that reaches half of
        /// that is renamed to end in `~1`, in place of an earlier one, and a new file begins. A longer line
        /// is still written.
        most_bytes: u64;
    }

    /// Returns the path of this attempt's log.
    pub fn path(&self, task: &TaskKey, attempt: u32) -> PathBuf {
        let mut path = self.root.clone();
        for part in &self.parts {
            if part.contains(&Piece::MapIndex) && task.map_index.is_none() {
                continue;
            }
            let name: String = part.iter().map(|piece| piece.of(task, attempt)).collect();
            path.push(bounded(name));
        }
        path
    }

    /// Returns how many lines were lost because they could not be written.
    pub fn failures(&self) -> u64 {
        self.failures.lock().count
    }

    /// Returns the path and the error of the last line that was lost.
    pub fn last_failure(&self) -> Option<String> {
        self.failures.lock().last.clone()
    }
}

impl Piece {
    fn of(&self, task: &TaskKey, attempt: u32) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Namespace => safe(task.namespace.as_str()),
            Self::Workflow => safe(task.workflow.as_str()),
            Self::Run => safe(task.run.as_str()),
            Self::Task => safe(task.task.as_str()),
            Self::MapIndex => task.map_index.map(|index| index.to_string()).unwrap_or_default(),
            Self::Attempt => attempt.to_string(),
        }
    }
}

fn pieces(part: &str) -> Result<Vec<Piece>, Invalid> {
    let odd = |c: char| matches!(c, '\\' | '~') || c.is_control();
    if matches!(part, "" | "." | "..") || part.contains(odd) || (cfg!(windows) && part.contains(':')) {
        return Err(refused(format!(
            "part {part:?} of the template is refused: give a relative path without empty parts, `.`, `..`, `\\`, `~` and NUL"
        )));
    }
    let mut pieces = Vec::new();
    let mut rest = part;
    while let Some((text, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            return Err(no_placeholder(after));
        };
        if !text.is_empty() {
            pieces.push(Piece::Text(text.to_owned()));
        }
        pieces.push(match name {
            "namespace" => Piece::Namespace,
            "workflow" => Piece::Workflow,
            "run" => Piece::Run,
            "task" => Piece::Task,
            "map_index" => Piece::MapIndex,
            "attempt" => Piece::Attempt,
            _ => return Err(no_placeholder(name)),
        });
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

fn refused(why: String) -> Invalid {
    Invalid::Template { why }
}

/// Returns the error for braces that contain no known name or are not closed.
fn no_placeholder(name: &str) -> Invalid {
    refused(format!(
        "{{{name}}} is no placeholder: use {{namespace}}, {{workflow}}, {{run}}, {{task}}, {{map_index}} or {{attempt}}"
    ))
}

/// Escapes every byte of a name that could have a meaning to a file system.
fn safe(name: &str) -> String {
    let plain = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'_' | b'-' | b'.' | b'+' | b'=' | b'@' | b',')
            || (byte == b':' && !cfg!(windows))
    };
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if plain(byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Returns a part of a path that is neither `.` nor `..`, and not too long. Escaped names are ASCII, but the
/// template's own text need not be.
fn bounded(name: String) -> String {
    match name.as_str() {
        "." => return "%2E".to_owned(),
        ".." => return "%2E%2E".to_owned(),
        _ => {}
    }
    if name.len() <= LONGEST_NAME {
        return name;
    }
    let hash = format!("~{:016x}", SipHasher24::new().hash(name.as_bytes()));
    let cut = (0..=LONGEST_NAME - hash.len()).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    name[..cut].to_owned() + &hash
}

impl PokeLog for FileLog {
    fn poked(&self, sensor: &SensorRecord, now: Timestamp, answer: &PokeOutcome) {
        let waits_for = clip(sensor.context.as_str());
        let answer = match answer {
            PokeOutcome::NotYet => "not yet".to_owned(),
            PokeOutcome::Progress(how_far) => format!("not yet: {}", clip(how_far)),
            PokeOutcome::Landed(None) => "landed".to_owned(),
            PokeOutcome::Landed(Some(value)) => format!("landed: {}", clip(value)),
            PokeOutcome::Unreachable(why) => format!("could not look: {}", clip(why)),
            PokeOutcome::Failed(why) => format!("failed: {}", clip(why)),
        };
        let text = format!("poke {} {waits_for} {answer}", clip(sensor.kind.as_str()));
        self.write(sensor, &format!("{} {text}", instant(now)));
    }

    fn noted(&self, sensor: &SensorRecord, at: Timestamp, what: &str) {
        self.write(sensor, &line(at, what));
    }
}

impl FileLog {
    fn write(&self, sensor: &SensorRecord, line: &str) {
        let path = self.path(&sensor.task, sensor.attempt);
        if let Err(error) = append(&path, line, self.most_bytes / 2) {
            let mut failures = self.failures.lock();
            failures.count += 1;
            failures.last = Some(format!("{}: {error}", path.display()));
        }
    }
}

/// Returns a line of the log.
fn line(at: Timestamp, text: &str) -> String {
    format!("{} {}", instant(at), clip(text))
}

fn instant(at: Timestamp) -> String {
    DateTime::from(at).format("%Y-%m-%d %H:%M:%S%.3f UTC").to_string()
}

/// Returns the beginning of a text, on one line.
fn clip(text: &str) -> String {
    let cut = (0..=LONGEST_TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let mut shown = String::with_capacity(cut);
    for c in text[..cut].chars() {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    if cut < text.len() {
        shown.push_str(&format!("… ({} bytes)", text.len()));
    }
    shown
}

/// Appends a line. If that would make the file longer than `most`, the file is rotated first, in place of an earlier
/// rotated file. If two processes do this at once, one rotated file may be lost.
fn append(path: &Path, line: &str, most: u64) -> io::Result<()> {
    let mut open = OpenOptions::new();
    let open = open.create(true).append(true);
    let mut file = match (open.open(path), path.parent()) {
        (Err(error), Some(dir)) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(dir)?;
            open.open(path)?
        }
        (opened, _) => opened?,
    };
    let length = file.metadata()?.len();
    if length > 0 && length + line.len() as u64 >= most {
        fs::rename(path, rotated(path))?;
        file = open.open(path)?;
    }
    file.write_all(format!("{line}\n").as_bytes())
}

/// Returns the path of a log's rotated file.
fn rotated(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ASIDE);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Component;

    fn key(task: &str, index: Option<u32>) -> TaskKey {
        let mut key = TaskKey::new("ns", "w", "r", task).unwrap();
        key.map_index = index;
        key
    }

    fn path(template: &str, key: &TaskKey) -> String {
        FileLog::new("root", template).unwrap().path(key, 7).to_str().unwrap().to_owned()
    }

    #[test]
    fn templates_are_filled_in() {
        let one = key("a b", None);
        assert_eq!(path("{namespace}-{run}/x{task}y/{attempt}", &one), "root/ns-r/xa%20by/7");
        assert_eq!(path("{task}/{map_index}/log", &one), "root/a%20b/log");
        assert_eq!(path("{task}/{map_index}/log", &key("t", Some(0))), "root/t/0/log");
        assert_eq!(path("all.log", &one), "root/all.log");
    }

    #[test]
    fn templates_that_could_lead_astray_are_refused() {
        let refusal = |template: &str| FileLog::new("root", template).unwrap_err().to_string();
        for template in
            ["", "/etc/{task}", "a//b", "../{task}", "{task}/..", "./a", "a/", "a\\b", "a\0b", "a~1"]
        {
            let why = refusal(template);
            assert!(
                why.starts_with("part ") && why.contains("of the template is refused"),
                "{template:?}: {why}"
            );
        }
        for template in ["{map_index}", "{task}-{map_index}.log", "{workflow}/{map_index}.log"] {
            let why = refusal(template);
            assert!(why.contains(" names the file, so it cannot have {map_index}"), "{template:?}: {why}");
        }
        for template in ["{try}", "{task", "{}", "{{task}}", "{Task}"] {
            let why = refusal(template);
            assert!(why.contains("} is no placeholder: use {namespace}"), "{template:?}: {why}");
        }
    }

    #[test]
    fn names_that_could_lead_astray_are_made_safe() {
        for (name, safe) in [
            ("..", "root/%2E%2E"),
            (".", "root/%2E"),
            ("../../etc/passwd", "root/..%2F..%2Fetc%2Fpasswd"),
            ("/abs", "root/%2Fabs"),
            ("a\\b\n%", "root/a%5Cb%0A%25"),
            ("é", "root/%C3%A9"),
            ("...", "root/..."),
        ] {
            assert_eq!(path("{task}", &key(name, None)), safe);
        }
        let long = [format!("{}a", "/".repeat(500)), format!("{}b", "/".repeat(500))];
        let [one, other] = long.map(|name| path("{task}.log", &key(&name, None)));
        assert_eq!(one.len(), "root/".len() + LONGEST_NAME);
        assert_ne!(one, other);
    }

    proptest! {
        /// No name leaves the directory, and two names never share a file.
        #[test]
        fn paths_stay_below_the_root_and_are_distinct(one in "[./a%\\\\~\u{0}-\u{10ffff}]{1,90}", other in "[./%2EF~]{1,9}") {
            prop_assume!(!one.contains('\0') && one != other);
            let paths = [&one, &other].map(|name| path("{task}", &key(name, None)));
            prop_assert_ne!(&paths[0], &paths[1]);
            for path in &paths {
                let parts: Vec<Component<'_>> = Path::new(path).components().collect();
                prop_assert!(matches!(parts[..], [Component::Normal(_), Component::Normal(_)]), "{path}");
                prop_assert!(path.len() <= "root/".len() + LONGEST_NAME);
            }
        }
    }

    #[test]
    fn texts_stay_on_their_line() {
        assert_eq!(clip("a\nb\u{1b}[0m\té"), "a\\nb\\u{1b}[0m\\té");
        let long = clip(&"é".repeat(1_000_000));
        assert!(long.len() < 2_100 && long.ends_with("… (2000000 bytes)"), "{long}");
    }
}
