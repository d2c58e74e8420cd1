//! What a command prints: a table for people, JSON for programs.

use std::io::{self, Write};

use clap::ValueEnum;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::exit::{Exit, Failure, Outcome};

/// Widest table: what a terminal shows without being made larger.
pub(crate) const TABLE_COLUMNS_MAX: u16 = 80;

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
}

/// How a column is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    /// Text, set to the left.
    Text(&'static str),
    /// A number, set to the right.
    Number(&'static str),
}

/// A table without lines, at most 80 columns wide.
pub(crate) fn table(columns: &[Column]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(TABLE_COLUMNS_MAX);
    table.set_header(columns.iter().map(|column| match column {
        Column::Text(name) | Column::Number(name) => *name,
    }));
    for (index, column) in columns.iter().enumerate() {
        if let (Column::Number(_), Some(set)) = (column, table.column_mut(index)) {
            set.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The table as lines without trailing blanks.
pub(crate) fn lines(table: &Table) -> String {
    let mut text = String::new();
    for line in table.to_string().lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Writes to standard output. A reader that has gone (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Failed, "writing the result to standard output", error))
        }
        _ => Ok(()),
    }
}

/// Writes a value as one indented JSON document.
pub(crate) fn print_json(value: &impl Serialize) -> Outcome {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(Exit::Failed, "writing the result as JSON", error))?;
    text.push('\n');
    print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_stay_within_80_columns() {
        let mut wide = table(&[Column::Text("name"), Column::Number("count")]);
        wide.add_row(["nqn.2014-08.org.nvmexpress:uuid:".repeat(8), "1".to_owned()]);
        for line in lines(&wide).lines() {
            assert!(line.chars().count() <= usize::from(TABLE_COLUMNS_MAX), "{line:?}");
        }
    }

    #[test]
    fn numbers_are_set_to_the_right() {
        let mut small = table(&[Column::Text("name"), Column::Number("count")]);
        small.add_row(["a", "7"]);
        small.add_row(["b", "12345"]);
        let text = lines(&small);
        assert!(text.contains(" a         7\n"), "{text}");
    }
}
