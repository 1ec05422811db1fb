//! Why a command ended early, and its exit code.

use std::io;

use stationmaster::Error;

use crate::text::visible;

/// Nothing was found, an audit found a wrong counter, or not everything was changed.
pub const NOT_ALL: u8 = 1;

/// A failure of a command.
#[derive(Debug)]
pub enum Failure {
    /// The command line is invalid.
    Usage(String),
    /// The store cannot be opened, read or written.
    Store(String),
    /// The output cannot be written.
    Output(io::Error),
}

impl Failure {
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Store(_) => 3,
            // The reader has closed the output because it has seen enough.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Output(_) => 3,
        }
    }

    /// Returns the message to print, if any. Errors may quote texts of tasks.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Usage(text) | Self::Store(text) => Some(visible(text)),
            Self::Output(_) if self.code() == 0 => None,
            Self::Output(error) => Some(format!("the output cannot be written: {error}")),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match &error {
            Error::Invalid(_) => Self::Usage(error.to_string()),
            _ => Self::Store(error.to_string()),
        }
    }
}

impl From<stationmaster::error::Invalid> for Failure {
    fn from(error: stationmaster::error::Invalid) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
