//! Why a page cannot be shown.

use axum::http::StatusCode;

use crate::error::{Error, Invalid};

/// A reason, with the status of the response.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) status: StatusCode,
    pub(super) text: String,
    /// Whether a change may have taken effect anyway.
    pub(super) is_unknown: bool,
}

impl Trouble {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), is_unknown: false }
    }

    pub(super) fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    pub(super) fn missing(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match &error {
            Error::Invalid(_) => Self::bad(error.to_string()),
            error if error.is_retryable() => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("The store cannot be used now: {error}"))
            }
            error => {
                let text = format!("The store failed: {error}");
                let trouble = Self::new(StatusCode::INTERNAL_SERVER_ERROR, text);
                Self { is_unknown: error.is_indeterminate(), ..trouble }
            }
        }
    }
}

impl From<Invalid> for Trouble {
    fn from(error: Invalid) -> Self {
        Self::bad(error.to_string())
    }
}
