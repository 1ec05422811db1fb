//! Stub, replaced at the merge.
#![allow(missing_docs)]
use serde::{Deserialize, Serialize};
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    pub retries: u32,
}
impl RetryPolicy {
    pub fn none() -> Self {
        Self { retries: 0 }
    }
}
