//! A decoded structure: its fields by the specification's names, with what their values mean.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::output::{self, Column};

/// A field's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// A number.
    Number(u128),
    /// A number that is read by its bits.
    Bits(u64),
    /// Text.
    Text(String),
}

/// One field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    name: String,
    value: Value,
    meaning: String,
}

/// Bits of a field and what they stand for.
pub(crate) type BitNames = &'static [(u64, &'static str)];

/// Fields in the structure's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields(Vec<Field>);

impl Fields {
    /// A number, with what it means.
    pub(crate) fn number(&mut self, name: &str, value: impl Into<u128>, meaning: impl Into<String>) {
        self.push(name, Value::Number(value.into()), meaning.into());
    }

    /// Text, with what it means.
    pub(crate) fn text(&mut self, name: &str, value: impl Into<String>, meaning: impl Into<String>) {
        self.push(name, Value::Text(value.into()), meaning.into());
    }

    /// Bits; those that are set are named.
    pub(crate) fn bits(&mut self, name: &str, value: impl Into<u64>, names: BitNames) {
        let value = value.into();
        let mut rest = value;
        let mut set = Vec::new();
        for (mask, text) in names {
            if value & mask == *mask {
                set.push((*text).to_owned());
                rest &= !mask;
            }
        }
        if rest != 0 {
            set.push(format!("{rest:#x}"));
        }
        self.push(name, Value::Bits(value), set.join(", "));
    }

    fn push(&mut self, name: &str, value: Value, meaning: String) {
        self.0.push(Field { name: name.to_owned(), value, meaning });
    }

    /// As a table; fields that are zero and mean nothing are left out.
    pub(crate) fn table(&self) -> String {
        let mut table =
            output::table(&[Column::Text("field"), Column::Text("value"), Column::Text("meaning")]);
        for field in &self.0 {
            let silent = match &field.value {
                Value::Number(0) | Value::Bits(0) => true,
                Value::Text(text) => text.is_empty(),
                _ => false,
            };
            if silent && field.meaning.is_empty() {
                continue;
            }
            let value = match &field.value {
                Value::Number(number) => number.to_string(),
                Value::Bits(bits) => format!("{bits:#x}"),
                Value::Text(text) => text.clone(),
            };
            table.add_row([field.name.as_str(), &value, &field.meaning]);
        }
        output::lines(&table)
    }

    /// A field's value, for tests.
    #[cfg(test)]
    pub(crate) fn get(&self, name: &str) -> Option<(&Value, &str)> {
        let field = self.0.iter().find(|field| field.name == name)?;
        Some((&field.value, &field.meaning))
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for field in &self.0 {
            match &field.value {
                // JSON readers keep 53 bits; SMART counters have 128.
                Value::Number(number) => match u64::try_from(*number) {
                    Ok(number) => map.serialize_entry(&field.name, &number)?,
                    Err(_) => map.serialize_entry(&field.name, &number.to_string())?,
                },
                Value::Bits(bits) => map.serialize_entry(&field.name, bits)?,
                Value::Text(text) => map.serialize_entry(&field.name, text)?,
            }
        }
        map.end()
    }
}

/// ASCII of a structure, without padding; bytes that are no printable ASCII as dots.
pub(crate) fn ascii(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let text: String = bytes
        .iter()
        .take(end)
        .map(|&byte| if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' })
        .collect();
    text.trim().to_owned()
}

/// Bytes in hexadecimal; nothing if they are all zero.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    if bytes.iter().all(|&byte| byte == 0) {
        return String::new();
    }
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing into a String never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_bits_are_named_and_unknown_ones_shown() {
        let mut fields = Fields::default();
        fields.bits("oncs", 0x8105_u16, &[(1, "Compare"), (4, "Dataset Management"), (2, "never")]);
        let (value, meaning) = fields.get("oncs").expect("there");
        assert_eq!(*value, Value::Bits(0x8105));
        assert_eq!(meaning, "Compare, Dataset Management, 0x8100");
    }

    #[test]
    fn tables_leave_out_what_says_nothing() {
        let mut fields = Fields::default();
        fields.number("rab", 0_u8, "");
        fields.number("mdts", 0_u8, "no limit");
        fields.text("sn", "", "");
        let table = fields.table();
        assert!(table.contains("mdts") && !table.contains("rab") && !table.contains("sn"), "{table}");
    }

    #[test]
    fn json_keeps_every_field_in_order() {
        let mut fields = Fields::default();
        fields.number("b", 7_u8, "");
        fields.number("a", u128::MAX, "");
        fields.text("c", "x", "");
        let json = serde_json::to_string(&fields).expect("serializes");
        assert_eq!(json, r#"{"b":7,"a":"340282366920938463463374607431768211455","c":"x"}"#);
    }

    #[test]
    fn foreign_bytes_do_not_reach_the_terminal() {
        assert_eq!(ascii(b"Ashlar \x1b[31m \0junk"), "Ashlar .[31m");
        assert_eq!(hex(&[0, 0]), "");
        assert_eq!(hex(&[0x0a, 0xff]), "0aff");
    }
}
