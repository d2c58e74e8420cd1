//! The daemon as its users meet it: command line, configuration, metrics page, signals.

mod command;
mod daemon;
mod exposition;
mod hosts;
mod page;
mod running;
mod volumes;
