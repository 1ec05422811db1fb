//! Statements in separate files.

/// Returns the statement in a `.sql` file beside the caller, as a `&'static str` without comments and line
/// breaks.
///
/// A file can be pasted into a shell unchanged. The store sends it as one line: SQLite finds a prepared
/// statement by hashing its text, and behind a pooler PostgreSQL is sent the text with every call.
macro_rules! statement {
    ($file:literal) => {{
        const FILE: &str = include_str!($file);
        const LINE: [u8; $crate::store::sql::statement::length_as_one_line(FILE)] =
            $crate::store::sql::statement::as_one_line(FILE);
        match std::str::from_utf8(&LINE) {
            Ok(line) => line,
            Err(_) => panic!("a statement lost part of a character"),
        }
    }};
}
pub(in crate::store) use statement;

/// Returns the length of [`as_one_line`].
pub(in crate::store) const fn length_as_one_line(file: &str) -> usize {
    let (mut lines, mut at, mut length) = (0, 0, 0);
    let bytes = file.as_bytes();
    while at < bytes.len() {
        let (begin, end, next) = line(bytes, at);
        if begin < end {
            length += end - begin;
            lines += 1;
        }
        at = next;
    }
    // One space between any two lines.
    if lines == 0 { 0 } else { length + lines - 1 }
}

/// Joins the lines of a file by spaces, without their indentation, without empty lines and without lines that
/// are comments. It does not compile with a comment behind other text, which would hide the lines after it.
pub(in crate::store) const fn as_one_line<const LENGTH: usize>(file: &str) -> [u8; LENGTH] {
    let mut joined = [b' '; LENGTH];
    let (mut at, mut length) = (0, 0);
    let bytes = file.as_bytes();
    while at < bytes.len() {
        let (mut from, end, next) = line(bytes, at);
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

/// Returns where the content of the line at a position begins and ends, and where the next line begins. A
/// comment has no content.
const fn line(bytes: &[u8], at: usize) -> (usize, usize, usize) {
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
    if is_comment { (begin, begin, next) } else { (begin, end, next) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_without_comments_and_indentation() {
        const FILE: &str = "-- What it does: a 'test'.\n\nSELECT a - -1,\n  'ü - b'\n  -- Why.\nFROM c\r\n\n";
        let line: [u8; length_as_one_line(FILE)] = as_one_line(FILE);
        assert_eq!(std::str::from_utf8(&line).unwrap(), "SELECT a - -1, 'ü - b' FROM c");
        assert_eq!(length_as_one_line("-- Nothing.\n"), 0);
    }
}
