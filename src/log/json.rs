//! Events as lines of JSON.

use std::fmt::{Debug, Write as _};

use tracing::Level;
use tracing::field::{Field, Visit};

/// The members of an object, which are written one behind the other.
pub(super) struct Fields(String);

/// An object with the level and the target of an event, and the fields that are recorded.
pub(super) fn object(level: Level, target: &str, record: impl FnOnce(&mut Fields)) -> String {
    let mut fields = Fields(String::from("{"));
    fields.text("level", super::word(level));
    fields.text("target", target);
    record(&mut fields);
    fields.0 + "}"
}

impl Fields {
    /// Adds a member that is text.
    pub(super) fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.string(value);
    }

    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.string(name);
        self.0.push(':');
    }

    fn string(&mut self, text: &str) {
        self.0.push('"');
        for letter in text.chars() {
            match letter {
                '"' => self.0 += "\\\"",
                '\\' => self.0 += "\\\\",
                '\n' => self.0 += "\\n",
                // Writing to a string cannot fail.
                control if control < ' ' => drop(write!(self.0, "\\u{:04x}", u32::from(control))),
                letter => self.0.push(letter),
            }
        }
        self.0.push('"');
    }

    /// A value that JSON writes as Rust does.
    fn plain(&mut self, field: &Field, value: impl ToString) {
        self.name(field.name());
        self.0 += &value.to_string();
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinities.
        if value.is_finite() { self.plain(field, value) } else { self.record_str(field, &value.to_string()) }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.plain(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field.name(), &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_reserves_is_escaped() {
        let line = object(Level::INFO, "fuseplan::compile", |fields| {
            fields.text("message", "a \"b\" \\ c\nd\te é");
        });
        let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(parsed["message"], "a \"b\" \\ c\nd\te é");
        assert_eq!((&parsed["level"], &parsed["target"]), (&"info".into(), &"fuseplan::compile".into()));
        assert!(!line.contains('\n'));
    }
}
