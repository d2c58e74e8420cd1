//! What a device does with its operations: contents, faults, latencies.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ashlar_io::{DiskError, DiskGeometry, DiskOperation};

use super::contents::{Content, Contents, resolve};
use super::device::Zones;
use super::fault::Faults;
use super::flight::{Answered, Flight, Request};
use super::settings::{Count, DeviceSettings, Latency};
use crate::atlas::{Fault, Zone};
use crate::process::ProcessId;
use crate::random::Random;

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Working,
    /// Answers nothing.
    Hung,
    /// Answers everything with an error.
    Dead,
}

/// The state of a device.
pub(super) struct State {
    pub(super) geometry: DiskGeometry,
    pub(super) contents: Contents,
    pub(super) health: Health,
    /// The process that has it open.
    pub(super) owner: Option<ProcessId>,
    pub(super) flights: BTreeMap<u64, Flight>,
    pub(super) next: u64,
    /// When each of its channels is free.
    pub(super) channels: Vec<u64>,
    /// Blocks that cannot be read until they are written.
    pub(super) unreadable: BTreeSet<u64>,
    pub(super) faults: Faults,
    pub(super) counts: BTreeMap<Zone, Count>,
    pub(super) flushes: u64,
    pub(super) random: Random,
}

pub(super) fn error(request: &Request, cause: &str) -> DiskError {
    DiskError { operation: request.operation(), block: request.blocks().start, cause: cause.to_owned() }
}

impl State {
    pub(super) fn count(&mut self, request: &Request, zones: &Zones) {
        let blocks = request.blocks();
        let operation = request.operation();
        if operation == DiskOperation::Flush {
            self.flushes += 1;
        }
        if !matches!(operation, DiskOperation::Read | DiskOperation::Write) {
            return;
        }
        // An operation that spans zones counts where it starts.
        let count = self.counts.entry(zones(blocks.start)).or_default();
        let length = blocks.end - blocks.start;
        match operation {
            DiskOperation::Read => {
                (count.reads, count.blocks_read) = (count.reads + 1, count.blocks_read + length)
            }
            _ => (count.writes, count.blocks_written) = (count.writes + 1, count.blocks_written + length),
        }
    }

    /// Lets a fault strike a request; the error that it ends with, and what to say about it.
    pub(super) fn strike(&mut self, request: &mut Request, zones: &Zones) -> (Option<String>, Vec<String>) {
        let blocks = request.blocks();
        let (operation, zone) = (request.operation(), zones(blocks.start));
        let mut said = Vec::new();
        let mut error = None;
        if blocks.is_empty() {
            return (error, said);
        }
        let fault = self.faults.draw(zone, operation, &mut self.random);
        let victim = blocks.start + self.random.below(blocks.end - blocks.start);
        match (fault, &mut *request) {
            (Some(Fault::ReadErrorOnce), _) => error = Some("read error".to_owned()),
            (Some(Fault::WriteErrorOnce), Request::Write { pieces, .. }) => {
                error = Some("write error".to_owned());
                let random = &mut self.random;
                pieces.retain(|_| random.coin());
            }
            (Some(Fault::ReadErrorUntilWritten), _) => drop(self.unreadable.insert(victim)),
            (Some(Fault::Rot), _) => self.rot(victim),
            (Some(Fault::LostWrite), Request::Write { pieces, .. }) => pieces.clear(),
            (Some(Fault::MisdirectedWrite), Request::Write { pieces, .. }) => {
                self.misdirect(pieces, blocks.clone(), zone, zones);
            }
            _ => {}
        }
        if let Some(fault) = fault {
            said.push(format!("{fault} at block {victim} in the {zone}"));
        }
        if operation == DiskOperation::Read && self.unreadable.range(blocks).next().is_some() {
            error = Some("unrecovered read error".to_owned());
        }
        (error, said)
    }

    /// Moves a write elsewhere in its zone; it is lost if there is no place.
    pub(super) fn misdirect(
        &mut self,
        pieces: &mut Vec<(u64, Content)>,
        from: Range<u64>,
        zone: Zone,
        zones: &Zones,
    ) {
        let length = from.end - from.start;
        for _ in 0..16 {
            let distance = self.random.between(length, 64 + length);
            let to = if self.random.coin() {
                from.start.checked_sub(distance)
            } else {
                Some(from.start + distance)
            };
            let fits = |to: &u64| {
                to + length <= self.geometry.blocks && zones(*to) == zone && zones(*to + length - 1) == zone
            };
            if let Some(to) = to.filter(fits) {
                pieces.iter_mut().for_each(|(block, _)| *block = *block - from.start + to);
                return;
            }
        }
        pieces.clear();
    }

    pub(super) fn rot(&mut self, block: u64) {
        let content = self.contents.get(block).rotten(&mut self.random);
        // Whatever a flush may still bring, this is what reads bring from now on.
        self.contents.set(block, content);
    }

    pub(super) fn service(&mut self, request: &Request, settings: &DeviceSettings) -> u64 {
        let latency: Latency = match request {
            Request::Read { .. } => settings.read,
            Request::Write { .. } => settings.write,
            Request::Flush { .. } => settings.flush,
            Request::Discard { .. } => settings.discard,
        };
        latency.draw(&mut self.random).max(1)
    }

    /// Takes the channel that is free first; when it will be done.
    pub(super) fn start(&mut self, now: u64, service: u64) -> u64 {
        let mut free = 0;
        for channel in 1..self.channels.len() {
            if self.channels[channel] < self.channels[free] {
                free = channel;
            }
        }
        let done = self.channels[free].max(now) + service;
        self.channels[free] = done;
        done
    }

    /// Reads some blocks at once; whether some blocks of a write shall land before the others.
    pub(super) fn early(&mut self, request: &mut Request) -> bool {
        match request {
            Request::Read { blocks, early } => {
                for (block, early) in blocks.clone().zip(early) {
                    if self.random.one_in(4) {
                        *early = Some(self.contents.get(block));
                    }
                }
                false
            }
            Request::Write { .. } => self.random.one_in(4),
            Request::Flush { .. } | Request::Discard { .. } => false,
        }
    }

    pub(super) fn finish(&mut self, flight: Flight) -> Answered {
        let failed = flight.error.as_deref().map(|cause| error(&flight.request, cause));
        let mut brought = Vec::new();
        match flight.request {
            Request::Read { blocks, early } => {
                let content = |(block, early): (u64, Option<Content>)| {
                    early.unwrap_or_else(|| self.contents.get(block))
                };
                brought = blocks.zip(early).map(content).collect();
            }
            Request::Write { pieces, .. } => self.land(pieces),
            Request::Flush { through } if failed.is_none() => self.contents.flush(through),
            Request::Flush { .. } => {}
            Request::Discard { blocks } => {
                for block in blocks {
                    self.discard(block);
                }
            }
        }
        failed.map_or(Ok(brought), Err)
    }

    pub(super) fn land(&mut self, pieces: Vec<(u64, Content)>) {
        for (block, content) in pieces {
            self.unreadable.remove(&block);
            self.contents.set(block, content);
        }
    }

    /// What a discarded block reads as is arbitrary.
    pub(super) fn discard(&mut self, block: u64) {
        match self.random.below(16) {
            0 => {
                let junk = Content::junk(&mut self.random);
                self.contents.set(block, junk);
            }
            1..=8 => self.contents.set(block, Content::ZERO),
            _ => {}
        }
    }

    /// Ends operations at once: of each write any subset of its blocks lands.
    pub(super) fn cut_short(&mut self, which: impl Fn(u64) -> bool) -> Vec<Flight> {
        let ids: Vec<_> = self.flights.keys().copied().filter(|id| which(*id)).collect();
        let cut: Vec<_> = ids.iter().filter_map(|id| self.flights.remove(id)).collect();
        for flight in &cut {
            match &flight.request {
                Request::Write { pieces, .. } => {
                    for (block, content) in pieces {
                        if self.random.coin() {
                            let old = self.contents.get(*block);
                            let left = resolve(&old, content, self.geometry.tearing, &mut self.random);
                            self.land(vec![(*block, left)]);
                        }
                    }
                }
                Request::Discard { blocks } => {
                    for block in blocks.clone() {
                        if self.random.coin() {
                            self.discard(block);
                        }
                    }
                }
                Request::Read { .. } | Request::Flush { .. } => {}
            }
        }
        cut
    }
}
