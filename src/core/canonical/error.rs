//! Why a document has no canonical form, and where.

use std::fmt::Write as _;

/// Why a document was refused.
///
/// Paths begin at the document, `$`. A member is `.key`, or `["key"]` if the key is not a plain identifier.
/// An element is `[0]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CanonicalError {
    /// The text is not JSON (RFC 8259).
    #[error("not JSON at byte {at}, in {path}: {problem}")]
    Syntax {
        /// The byte at which reading stopped.
        at: usize,
        /// The value that was being read.
        path: String,
        /// What is wrong there.
        problem: &'static str,
    },
    /// A NaN or an infinity.
    #[error("{path} is {text}: JSON has no such number, use null or a string")]
    NotFinite {
        /// Where it is.
        path: String,
        /// Its text.
        text: String,
    },
    /// A number that neither a 64-bit integer nor a double represents exactly as written.
    #[error("{path} is {text}, which does not survive as a number: use a string")]
    Number {
        /// Where it is.
        path: String,
        /// Its text, or only the beginning if it is long.
        text: String,
    },
    /// An object has a key more than once.
    #[error("{path} occurs twice: keep one of them")]
    DuplicateKey {
        /// The member.
        path: String,
    },
    /// Arrays and objects are nested deeper than [`MAX_DEPTH`](super::MAX_DEPTH).
    #[error("{path} is nested deeper than {} levels: flatten it", super::MAX_DEPTH)]
    TooDeep {
        /// The first value that is too deep.
        path: String,
    },
    /// The canonical text would be longer than [`MAX_BYTES`](super::MAX_BYTES).
    #[error(
        "at {path} the document grows beyond {} bytes: keep a reference to the data, not the data",
        super::MAX_BYTES
    )]
    TooLarge {
        /// The value at which it became too large.
        path: String,
    },
    /// A poke context must be an object.
    #[error("$ is {found}: a poke context is an object of named fields")]
    NotAnObject {
        /// What it is instead.
        found: &'static str,
    },
    /// The fields could not be serialised.
    #[error("the fields could not be serialised: {problem}")]
    Serialize {
        /// The serializer's message.
        problem: String,
    },
}

/// The position of a value: a chain of steps on the stack, formatted as text only for an error.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    Member(&'a Path<'a>, &'a str),
    Element(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// The longest part of one key that is shown.
    const SHOWN: usize = 64;

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        self.append(&mut text);
        text
    }

    fn append(&self, text: &mut String) {
        match self {
            Self::Root => text.push('$'),
            Self::Element(parent, index) => {
                parent.append(text);
                let _ = write!(text, "[{index}]");
            }
            Self::Member(parent, key) => {
                parent.append(text);
                let plain = key.chars().all(|c| c.is_alphanumeric() || c == '_')
                    && key.chars().next().is_some_and(|c| !c.is_numeric());
                let _ = match (plain, key.char_indices().nth(Self::SHOWN)) {
                    (_, Some((cut, _))) => write!(text, "[{:?}…]", &key[..cut]),
                    (true, None) => write!(text, ".{key}"),
                    (false, None) => write!(text, "[{key:?}]"),
                };
            }
        }
    }
}

/// Returns the beginning of a literal, for an error.
pub(super) fn shown(literal: &str) -> String {
    match literal.char_indices().nth(40) {
        Some((cut, _)) => format!("{}…", &literal[..cut]),
        None => literal.to_owned(),
    }
}

impl From<CanonicalError> for crate::Error {
    fn from(error: CanonicalError) -> Self {
        Self::Refused(Box::new(error))
    }
}
