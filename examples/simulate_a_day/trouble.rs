//! Why the program stops before it has an answer.

#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// What the user gave cannot be used. The text says what to do.
    #[error("{0}")]
    Input(String),
    /// Something broke on the way.
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
