//! A device as a whole: made, opened, grown and looked at, also when everything stops in the middle.

mod catalog;
mod formatting;
mod growing;
mod memory;
mod opening;
mod signatures;
