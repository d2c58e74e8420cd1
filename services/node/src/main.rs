//! The Ashlar daemon.
fn main() {}
