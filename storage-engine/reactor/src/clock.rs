//! The clock of the data cores: `CLOCK_BOOTTIME`, which goes on while the machine is suspended (PROTOCOL R12).

pub use ashlar_io::Instant;

/// Reads the clock. On a data core prefer [`crate::now`], which costs nothing.
pub fn read() -> Instant {
    crate::sys::boottime()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_moves_forward() {
        let first = read();
        assert!(read() >= first);
        assert!(first.as_ns() > 0);
    }
}
