//! Why the program stops, and its exit code.

use std::path::Path;

/// What ends the program early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The user's input cannot be used, and nothing was run. The text says what to do.
    #[error("{0}")]
    Input(String),
    /// Something failed during the run.
    #[error("{0}")]
    Broken(String),
}

impl Trouble {
    pub(crate) fn input(text: impl Into<String>) -> Self {
        Self::Input(text.into())
    }

    /// A file or directory could not be created or written.
    pub(crate) fn io(what: &str, path: &Path, error: &std::io::Error) -> Self {
        Self::Broken(format!("cannot {what} {}: {error}", path.display()))
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            Self::Broken(_) => 1,
        }
    }
}

impl From<stationmaster::Error> for Trouble {
    fn from(error: stationmaster::Error) -> Self {
        Self::Broken(format!("the database failed: {error}"))
    }
}
