//! The on-disk format: it reads back what it wrote, in this and in every later version, and refuses everything else.

mod golden;
mod layout;
mod mutated;
mod records;
mod samples;
