//! The caps on a host's input. A call that exceeds one is refused with a typed error and changes nothing.

/// The largest pool, the largest limit, and the most slots that one task may request.
pub const MAX_SLOTS: u32 = i32::MAX as u32;

/// The most limit keys that one task may carry.
pub const MAX_LIMIT_KEYS: usize = 16;

/// The most pools from which one task may request slots.
pub const MAX_POOLS: usize = 8;

/// Returns the same text, truncated to [`MAX_TEXT_BYTES`] if it is longer.
pub(crate) fn clip(text: String) -> String {
    clip_to(MAX_TEXT_BYTES, text)
}

/// Truncates a text to at most this many bytes, at a character boundary.
pub(crate) fn clip_to(bytes: usize, mut text: String) -> String {
    let cut = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(cut.unwrap_or(0));
    text
}

/// The longest payload, message or landed value, in bytes.
pub const MAX_TEXT_BYTES: usize = 1 << 20;

/// The longest note that a holder may leave about its work, in bytes.
pub const MAX_NOTE_BYTES: usize = 1_024;

/// The most buckets in one row of a series of runs.
pub const MAX_BUCKETS: usize = 100_000;

/// The most buckets in all rows of a series together: about 100 MB while the series is built.
pub const MAX_SERIES_BUCKETS: usize = 2_000_000;
