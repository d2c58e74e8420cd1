//! The two devices: what each of them is, how it fares, and which replica it carries.

use std::rc::Rc;

use ashlar_replication::ReplicaId;
use ashlar_store::format::{DeviceId, Layout};
use ashlar_store::lane::LaneConfig;
use uuid::Uuid;

use super::EXTENTS;
use crate::atlas::{Owed, Replicas};
use crate::disk::{Device, DeviceSettings, Faults, Injector};
use crate::executor::Simulation;
use crate::random::Random;
use crate::scenarios::small;

/// How a device fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Working,
    /// Not there, for the process that runs.
    Away,
    Hung,
    Dead,
}

/// A slot with the device that is in it.
#[derive(Clone)]
pub(super) struct Bay {
    pub(super) device: Device,
    pub(super) id: DeviceId,
    pub(super) layout: Layout,
    pub(super) config: LaneConfig,
    /// Of a device, not of a slot: one that was replaced never comes back (PROTOCOL R4).
    pub(super) replica: ReplicaId,
    pub(super) health: Health,
    /// Its medium fails now and then; then the other's never does.
    pub(super) faulty: bool,
    /// Its lanes could not be opened so many times.
    pub(super) refusals: u32,
}

/// What both devices have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) volatile: bool,
    /// How many operations in a million suffer each fault, on a device that is faulty.
    pub(super) per_million: u32,
}

impl Bay {
    /// A new device with number `number`.
    pub(super) fn new(
        simulation: &Simulation,
        number: u32,
        kind: Kind,
        faulty: bool,
        random: &mut Random,
    ) -> Self {
        let layout = small::tiny(EXTENTS, random);
        let id = small::device_id(random);
        let settings = if kind.volatile { DeviceSettings::volatile } else { DeviceSettings::solid };
        let zones = Rc::new(move |block| small::zone(&layout, block));
        let name = format!("disk{number}");
        let device = Device::new(simulation, &name, settings(layout.device_blocks()), zones);
        small::write_roots(&device, &layout, id);
        if faulty {
            let per_million = kind.per_million;
            let injector = Injector { replicas: Replicas::Two, worst: Owed::Served, per_million };
            device.set_faults(Faults::drawn(injector));
        }
        let config = LaneConfig {
            cache_pages: random.between(1, 16) as usize,
            open_extents: random.between(1, u64::from(EXTENTS)) as usize,
            early_bytes: random.between(1, 200) as usize,
        };
        let replica = ReplicaId(Uuid::from_u128(u128::from(number) + 1));
        simulation.note(format!("{name}: {:?}, {config:?}, faulty {faulty}", layout.geometry()));
        Self { device, id, layout, config, replica, health: Health::Working, faulty, refusals: 0 }
    }

    /// It works, from the next process on or for the one that runs.
    pub(super) fn comes_back(&mut self) {
        if matches!(self.health, Health::Hung | Health::Dead) {
            self.device.return_to_work();
        }
        self.health = Health::Working;
    }
}
