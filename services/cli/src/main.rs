//! The Ashlar command line.
fn main() {}
