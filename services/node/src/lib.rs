//! The storage node: its configuration, and what turns one into running data cores.
//!
//! | module | what |
//! |---|---|
//! | [`config`] | the configuration file: reading, checking, what it means |

pub mod config;
