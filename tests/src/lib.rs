//! Whole-system tests: real Linux hosts, and the rules of the code base itself.

pub mod built;
pub mod guest;
pub mod tidy;
