//! Boots a Linux guest, runs a shell script in it and shows what it prints: for `make demo`, and for trying
//! things out by hand.
//!
//! ```text
//! cargo run -p ashlar-tests --example linux -- 6.1|6.12 SCRIPT [NAME=VALUE...]
//! ```

use std::error::Error;
use std::fs;
use std::time::Duration;

use ashlar_tests::guest::{Guest, Kernel};

/// Long enough to try something out by hand; a forgotten guest still ends.
const LIMIT: Duration = Duration::from_hours(1);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: linux 6.1|6.12 SCRIPT [NAME=VALUE...]";
    let kernel = match arguments.next().as_deref() {
        Some("6.1") => Kernel::V6_1,
        Some("6.12") => Kernel::V6_12,
        _ => return Err(usage.into()),
    };
    let script = arguments.next().ok_or(usage)?;
    let mut guest = Guest::builder(kernel, "by-hand").show();
    for variable in arguments {
        let (name, value) = variable.split_once('=').ok_or(usage)?;
        guest = guest.variable(name, value);
    }
    guest.script(&fs::read_to_string(script)?).start()?.finish(LIMIT, |_| String::new())?;
    Ok(())
}
