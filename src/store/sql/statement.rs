//! Statements in separate files.

/// Returns the statement in a `.sql` file beside the caller, as a `&'static str` without comments and line
/// breaks.
///
/// With `plain`, the part between the comments [`BEGIN`] and [`END`] is omitted, because lanes without limits never
/// need it. For most ticks, setting up its plan would cost more than running it.
///
/// A file can be pasted into a shell unchanged. The store sends it as one line: SQLite finds a prepared
/// statement by hashing its text, and behind a pooler PostgreSQL is sent the text with every call.
macro_rules! statement {
    ($file:literal) => {
        $crate::store::sql::statement::statement!($file, false)
    };
    ($file:literal, plain) => {
        $crate::store::sql::statement::statement!($file, true)
    };
    ($file:literal, $is_plain:literal) => {{
        const FILE: &str = include_str!($file);
        const LINE: [u8; $crate::store::sql::statement::length_as_one_line(FILE, $is_plain)] =
            $crate::store::sql::statement::as_one_line(FILE, $is_plain);
        match std::str::from_utf8(&LINE) {
            Ok(line) => line,
            Err(_) => panic!("a statement lost part of a character"),
        }
    }};
}
pub(in crate::store) use statement;

/// The comments around the part that a plain statement omits.
const BEGIN: &[u8] = b"-- If lanes carry limits:";
const END: &[u8] = b"-- In any case:";

/// Returns the length of [`as_one_line`].
pub(in crate::store) const fn length_as_one_line(file: &str, is_plain: bool) -> usize {
    let (mut lines, mut at, mut length, mut skips) = (0, 0, 0, false);
    let bytes = file.as_bytes();
    while at < bytes.len() {
        let (begin, end, next);
        (begin, end, next, skips) = line(bytes, at, skips, is_plain);
        if begin < end {
            length += end - begin;
            lines += 1;
        }
        at = next;
    }
    // One space between any two lines.
    if lines == 0 { 0 } else { length + lines - 1 }
}

/// Joins the lines of a file by spaces. Omits indentation, empty lines, and lines that are comments. Does not compile
/// if a comment follows other text, because it would hide the next lines.
pub(in crate::store) const fn as_one_line<const LENGTH: usize>(file: &str, is_plain: bool) -> [u8; LENGTH] {
    let mut joined = [b' '; LENGTH];
    let (mut at, mut length, mut skips) = (0, 0, false);
    let bytes = file.as_bytes();
    while at < bytes.len() {
        let (mut from, end, next);
        (from, end, next, skips) = line(bytes, at, skips, is_plain);
        if from < end && length > 0 {
            length += 1;
        }
        while from < end {
            let is_comment = bytes[from] == b'-' && from + 1 < end && bytes[from + 1] == b'-';
            assert!(!is_comment, "a comment must have a line of its own");
            joined[length] = bytes[from];
            length += 1;
            from += 1;
        }
        at = next;
    }
    joined
}

/// Returns where the content of the line at a position begins and ends, where the next line begins, and whether that
/// is omitted. A comment has no content.
const fn line(bytes: &[u8], at: usize, skips: bool, is_plain: bool) -> (usize, usize, usize, bool) {
    let mut begin = at;
    while begin < bytes.len() && bytes[begin] == b' ' {
        begin += 1;
    }
    let mut end = begin;
    while end < bytes.len() && bytes[end] != b'\n' && bytes[end] != b'\r' {
        end += 1;
    }
    let next = end + 1;
    let is_comment = end - begin >= 2 && bytes[begin] == b'-' && bytes[begin + 1] == b'-';
    let skips = (skips || is_plain && is(bytes, begin, end, BEGIN)) && !is(bytes, begin, end, END);
    if is_comment || skips { (begin, begin, next, skips) } else { (begin, end, next, skips) }
}

const fn is(bytes: &[u8], begin: usize, end: usize, text: &[u8]) -> bool {
    let mut at = 0;
    while at < text.len() && begin + at < end && bytes[begin + at] == text[at] {
        at += 1;
    }
    at == text.len() && begin + at == end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_without_comments_and_indentation() {
        const FILE: &str = "-- What it does: a 'test'.\n\nSELECT a - -1,\n  'ü - b'\n  -- Why.\nFROM c\r\n\n";
        let line: [u8; length_as_one_line(FILE, true)] = as_one_line(FILE, true);
        assert_eq!(std::str::from_utf8(&line).unwrap(), "SELECT a - -1, 'ü - b' FROM c");
        assert_eq!(length_as_one_line("-- Nothing.\n", false), 0);
    }

    #[test]
    fn a_plain_statement_does_without_what_limits_need() {
        const FILE: &str = "a\n  -- If lanes carry limits:\n  b\n  -- Why.\n  c\n-- In any case:\nd";
        let plain: [u8; length_as_one_line(FILE, true)] = as_one_line(FILE, true);
        let whole: [u8; length_as_one_line(FILE, false)] = as_one_line(FILE, false);
        assert_eq!((&plain[..], &whole[..]), (&b"a d"[..], &b"a b c d"[..]));
    }
}
