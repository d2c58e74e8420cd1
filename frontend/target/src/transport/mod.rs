//! NVMe/TCP: connections from their first byte to their last, on the data cores.
//!
//! The life of a connection: [`accept`] takes it on the accepting core and [`handshake`] exchanges ICReq,
//! ICResp and reads Connect; [`placing`] has it judged by the core that owns the controller and moves it to
//! the core that has the fewest queues; there it is a [`queue`], kept by [`serve`]: [`receive`] makes
//! commands of bytes, [`commands`] and [`admin`] start them, [`host_data`] moves their data with
//! [`transfers`], and [`outbox`] sends what they say.
//!
//! Where later parts go: TLS 1.3 replaces the socket that [`handshake`] reads from and hands the keys to the
//! kernel before the connection moves; DH-HMAC-CHAP is a state of [`queue`] between Connect and the first
//! other command; reservations are judged where [`commands`] makes a command ready.

mod aborts;
pub(crate) mod accept;
mod admin;
mod budget;
mod cids;
mod commands;
pub(crate) mod gathers;
pub(crate) mod handshake;
mod host_data;
mod outbox;
pub(crate) mod placing;
pub(crate) mod queue;
mod receive;
mod reports;
mod serve;
mod transfers;
