//! Keys computed from what they identify.

use std::error::Error;

use sha2::{Digest as _, Sha256};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// The first 128 bits of a SHA-256: of a namespace's name, or of a lane's needs, which the schema's function
/// `_lane_digest` computes. A UUID on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Digest([u8; Self::LEN]);

impl Digest {
    /// Its length in a message, in bytes.
    pub(super) const LEN: usize = 16;

    /// Returns the digest of a name.
    pub(super) fn of(name: &str) -> Self {
        let mut first = [0; Self::LEN];
        for (first, byte) in first.iter_mut().zip(Sha256::digest(name)) {
            *first = byte;
        }
        Self(first)
    }
}

impl<'r> FromSql<'r> for Digest {
    fn from_sql(_: &Type, raw: &'r [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(UUID);
}

impl ToSql for Digest {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `encode(substr(sha256(convert_to('default', 'UTF8')), 1, 16), 'hex')` in the server.
    #[test]
    fn the_server_computes_the_same() {
        let hex = |name| Digest::of(name).0.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(""), "e3b0c44298fc1c149afbf4c8996fb924");
        assert_eq!(hex("default"), "37a8eec1ce19687d132fe29051dca629");
    }
}
