//! Where text for people and objects for programs go.

use std::fmt::Display;
use std::io::{self, Write};

use serde_json::Value;

/// The version of the objects' form; grows when a member changes its meaning or goes.
pub(crate) const SCHEMA: u32 = 1;

/// Without `--json` text goes to standard output; with it, objects do and text goes to standard error.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Output { json }
    }

    /// Whether objects are wanted.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// A line, or several, for people.
    pub(crate) fn line(&self, text: impl Display) -> io::Result<()> {
        if self.json { writeln!(io::stderr(), "{text}") } else { writeln!(io::stdout(), "{text}") }
    }

    /// Text for people that ends its own lines.
    pub(crate) fn text(&self, text: &str) -> io::Result<()> {
        if self.json {
            io::stderr().write_all(text.as_bytes())
        } else {
            io::stdout().write_all(text.as_bytes())
        }
    }

    /// An object for programs; printed with `--json` only. `kind` says which members it has.
    pub(crate) fn object(&self, kind: &str, mut members: Value) -> io::Result<()> {
        if !self.json {
            return Ok(());
        }
        members["schema"] = SCHEMA.into();
        members["kind"] = kind.into();
        writeln!(io::stdout(), "{members}")
    }
}

/// A number as C's `%g` and C++'s streams write it: six significant digits, no trailing zeros.
pub(crate) fn general(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string().to_lowercase();
    }
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if (-4..6).contains(&exponent) {
        return trim(&format!("{value:.*}", (5 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(digits), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_does() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.625, "0.625"),
            (80.0 * f64::from(f32::EPSILON), "9.53674e-06"),
            (80.0 * 9.765625e-4, "0.078125"),
            (1.234567e-10, "1.23457e-10"),
            (123456.7, "123457"),
            (1234567.0, "1.23457e+06"),
            (0.0001, "0.0001"),
            (0.00009999999, "0.0001"),
            (-2.5, "-2.5"),
            (f64::NAN, "nan"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(general(value), text, "{value:e}");
        }
    }
}
