//! What this version writes is compared with what the first one wrote, and both are opened.
//!
//! The files hold hexadecimal lines of 32 bytes behind their offset; lines of zeroes are left out. With
//! `ASHLAR_WRITE_GOLDEN=1` they are written anew: only for a block that no release has written yet.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::samples::{self, Opened};

/// Bytes of a line of a golden file.
const LINE_BYTES: usize = 32;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.hex"))
}

fn to_text(bytes: &[u8]) -> String {
    let mut text = format!("{} bytes\n", bytes.len());
    for (index, line) in bytes.chunks(LINE_BYTES).enumerate().filter(|(_, line)| line.iter().any(|b| *b != 0))
    {
        write!(text, "{:05x}:", index * LINE_BYTES).expect("a string takes everything");
        line.iter().for_each(|byte| write!(text, " {byte:02x}").expect("a string takes everything"));
        text.push('\n');
    }
    text
}

fn from_text(text: &str) -> Vec<u8> {
    let mut lines = text.lines();
    let length =
        lines.next().and_then(|line| line.strip_suffix(" bytes")).expect("the first line says the length");
    let mut bytes = vec![0; length.parse().expect("the length is a number")];
    for line in lines {
        let (offset, line) = line.split_once(':').expect("a line begins with its offset");
        let offset = usize::from_str_radix(offset, 16).expect("an offset is a hexadecimal number");
        for (index, byte) in line.split_whitespace().enumerate() {
            bytes[offset + index] = u8::from_str_radix(byte, 16).expect("a byte is a hexadecimal number");
        }
    }
    bytes
}

#[test]
fn blocks_of_the_first_version_still_open() {
    let write = std::env::var_os("ASHLAR_WRITE_GOLDEN").is_some();
    for sample in samples::all() {
        let path = path(sample.name);
        if write {
            fs::write(&path, to_text(&sample.bytes)).expect("the golden folder can be written");
        }
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let golden = from_text(&text);
        assert_eq!((sample.open)(&golden), Opened::Same, "the golden {} opens", sample.name);
        // As text: a difference shows where.
        assert_eq!(to_text(&sample.bytes), text, "{} is written as ever", sample.name);
    }
}
