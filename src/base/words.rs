//! Flags that are serialized as words.

/// Declares modules for `#[serde(with = "…")]`. Each serializes a `bool` as one of two words in snake case:
/// the first stands for `false`, the second for `true`.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $no:ident, $yes:ident })+) => {$(
        $(#[$doc])*
        mod $name {
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            #[derive(Serialize, Deserialize)]
            #[serde(rename_all = "snake_case")]
            enum Word {
                $no,
                $yes,
            }

            pub(super) fn serialize<S: Serializer>(flag: &bool, to: S) -> Result<S::Ok, S::Error> {
                if *flag { Word::$yes } else { Word::$no }.serialize(to)
            }

            pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
                Ok(matches!(Word::deserialize(from)?, Word::$yes))
            }
        }
    )+};
}

pub(crate) use words;
