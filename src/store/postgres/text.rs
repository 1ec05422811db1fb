//! The host's texts. PostgreSQL accepts every character except NUL; escaping preserves those, too.

use std::borrow::Cow;

/// Precedes the replacement of a character. Hardly any text contains it.
const MARK: char = '\u{1a}';

/// Returns the text as it is stored.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    match text.contains(['\0', MARK]) {
        true => text.replace(MARK, "\u{1a}1").replace('\0', "\u{1a}0").into(),
        false => text.into(),
    }
}

/// Returns the text as it was given.
pub(super) fn unescape(stored: String) -> String {
    match stored.contains(MARK) {
        true => stored.replace("\u{1a}0", "\0").replace("\u{1a}1", "\u{1a}"),
        false => stored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back() {
        for text in
            ["", "plain", "\0", "a\0b", "\u{1a}", "\u{1a}0", "\u{1a}1", "\u{1a}\u{1a}0\0", "0\u{1a}\0\u{1a}1"]
        {
            let stored = escape(text).into_owned();
            assert!(!stored.contains('\0'), "{text:?}");
            assert_eq!(unescape(stored), text);
        }
        assert!(matches!(escape("plain"), Cow::Borrowed(_)));
    }
}
