//! A device: what stands on it, what it works on, and what goes wrong with it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use super::contents::{Content, Contents};
use super::fault::Faults;
use super::flight::{Answer, Flight, Request, Wait};
use super::handle::SimDisk;
use super::settings::{Count, DeviceSettings};
use super::state::{Health, State, error};
use crate::atlas::Zone;
use crate::executor::{Due, Simulation, nanos};
use crate::process::ProcessId;
use crate::trace::Event;
use crate::world::SimWorld;

/// Says in which zone a block lies.
pub type Zones = Rc<dyn Fn(u64) -> Zone>;

/// A device cannot be opened now: another process has it, or operations of one that died are in flight (PROTOCOL
/// S18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the device is busy")]
pub struct Busy;

/// A device. Clones are the same device.
#[derive(Clone)]
pub struct Device {
    inner: Rc<Inner>,
}

struct Inner {
    name: Rc<str>,
    simulation: Simulation,
    settings: DeviceSettings,
    zones: Zones,
    state: RefCell<State>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.inner.name)
    }
}

impl Device {
    /// A blank device of a run. `zones` says what lies where, for faults and counts.
    pub fn new(simulation: &Simulation, name: &str, settings: DeviceSettings, zones: Zones) -> Self {
        let state = State {
            geometry: settings.geometry,
            contents: Contents::new(settings.geometry.volatile_cache),
            health: Health::Working,
            owner: None,
            flights: BTreeMap::new(),
            next: 0,
            channels: vec![0; settings.channels.max(1)],
            unreadable: BTreeSet::new(),
            faults: Faults::NONE,
            counts: BTreeMap::new(),
            flushes: 0,
            random: simulation.random(),
        };
        let inner = Inner {
            name: name.into(),
            simulation: simulation.clone(),
            settings,
            zones,
            state: RefCell::new(state),
        };
        let this = Self { inner: Rc::new(inner) };
        simulation.add_device(this.clone());
        this
    }

    /// Its name in the trace.
    pub fn name(&self) -> Rc<str> {
        Rc::clone(&self.inner.name)
    }

    fn fault(&self, what: impl Into<String>) {
        self.inner.simulation.trace(Event::Fault { device: self.name(), what: what.into() });
    }

    /// Opens it for a process that has no other process, living or dead, beside it.
    pub fn open(&self, world: &SimWorld) -> Result<SimDisk, Busy> {
        let mut state = self.inner.state.borrow_mut();
        let held = state.owner.is_some_and(|owner| self.inner.simulation.process(owner).is_alive());
        if held || !state.flights.is_empty() {
            return Err(Busy);
        }
        state.owner = Some(world.process());
        Ok(SimDisk::new(self.clone(), world.process(), state.geometry))
    }

    /// Opens it whatever is still in flight, as PROTOCOL S18 forbids.
    pub fn open_busy(&self, world: &SimWorld) -> SimDisk {
        let mut state = self.inner.state.borrow_mut();
        state.owner = Some(world.process());
        SimDisk::new(self.clone(), world.process(), state.geometry)
    }

    /// What may go wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.inner.state.borrow_mut().faults = faults;
    }

    /// I/O so far, by zone.
    pub fn counts(&self) -> BTreeMap<Zone, Count> {
        self.inner.state.borrow().counts.clone()
    }

    /// Flushes so far.
    pub fn flushes(&self) -> u64 {
        self.inner.state.borrow().flushes
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.inner.state.borrow().flights.len()
    }

    /// The content of a block, as a read would bring it.
    pub fn peek(&self, block: u64) -> Content {
        self.inner.state.borrow().contents.get(block)
    }

    /// Puts a content in place, on the medium itself.
    pub fn poke(&self, block: u64, content: Content) {
        self.inner.state.borrow_mut().contents.set_stable(block, content);
    }

    /// Flips bits of a block.
    pub fn rot(&self, block: u64) {
        self.fault(format!("rot at block {block}"));
        self.inner.state.borrow_mut().rot(block);
    }

    /// The same for the same contents.
    pub fn fingerprint(&self) -> u64 {
        self.inner.state.borrow().contents.fingerprint()
    }

    /// It stops answering; what it works on stays in flight.
    pub fn hang(&self) {
        self.fault("hangs");
        self.inner.state.borrow_mut().health = Health::Hung;
    }

    /// It dies: what it works on fails, having landed in part; everything else fails from now on.
    pub fn die(&self) {
        self.fault("dies");
        let mut state = self.inner.state.borrow_mut();
        state.health = Health::Dead;
        let failed = state.cut_short(|_| true);
        drop(state);
        for flight in failed {
            flight.answer.give(Err(error(&flight.request, "the device is gone")));
        }
    }

    /// It works again, with the content that it had.
    pub fn return_to_work(&self) {
        self.fault("works again");
        let was = std::mem::replace(&mut self.inner.state.borrow_mut().health, Health::Working);
        if was == Health::Hung {
            let now = self.inner.simulation.now_ns();
            let ids: Vec<_> = self.inner.state.borrow().flights.keys().copied().collect();
            ids.into_iter().for_each(|id| self.reschedule(id, now));
        }
    }

    /// It becomes smaller; what lay beyond is gone.
    pub fn shrink(&self, blocks: u64) {
        self.fault(format!("shrinks to {blocks} blocks"));
        let mut state = self.inner.state.borrow_mut();
        state.geometry.blocks = blocks;
        state.contents.truncate(blocks);
    }

    /// The power goes: see [`Simulation::power_loss`], which takes it from processes at the same moment.
    pub fn lose_power(&self) {
        self.fault("loses power");
        let mut state = self.inner.state.borrow_mut();
        let gone = state.cut_short(|_| true);
        let tearing = state.geometry.tearing;
        let State { contents, random, .. } = &mut *state;
        contents.lose_power(tearing, random);
        state.owner = None;
        if state.health == Health::Hung {
            state.health = Health::Working;
        }
        drop(state);
        drop(gone);
    }

    /// A process died: its operations are the device's alone now.
    pub(crate) fn process_ended(&self, process: ProcessId) {
        let mut state = self.inner.state.borrow_mut();
        if state.owner == Some(process) {
            state.owner = None;
        }
        let now = self.inner.simulation.now_ns();
        let late_max = nanos(self.inner.settings.late_max);
        let ids: Vec<_> =
            state.flights.iter().filter(|(_, flight)| flight.process == process).map(|(id, _)| *id).collect();
        let mut late = Vec::new();
        let mut cut = Vec::new();
        for id in ids {
            match state.random.below(8) {
                0..=3 => {}
                4..=5 => cut.push(id),
                _ => late.push((id, now + state.random.below(late_max + 1))),
            }
        }
        let gone = state.cut_short(|id| cut.contains(&id));
        drop(state);
        drop(gone);
        late.into_iter().for_each(|(id, due)| self.reschedule(id, due));
    }

    /// The run is over.
    pub(crate) fn forget_operations(&self) {
        let flights = std::mem::take(&mut self.inner.state.borrow_mut().flights);
        drop(flights);
    }

    pub(super) fn ask(&self, process: ProcessId, mut request: Request) -> Wait {
        let answer = Rc::<Answer>::default();
        let now = self.inner.simulation.now_ns();
        let mut state = self.inner.state.borrow_mut();
        let id = state.next;
        state.next += 1;
        let blocks = request.blocks();
        self.inner.simulation.trace(Event::Asked {
            device: self.name(),
            id,
            operation: request.operation(),
            block: blocks.start,
            blocks: blocks.end - blocks.start,
        });
        state.count(&request, &self.inner.zones);
        let refused = if blocks.end > state.geometry.blocks {
            Some("beyond the end of the device".to_owned())
        } else if state.health == Health::Dead {
            Some("the device is gone".to_owned())
        } else {
            None
        };
        let (error, faults) = match refused {
            Some(refused) => {
                // Nothing of it happens.
                request = Request::Discard { blocks: blocks.start..blocks.start };
                (Some(refused), Vec::new())
            }
            None => state.strike(&mut request, &self.inner.zones),
        };
        if let Request::Flush { through } = &mut request {
            *through = state.contents.sequence();
        }
        let service = state.service(&request, &self.inner.settings);
        let due_ns = state.start(now, service);
        let early = state.early(&mut request).then(|| now + state.random.below(due_ns - now));
        state.flights.insert(id, Flight { process, request, due_ns, error, answer: Rc::clone(&answer) });
        drop(state);
        faults.into_iter().for_each(|fault| self.fault(format!("#{id} {fault}")));
        self.schedule(id, due_ns);
        if let Some(early) = early {
            let this = self.clone();
            self.inner.simulation.at(early, Due::Call(Box::new(move || this.land_early(id))));
        }
        Wait(answer)
    }

    fn schedule(&self, id: u64, due_ns: u64) {
        let this = self.clone();
        self.inner.simulation.at(due_ns, Due::Call(Box::new(move || this.complete(id, due_ns))));
    }

    fn reschedule(&self, id: u64, due_ns: u64) {
        let known = self.inner.state.borrow_mut().flights.get_mut(&id).map(|flight| flight.due_ns = due_ns);
        if known.is_some() {
            self.schedule(id, due_ns);
        }
    }

    /// Some blocks of a write reach the medium before the others.
    fn land_early(&self, id: u64) {
        let mut state = self.inner.state.borrow_mut();
        let State { flights, random, health, .. } = &mut *state;
        let Some(Flight { request: Request::Write { pieces, .. }, .. }) = flights.get_mut(&id) else {
            return;
        };
        if *health == Health::Working {
            let (landing, later) = std::mem::take(pieces).into_iter().partition(|_| random.coin());
            *pieces = later;
            state.land(landing);
        }
    }

    fn complete(&self, id: u64, due_ns: u64) {
        let mut state = self.inner.state.borrow_mut();
        if state.health == Health::Hung || state.flights.get(&id).is_none_or(|flight| flight.due_ns != due_ns)
        {
            return;
        }
        let Some(flight) = state.flights.remove(&id) else { return };
        let answer = Rc::clone(&flight.answer);
        let result = state.finish(flight);
        drop(state);
        let success = result.is_ok();
        self.inner.simulation.trace(Event::Answered { device: self.name(), id, success });
        answer.give(result);
    }
}
