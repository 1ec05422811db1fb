//! Statements in separate files.

/// Returns the statement in a `.sql` file beside the caller, as a `&'static str` without comments and line
/// breaks.
///
/// With `plain`, the part between the comments [`BEGIN`] and [`END`] is omitted, because lanes without limits never
/// need it. For most ticks, setting up its plan would cost more than running it.
///
/// `name = text` fills the places marked `{name}`. So what several statements share is written once: either the
/// statement that has such places, or the text that fills them.
///
/// The store sends a statement as one line: SQLite finds a prepared statement by hashing its text, and behind a
/// pooler PostgreSQL is sent the text with every call.
macro_rules! statement {
    ($file:literal) => {
        $crate::store::sql::statement::one_line!(include_str!($file), false, [])
    };
    ($file:literal, plain) => {
        $crate::store::sql::statement::one_line!(include_str!($file), true, [])
    };
    ($file:literal, $($place:ident = $text:expr),+ $(,)?) => {
        $crate::store::sql::statement::one_line!(include_str!($file), false, [$((stringify!($place), $text)),+])
    };
}
pub(in crate::store) use statement;

/// Returns a text as [`statement!`] does the one in a file.
macro_rules! one_line {
    ($text:expr, $is_plain:literal, [$($fill:expr),*]) => {{
        const FILLS: &[(&str, &str)] = &[$($fill),*];
        const TEXT: $crate::store::sql::statement::Text<'static> =
            $crate::store::sql::statement::Text::new($text, $is_plain, FILLS);
        const LINE: [u8; TEXT.write(&mut [])] = TEXT.as_one_line();
        match std::str::from_utf8(&LINE) {
            Ok(line) => line,
            Err(_) => panic!("a statement lost part of a character"),
        }
    }};
}
pub(in crate::store) use one_line;

/// The comments around the part that a plain statement omits.
const BEGIN: &[u8] = b"-- If lanes carry limits:";
const END: &[u8] = b"-- In any case:";

/// A statement as it is written.
#[derive(Clone, Copy)]
pub(in crate::store) struct Text<'t> {
    bytes: &'t [u8],
    is_plain: bool,
    /// The names of its places, with what fills them.
    fills: &'t [(&'t str, &'t str)],
}

impl<'t> Text<'t> {
    /// Does not compile if one of the fills has no place.
    pub(in crate::store) const fn new(
        text: &'t str,
        is_plain: bool,
        fills: &'t [(&'t str, &'t str)],
    ) -> Self {
        let text = Self { bytes: text.as_bytes(), is_plain, fills };
        let mut at = 0;
        while at < fills.len() {
            assert!(text.has_place(fills[at].0), "a statement has no such place to fill");
            at += 1;
        }
        text
    }

    /// Joins the lines by spaces. Omits indentation, empty lines, and lines that are comments.
    pub(in crate::store) const fn as_one_line<const LENGTH: usize>(&self) -> [u8; LENGTH] {
        let mut joined = [b' '; LENGTH];
        self.write(&mut joined);
        joined
    }

    /// Writes [`Self::as_one_line`] as far as there is room, and returns its whole length. Does not compile if a
    /// comment follows other text, because it would hide the next lines, or if nothing fills a place.
    pub(in crate::store) const fn write(&self, into: &mut [u8]) -> usize {
        let (mut at, mut length, mut skips) = (0, 0, false);
        while at < self.bytes.len() {
            let (mut from, end, next);
            (from, end, next, skips) = self.line(at, skips);
            let begin = length;
            while from < end {
                let is_comment = self.bytes[from] == b'-' && from + 1 < end && self.bytes[from + 1] == b'-';
                assert!(!is_comment, "a comment must have a line of its own");
                if self.bytes[from] == b'{' && from + 1 < end && self.bytes[from + 1].is_ascii_lowercase() {
                    let (fill, behind) = self.fill(from);
                    length = append(into, length, begin, fill.as_bytes());
                    from = behind;
                } else {
                    length = append(into, length, begin, &[self.bytes[from]]);
                    from += 1;
                }
            }
            at = next;
        }
        length
    }

    /// Returns where the content of the line at a position begins and ends, where the next line begins, and whether
    /// that is omitted. A comment has no content.
    const fn line(&self, at: usize, skips: bool) -> (usize, usize, usize, bool) {
        let bytes = self.bytes;
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
        let begins = self.is_plain && end - begin == BEGIN.len() && is_at(bytes, begin, BEGIN);
        let ends = end - begin == END.len() && is_at(bytes, begin, END);
        let skips = (skips || begins) && !ends;
        if is_comment || skips { (begin, begin, next, skips) } else { (begin, end, next, skips) }
    }

    /// Returns what fills the place here, and where the text continues.
    const fn fill(&self, at: usize) -> (&'t str, usize) {
        let mut fill = 0;
        loop {
            assert!(fill < self.fills.len(), "nothing fills a place of a statement");
            let (name, text) = self.fills[fill];
            if self.is_place_of(at, name) {
                return (text, at + name.len() + 2);
            }
            fill += 1;
        }
    }

    const fn has_place(&self, name: &str) -> bool {
        let mut at = 0;
        while at < self.bytes.len() {
            if self.is_place_of(at, name) {
                return true;
            }
            at += 1;
        }
        false
    }

    const fn is_place_of(&self, at: usize, name: &str) -> bool {
        is_at(self.bytes, at, b"{")
            && is_at(self.bytes, at + 1, name.as_bytes())
            && is_at(self.bytes, at + 1 + name.len(), b"}")
    }
}

/// Appends to a line of which the part from `begin` on belongs to one line of a file, as far as there is room. Returns
/// the new length. Between two lines there is a space, with which all room is filled before.
const fn append(into: &mut [u8], length: usize, begin: usize, text: &[u8]) -> usize {
    let start = if length == begin && begin > 0 && !text.is_empty() { length + 1 } else { length };
    let mut at = 0;
    while at < text.len() {
        if start + at < into.len() {
            into[start + at] = text[at];
        }
        at += 1;
    }
    start + at
}

const fn is_at(bytes: &[u8], begin: usize, text: &[u8]) -> bool {
    let mut at = 0;
    while at < text.len() && begin + at < bytes.len() && bytes[begin + at] == text[at] {
        at += 1;
    }
    at == text.len()
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_are_joined_without_comments_and_indentation() {
        const FILE: &str = "-- What it does: a 'test'.\n\nSELECT a - -1,\n  'ü - b'\n  -- Why.\nFROM c\r\n\n";
        assert_eq!(one_line!(FILE, true, []), "SELECT a - -1, 'ü - b' FROM c");
        assert_eq!(one_line!("-- Nothing.\n", false, []), "");
    }

    #[test]
    fn a_plain_statement_does_without_what_limits_need() {
        const FILE: &str = "a\n  -- If lanes carry limits:\n  b\n  -- Why.\n  c\n-- In any case:\nd";
        assert_eq!((one_line!(FILE, true, []), one_line!(FILE, false, [])), ("a d", "a b c d"));
    }

    #[test]
    fn places_are_filled() {
        const FILE: &str = "WITH {a}\n  {none}\nSELECT {b}, '{}', {b}\n{a}";
        let filled = one_line!(FILE, false, [("b", "ü"), ("a", "x y"), ("none", "")]);
        assert_eq!(filled, "WITH x y SELECT ü, '{}', ü x y");
    }
}
