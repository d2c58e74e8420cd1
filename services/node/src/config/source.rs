//! From a place in the text to what a person looks for: its line, and the key with the tables around it.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::Problem;

/// The text of a configuration file.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    text: &'a str,
}

impl<'a> Source<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text }
    }

    /// The line of a byte, from 1.
    pub(super) fn line(self, offset: usize) -> usize {
        let before = self.text.as_bytes().get(..offset).unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }

    /// A problem at this place.
    pub(super) fn problem(self, span: Range<usize>, message: impl Into<String>) -> Problem {
        Problem { line: self.line(span.start), key: self.key(&span), message: message.into() }
    }

    /// The innermost key whose name or value holds this place; empty if there is none.
    fn key(self, span: &Range<usize>) -> String {
        // What cannot be parsed has no keys; its parts that can be still tell something.
        let (table, _) = DeTable::parse_recoverable(self.text);
        key_in(table.get_ref(), span).unwrap_or_default()
    }

    /// A table of the document that is written as an array of tables. Serde would take its items for fields.
    pub(super) fn repeated_table(self, names: &[&str]) -> Option<Problem> {
        let (table, _) = DeTable::parse_recoverable(self.text);
        names.iter().find_map(|name| {
            let value = table.get_ref().get(*name)?;
            let message = format!("[[{name}]] is not allowed; allowed is [{name}], once");
            value.get_ref().is_array().then(|| self.problem(value.span(), message))
        })
    }

    /// What stops the parser, in its own words but for Rust's names of types.
    pub(super) fn parse_problem(self, error: &toml::de::Error) -> Problem {
        let message = [
            ("expected i64", "expected an integer"),
            ("expected a map", "expected a table"),
            ("expected a sequence", "expected an array"),
            ("invalid type: map", "invalid type: table"),
            ("invalid type: sequence", "invalid type: array"),
        ]
        .iter()
        .fold(error.message().to_owned(), |message, (from, to)| message.replace(from, to));
        let message = match message.strip_prefix("unknown field ").and_then(|rest| rest.split_once(", ")) {
            Some((_, expected)) => format!("unknown key; {expected}"),
            None => message.replace("missing field", "missing key"),
        };
        match error.span() {
            Some(span) => self.problem(span, message),
            None => Problem { line: 1, key: String::new(), message },
        }
    }
}

fn key_in(table: &DeTable<'_>, place: &Range<usize>) -> Option<String> {
    let mut here = None;
    for (name, value) in table {
        if let Some(inner) = key_in_value(value.get_ref(), place) {
            return Some(format!("{}.{inner}", name.get_ref()));
        }
        if holds(&name.span(), place) || holds(&value.span(), place) || is_item(value.get_ref(), place) {
            here = Some(name.get_ref().to_string());
        }
    }
    here
}

/// The key below `value`, if the place is below it.
fn key_in_value(value: &DeValue<'_>, place: &Range<usize>) -> Option<String> {
    match value {
        DeValue::Table(table) => key_in(table, place),
        DeValue::Array(items) => items.iter().find_map(|item| key_in_value(item.get_ref(), place)),
        _ => None,
    }
}

/// The place is an item of an array: in a list, or the header of one of several tables.
fn is_item(value: &DeValue<'_>, place: &Range<usize>) -> bool {
    let DeValue::Array(items) = value else { return false };
    items.iter().any(|item| holds(&item.span(), place))
}

fn holds(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.start < outer.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[log]\nlevel = \"info\"\n\n[[subsystem]]\nnqn = \"a\"\nhosts = [\"x\", \"y\"]\n\
                        [[subsystem.namespace]]\nbackend = { kind = \"null\" }\n";

    fn at(needle: &str) -> (usize, String) {
        let start = TEXT.find(needle).expect("needle is in the text");
        let problem = Source::new(TEXT).problem(start..start + needle.len(), "");
        (problem.line, problem.key)
    }

    #[test]
    fn place_has_its_line_and_key() {
        assert_eq!(at("\"info\""), (2, "log.level".to_owned()));
        assert_eq!(at("level"), (2, "log.level".to_owned()));
        assert_eq!(at("\"a\""), (5, "subsystem.nqn".to_owned()));
        assert_eq!(at("\"y\""), (6, "subsystem.hosts".to_owned()));
        assert_eq!(at("[[subsystem]]"), (4, "subsystem".to_owned()));
        assert_eq!(at("[[subsystem.namespace]]"), (7, "subsystem.namespace".to_owned()));
        assert_eq!(at("\"null\""), (8, "subsystem.namespace.backend.kind".to_owned()));
    }

    #[test]
    fn place_behind_the_end_is_on_the_last_line() {
        let source = Source::new("a = 1\n");
        assert_eq!(source.line(6), 2);
        assert_eq!(source.line(600), 2);
    }
}
