//! The memory store.
use super::*;
/// Keeps everything in memory.
#[derive(Debug, Default)]
pub struct MemoryStore;
impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self
    }
}
impl Store for MemoryStore {
    fn info(&self) -> StoreInfo {
        StoreInfo::new("memory", 0, Durability::None)
    }
    fn transact(&self, _: TxMode, _: &mut dyn FnMut(&mut dyn StoreTx) -> Result<()>) -> Result<()> {
        Ok(())
    }
}
