//! A strict reader of RFC 8259 that keeps what other readers lose: number literals, duplicate keys and paths.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

use super::error::{CanonicalError, Path, shown};
use super::number::Number;
use super::{MAX_BYTES, MAX_DEPTH};

/// The longest text accepted. White space and escapes may take some space, but not an unlimited amount.
const MAX_TEXT_BYTES: usize = 16 * MAX_BYTES;

/// A value whose objects are sorted and have no duplicate keys.
pub(super) enum Node<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    Array(Vec<Node<'a>>),
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

impl Node<'_> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }

    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(flag) => Value::Bool(flag),
            Self::Number(number) => number.into_json().map_or(Value::Null, Value::Number),
            Self::Text(text) => Value::String(text.into_owned()),
            Self::Array(elements) => elements.into_iter().map(Node::into_value).collect(),
            Self::Object(members) => {
                members.into_iter().map(|(key, node)| (key.into_owned(), node.into_value())).collect()
            }
        }
    }
}

/// Compares members by the UTF-16 code units of their keys (RFC 8785, section 3.2.3).
///
/// That is the order of their bytes, with one exception: characters from U+10000 on (first byte F0 and above)
/// sort before U+E000 to U+FFFF (EE and EF).
pub(super) fn key_order(a: &str, b: &str) -> Ordering {
    match a.bytes().zip(b.bytes()).find(|(a, b)| a != b) {
        None => a.len().cmp(&b.len()),
        Some((0xEE..=0xEF, 0xF0..)) => Ordering::Greater,
        Some((0xF0.., 0xEE..=0xEF)) => Ordering::Less,
        Some((a, b)) => a.cmp(&b),
    }
}

pub(super) fn document(text: &str) -> Result<Node<'_>, CanonicalError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(CanonicalError::TooLarge { path: Path::Root.text() });
    }
    let mut reader = Reader { text, at: 0 };
    let node = reader.value(Path::Root, 1)?;
    reader.blank();
    if reader.at < text.len() {
        return Err(reader.syntax(Path::Root, "expected the end of the document"));
    }
    Ok(node)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn blank(&mut self) {
        self.at += self.rest().iter().take_while(|byte| b" \t\n\r".contains(byte)).count();
    }

    fn syntax(&self, path: Path<'_>, problem: &'static str) -> CanonicalError {
        CanonicalError::Syntax { at: self.at, path: path.text(), problem }
    }

    fn value(&mut self, path: Path<'_>, depth: usize) -> Result<Node<'a>, CanonicalError> {
        self.blank();
        match self.peek() {
            Some(b'{' | b'[') if depth > MAX_DEPTH => Err(CanonicalError::TooDeep { path: path.text() }),
            Some(b'{') => self.object(path, depth),
            Some(b'[') => self.array(path, depth),
            Some(b'"') => self.string(path).map(Node::Text),
            Some(b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') => self.literal(path),
            Some(_) => Err(self.syntax(path, "expected a value")),
            None => Err(self.syntax(path, "the document ends too early")),
        }
    }

    fn object(&mut self, path: Path<'_>, depth: usize) -> Result<Node<'a>, CanonicalError> {
        let mut members: Vec<(Cow<'a, str>, Node<'a>)> = Vec::new();
        self.at += 1;
        self.blank();
        if self.take(b'}') {
            return Ok(Node::Object(members));
        }
        loop {
            self.blank();
            if self.peek() != Some(b'"') {
                return Err(self.syntax(path, "expected a key in double quotes"));
            }
            let key = self.string(path)?;
            self.blank();
            if !self.take(b':') {
                return Err(self.syntax(Path::Member(&path, &key), "expected a colon"));
            }
            let node = self.value(Path::Member(&path, &key), depth + 1)?;
            members.push((key, node));
            self.blank();
            if self.take(b'}') {
                break;
            }
            if !self.take(b',') {
                return Err(self.syntax(path, "expected a comma or the end of the object"));
            }
        }
        members.sort_by(|(a, _), (b, _)| key_order(a, b));
        match members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(CanonicalError::DuplicateKey { path: Path::Member(&path, &pair[0].0).text() }),
            None => Ok(Node::Object(members)),
        }
    }

    fn array(&mut self, path: Path<'_>, depth: usize) -> Result<Node<'a>, CanonicalError> {
        let mut elements = Vec::new();
        self.at += 1;
        self.blank();
        if self.take(b']') {
            return Ok(Node::Array(elements));
        }
        loop {
            let element = self.value(Path::Element(&path, elements.len()), depth + 1)?;
            elements.push(element);
            self.blank();
            if self.take(b']') {
                return Ok(Node::Array(elements));
            }
            if !self.take(b',') {
                return Err(self.syntax(path, "expected a comma or the end of the array"));
            }
        }
    }

    /// Reads a number or a word.
    fn literal(&mut self, path: Path<'_>) -> Result<Node<'a>, CanonicalError> {
        let length =
            self.rest().iter().take_while(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b)).count();
        let literal = &self.text[self.at..self.at + length];
        let node = match literal {
            "null" => Node::Null,
            "true" => Node::Bool(true),
            "false" => Node::Bool(false),
            _ if is_not_finite(literal) => {
                return Err(CanonicalError::NotFinite { path: path.text(), text: shown(literal) });
            }
            _ if !is_number(literal.as_bytes()) => return Err(self.syntax(path, "expected a value")),
            _ => match Number::from_literal(literal) {
                Some(number) => Node::Number(number),
                None => return Err(CanonicalError::Number { path: path.text(), text: shown(literal) }),
            },
        };
        self.at += length;
        Ok(node)
    }

    fn string(&mut self, path: Path<'_>) -> Result<Cow<'a, str>, CanonicalError> {
        self.at += 1;
        let mut unescaped = String::new();
        loop {
            let plain =
                self.rest().iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..=0x1F)).count();
            let piece = &self.text[self.at..self.at + plain];
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    if unescaped.is_empty() {
                        return Ok(Cow::Borrowed(piece));
                    }
                    unescaped.push_str(piece);
                    return Ok(Cow::Owned(unescaped));
                }
                Some(b'\\') => {
                    unescaped.push_str(piece);
                    unescaped.push(self.escape(path)?);
                }
                Some(_) => return Err(self.syntax(path, "a control character must be escaped")),
                None => return Err(self.syntax(path, "the string has no end")),
            }
        }
    }

    fn escape(&mut self, path: Path<'_>) -> Result<char, CanonicalError> {
        self.at += 1;
        let escaped = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{C}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(path),
            _ => return Err(self.syntax(path, "no such escape")),
        };
        self.at += 1;
        Ok(escaped)
    }

    /// Reads `\uXXXX`, or two of them that form a surrogate pair.
    fn unicode(&mut self, path: Path<'_>) -> Result<char, CanonicalError> {
        let start = self.at;
        let first = self.unit().ok_or_else(|| self.syntax(path, "expected four hexadecimal digits"))?;
        let mut units = [first, 0];
        let mut count = 1;
        if (0xD800..0xDC00).contains(&first) && self.take(b'\\') {
            units[1] = self.unit().unwrap_or(0);
            count = 2;
        }
        let mut decoded = char::decode_utf16(units[..count].iter().copied());
        match (decoded.next(), decoded.next()) {
            (Some(Ok(character)), None) => Ok(character),
            _ => {
                self.at = start;
                Err(self.syntax(path, "a lone surrogate is no character"))
            }
        }
    }

    /// Reads `uXXXX`.
    fn unit(&mut self) -> Option<u16> {
        let digits = self.rest().get(1..5).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        if !self.take(b'u') {
            return None;
        }
        self.at += 4;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    }
}

fn is_not_finite(literal: &str) -> bool {
    let unsigned = literal.trim_start_matches(['-', '+']);
    ["nan", "inf", "infinity"].iter().any(|word| unsigned.eq_ignore_ascii_case(word))
}

/// Returns true if the literal matches the grammar of RFC 8259, section 6.
fn is_number(literal: &[u8]) -> bool {
    fn digits(text: &[u8]) -> (usize, &[u8]) {
        let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (count, &text[count..])
    }
    let unsigned = literal.strip_prefix(b"-").unwrap_or(literal);
    let (whole, mut rest) = digits(unsigned);
    if whole == 0 || (whole > 1 && unsigned[0] == b'0') {
        return false;
    }
    if let Some(fraction) = rest.strip_prefix(b".") {
        let (count, after) = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = after;
    }
    if let Some((b'e' | b'E', exponent)) = rest.split_first() {
        let exponent = exponent.strip_prefix(b"+").or(exponent.strip_prefix(b"-")).unwrap_or(exponent);
        let (count, after) = digits(exponent);
        return count > 0 && after.is_empty();
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_sort_by_their_utf16_code_units(
            a in "[a\u{7FF}\u{800}\u{D7FF}\u{E000}\u{FFFF}\u{10000}\u{10FFFF}]{0,4}",
            b in "[a\u{7FF}\u{800}\u{D7FF}\u{E000}\u{FFFF}\u{10000}\u{10FFFF}]{0,4}",
        ) {
            prop_assert_eq!(key_order(&a, &b), a.encode_utf16().cmp(b.encode_utf16()));
        }
    }
}
