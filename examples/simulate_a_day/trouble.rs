//! Why the program stops without a result.

#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The user's input cannot be used. The text says what to do.
    #[error("{0}")]
    Input(String),
    /// Something failed during the run.
    #[error(transparent)]
    Broken(#[from] Box<dyn std::error::Error + Send + Sync>),
}

macro_rules! broken {
    ($($error:ty),+) => {$(
        impl From<$error> for Trouble {
            fn from(error: $error) -> Self {
                Self::Broken(error.into())
            }
        }
    )+};
}

broken!(stationmaster::Error, serde_json::Error, std::io::Error);
