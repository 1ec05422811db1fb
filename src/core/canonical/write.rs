//! The canonical text.

use std::fmt::Write as _;

use serde_json::Value;

use super::error::{CanonicalError, Path, shown};
use super::number::Number;
use super::parse::{Node, key_order};
use super::{MAX_BYTES, MAX_DEPTH};

pub(super) fn node(node: &Node<'_>) -> Result<String, CanonicalError> {
    let mut writer = Writer { text: String::with_capacity(256) };
    writer.node(node, Path::Root)?;
    Ok(writer.text)
}

pub(super) fn value(value: &Value) -> Result<String, CanonicalError> {
    let mut writer = Writer { text: String::with_capacity(256) };
    writer.value(value, Path::Root, 1)?;
    Ok(writer.text)
}

struct Writer {
    text: String,
}

impl Writer {
    fn checked(&self, path: Path<'_>) -> Result<(), CanonicalError> {
        if self.text.len() > MAX_BYTES {
            return Err(CanonicalError::TooLarge { path: path.text() });
        }
        Ok(())
    }

    fn node(&mut self, node: &Node<'_>, path: Path<'_>) -> Result<(), CanonicalError> {
        match node {
            Node::Null => self.text.push_str("null"),
            Node::Bool(flag) => self.flag(*flag),
            Node::Number(number) => self.number(*number),
            Node::Text(text) => self.string(text),
            Node::Array(elements) => {
                self.array(elements.iter(), path, |writer, element, path| writer.node(element, path))?;
            }
            Node::Object(members) => {
                let members = members.iter().map(|(key, member)| (&**key, member));
                self.object(members, path, |writer, member, path| writer.node(member, path))?;
            }
        }
        self.checked(path)
    }

    fn value(&mut self, value: &Value, path: Path<'_>, depth: usize) -> Result<(), CanonicalError> {
        match value {
            Value::Null => self.text.push_str("null"),
            Value::Bool(flag) => self.flag(*flag),
            Value::String(text) => self.string(text),
            Value::Number(number) => match Number::from_json(number) {
                Some(number) => self.number(number),
                None => {
                    return Err(CanonicalError::Number {
                        path: path.text(),
                        text: shown(&number.to_string()),
                    });
                }
            },
            Value::Array(_) | Value::Object(_) if depth > MAX_DEPTH => {
                return Err(CanonicalError::TooDeep { path: path.text() });
            }
            Value::Array(elements) => {
                self.array(elements.iter(), path, |writer, value, path| {
                    writer.value(value, path, depth + 1)
                })?;
            }
            Value::Object(members) => {
                let mut sorted: Vec<_> = members.iter().map(|(key, member)| (key.as_str(), member)).collect();
                sorted.sort_by(|(a, _), (b, _)| key_order(a, b));
                let sorted = sorted.into_iter();
                self.object(sorted, path, |writer, value, path| writer.value(value, path, depth + 1))?;
            }
        }
        self.checked(path)
    }

    fn array<T>(
        &mut self,
        elements: impl Iterator<Item = T>,
        path: Path<'_>,
        write: impl Fn(&mut Self, T, Path<'_>) -> Result<(), CanonicalError>,
    ) -> Result<(), CanonicalError> {
        self.text.push('[');
        for (index, element) in elements.enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            write(self, element, Path::Element(&path, index))?;
        }
        self.text.push(']');
        Ok(())
    }

    fn object<'k, T>(
        &mut self,
        members: impl Iterator<Item = (&'k str, T)>,
        path: Path<'_>,
        write: impl Fn(&mut Self, T, Path<'_>) -> Result<(), CanonicalError>,
    ) -> Result<(), CanonicalError> {
        self.text.push('{');
        for (index, (key, member)) in members.enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            self.string(key);
            self.text.push(':');
            write(self, member, Path::Member(&path, key))?;
        }
        self.text.push('}');
        Ok(())
    }

    fn flag(&mut self, flag: bool) {
        self.text.push_str(if flag { "true" } else { "false" });
    }

    fn number(&mut self, number: Number) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{number}");
    }

    fn string(&mut self, string: &str) {
        self.text.push('"');
        let mut plain = 0;
        for (at, byte) in string.bytes().enumerate() {
            let escape = match byte {
                b'"' => "\\\"",
                b'\\' => "\\\\",
                0x08 => "\\b",
                b'\t' => "\\t",
                b'\n' => "\\n",
                0x0C => "\\f",
                b'\r' => "\\r",
                0..=0x1F => "",
                _ => continue,
            };
            self.text.push_str(&string[plain..at]);
            self.text.push_str(escape);
            if escape.is_empty() {
                let _ = write!(self.text, "\\u{byte:04x}");
            }
            plain = at + 1;
        }
        self.text.push_str(&string[plain..]);
        self.text.push('"');
    }
}
