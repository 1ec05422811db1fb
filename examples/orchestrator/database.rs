//! The database: a SQLite file, or a schema of a PostgreSQL server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stationmaster::store::{SqliteStore, Store};

use crate::trouble::Trouble;

/// The database that the user named.
#[derive(Debug, Clone)]
pub(crate) enum Database {
    File(PathBuf),
    Postgres { url: String, schema: String },
}

impl Database {
    /// Returns the database that `--db` names.
    pub(crate) fn named(db: &Path, schema: &str) -> Self {
        match db.to_str() {
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Self::Postgres { url: url.to_owned(), schema: schema.to_owned() }
            }
            _ => Self::File(db.to_owned()),
        }
    }

    /// Returns the command of a shell that runs `stationmaster` on it with these arguments. A password is left out.
    pub(crate) fn inspect(&self, arguments: &[&str]) -> String {
        let (features, place) = match self {
            Self::File(file) => ("cli", vec!["--db".to_owned(), file.display().to_string()]),
            Self::Postgres { url, schema } => (
                "cli,postgres",
                ["--db", &without_password(url), "--schema", schema].map(str::to_owned).into(),
            ),
        };
        let words = place.iter().map(String::as_str).chain(arguments.iter().copied()).map(quoted);
        format!("cargo run --features {features} -- {}", words.collect::<Vec<_>>().join(" "))
    }

    /// Opens it, and creates its tables if necessary.
    pub(crate) fn open(&self, work: &Path) -> Result<Arc<dyn Store>, Trouble> {
        match self {
            Self::File(file) => open_file(file, work),
            Self::Postgres { url, schema } => open_postgres(url, schema),
        }
    }
}

/// Replaces the password in a URL, if there is one.
fn without_password(url: &str) -> String {
    // The driver takes what is before the first `@`, also if it has a `?` or a `/`.
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (user, rest) = rest.split_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    let (place, options) = rest.split_once('?').map_or((rest, None), |(place, more)| (place, Some(more)));
    let place = place.rsplit('@').next().unwrap_or(place);
    let user = user.map_or_else(String::new, |user| match user.split_once(':') {
        Some((name, _)) => format!("{name}:PASSWORD@"),
        None => format!("{user}@"),
    });
    let options = options.filter(|options| !options.contains("password"));
    let options = options.map_or_else(String::new, |options| format!("?{options}"));
    format!("{scheme}://{user}{place}{options}")
}

/// Returns a word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-:@=+,".contains(char);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn open_file(file: &Path, work: &Path) -> Result<Arc<dyn Store>, Trouble> {
    // The default folder is ours to create. Any other folder must exist, because a missing one may be a typing
    // error.
    if file.starts_with(work) {
        std::fs::create_dir_all(work).map_err(|error| {
            Trouble::input(format!(
                "cannot make the directory {}: {error}: give another --db",
                work.display()
            ))
        })?;
    }
    match SqliteStore::open(file, Default::default()) {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(Trouble::input(format!(
            "cannot use the database {}: {error}: give another --db",
            file.display()
        ))),
    }
}

#[cfg(feature = "postgres")]
fn open_postgres(url: &str, schema: &str) -> Result<Arc<dyn Store>, Trouble> {
    use stationmaster::store::PostgresStore;
    use stationmaster::store::postgres::PostgresOptions;

    let options = schema.try_into().map(|schema| PostgresOptions::new().schema(schema));
    let options = options.map_err(|error| Trouble::input(error.to_string()))?;
    match PostgresStore::connect(url, options) {
        Ok(store) => Ok(Arc::new(store)),
        // The URL may contain a password.
        Err(error) => {
            Err(Trouble::input(format!("cannot use the PostgreSQL database: {error}: give another --db")))
        }
    }
}

#[cfg(not(feature = "postgres"))]
fn open_postgres(_: &str, _: &str) -> Result<Arc<dyn Store>, Trouble> {
    Err(Trouble::input(
        "this program was built without PostgreSQL: build it with `--features postgres`, or give a file as --db",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted_and_has_no_password() {
        let file = Database::File("/my own/it's.db".into());
        assert_eq!(
            file.inspect(&["tasks", "--run", "r-1"]),
            r"cargo run --features cli -- --db '/my own/it'\''s.db' tasks --run r-1"
        );
        for (url, shown) in [
            ("postgres://me@host/db", "postgres://me@host/db"),
            ("postgres://me:se/c:r@et@host:5432/db", "postgres://me:PASSWORD@host:5432/db"),
            ("postgres://me:pa?ss@host/db", "postgres://me:PASSWORD@host/db"),
            ("postgres://host/db?password=secret", "postgres://host/db"),
            ("postgres://host/db?connect_timeout=3", "'postgres://host/db?connect_timeout=3'"),
            ("postgres://me:secr@et@host:5432/db", "postgres://me:PASSWORD@host:5432/db"),
            ("postgres://host/db", "postgres://host/db"),
        ] {
            let server = Database::Postgres { url: url.to_owned(), schema: "s".to_owned() };
            let command = server.inspect(&["tasks"]);
            assert_eq!(
                command,
                format!("cargo run --features cli,postgres -- --db {shown} --schema s tasks"),
                "{url}"
            );
        }
    }
}
