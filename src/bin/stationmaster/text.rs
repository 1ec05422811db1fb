//! Makes texts of tasks safe to show on a terminal.
//!
//! Names, messages and payloads may contain anything. Control characters could move the cursor, change colours or
//! the title, and answer questions in the user's place. Characters that reverse the direction of text or are
//! invisible could make one name look like another. All of them are escaped.

use std::fmt::{Display, Write};

/// Returns the text with every character that is not plainly visible escaped: `\n`, `\u{1b}`.
///
/// The result is one line. Letters of all scripts, emoji and wide characters stay unchanged.
pub fn visible(text: impl Display) -> String {
    let text = text.to_string();
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            // Rust's literals escape these, but a terminal needs no escape.
            '"' | '\'' | '\\' => shown.push(char),
            _ => shown.extend(char.escape_debug()),
        }
    }
    shown
}

/// Returns JSON with every character in its strings that is not plainly visible escaped. A parser reads the same
/// JSON.
pub fn visible_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for char in json.chars() {
        let is_plain = match char {
            ' '..='~' => true,
            _ => char.escape_debug().len() == 1,
        };
        if is_plain {
            shown.push(char);
        } else {
            let mut units = [0; 2];
            for unit in char.encode_utf16(&mut units) {
                // Writing to a string does not fail.
                let _ = write!(shown, "\\u{unit:04x}");
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_terminals_act_on_is_escaped() {
        let hostile = "a\u{1b}[2J\u{9b}31m\r\n\t\u{7f}\u{202e}b\u{200b}\u{2028}c\u{0}";
        let shown = visible(hostile);
        assert_eq!(shown, "a\\u{1b}[2J\\u{9b}31m\\r\\n\\t\\u{7f}\\u{202e}b\\u{200b}\\u{2028}c\\0");
        let json = serde_json::to_string(hostile).unwrap();
        let shown = visible_json(&json);
        assert!(shown.chars().all(|char| (' '..='~').contains(&char)), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), hostile);
    }

    #[test]
    fn what_people_read_stays() {
        let plain = "C:\\x \"quoted\" 'é' 漢字 🚂";
        assert_eq!(visible(plain), plain);
        let json = serde_json::to_string(plain).unwrap();
        assert_eq!(visible_json(&json), json);
        let tag = serde_json::to_string("\u{e0041}").unwrap();
        assert_eq!(visible_json(&tag), "\"\\udb40\\udc41\"", "a character of two units");
    }
}
