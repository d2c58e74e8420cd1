//! A device as a whole: made, opened, grown and looked at, also when everything stops in the middle.

mod catalog;
mod checking;
mod contents;
mod formatting;
mod growing;
mod inspecting;
mod lanes;
mod memory;
mod opening;
mod signatures;
