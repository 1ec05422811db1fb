//! Conversions from what a task's work returns to the outcome of its attempt.

use std::fmt::Display;

use super::attempt::{Outcome, RetryAdvice};

/// Success without a value.
impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Success { value: None }
    }
}

/// An error becomes a failure, with the alternate form of the error's text. The retry policy decides what
/// follows.
impl<T: Into<Outcome>, E: Display> From<Result<T, E>> for Outcome {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(done) => done.into(),
            Err(error) => Self::Failed { message: format!("{error:#}"), retry: RetryAdvice::Policy },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_work_returns_is_an_outcome() {
        let value = || Outcome::Success { value: Some("7".into()) };
        let failed = |message: &str| Outcome::Failed { message: message.into(), retry: RetryAdvice::Policy };
        assert_eq!(Outcome::from(()), Outcome::Success { value: None });
        assert_eq!(Outcome::from(Ok::<_, String>(value())), value());
        assert_eq!(Outcome::from(Ok::<_, String>(())), Outcome::Success { value: None });
        assert_eq!(Outcome::from(Err::<(), _>("no route to host")), failed("no route to host"));
    }
}
