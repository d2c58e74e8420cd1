//! Faults of a device: which are drawn, at which rate, within what the atlas allows.

use ashlar_io::DiskOperation;

use crate::atlas::{Fault, Owed, Replicas, Zone, owed};
use crate::random::Random;

/// What may be drawn.
#[derive(Debug, Clone, Copy)]
pub struct Injector {
    /// How many replicas there are; all injected faults must be on one of them.
    pub replicas: Replicas,
    /// The worst that the scenario can judge.
    pub worst: Owed,
    /// How many operations in a million suffer one, per kind of fault.
    pub per_million: u32,
}

/// The faults of one device.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    injector: Option<Injector>,
    planned: Vec<(Zone, Fault)>,
}

impl Faults {
    /// None, ever.
    pub const NONE: Self = Self { injector: None, planned: Vec::new() };

    /// Drawn by an injector.
    pub fn drawn(injector: Injector) -> Self {
        Self { injector: Some(injector), planned: Vec::new() }
    }

    /// The next operation that `fault` can strike in `zone` suffers it.
    #[must_use]
    pub fn then(mut self, zone: Zone, fault: Fault) -> Self {
        self.planned.push((zone, fault));
        self
    }

    /// The fault that an operation suffers, if any.
    pub(crate) fn draw(
        &mut self,
        zone: Zone,
        operation: DiskOperation,
        random: &mut Random,
    ) -> Option<Fault> {
        let planned = |(at, fault): &(Zone, Fault)| *at == zone && strikes(*fault) == operation;
        if let Some(index) = self.planned.iter().position(planned) {
            return Some(self.planned.remove(index).1);
        }
        let injector = self.injector?;
        Fault::ALL.into_iter().find(|fault| {
            strikes(*fault) == operation
                && owed(zone, *fault, injector.replicas) <= injector.worst
                && random.per_million(injector.per_million)
        })
    }
}

/// The operation that a fault befalls. Rot is found by a read, so that is when it sets in.
fn strikes(fault: Fault) -> DiskOperation {
    match fault {
        Fault::ReadErrorOnce | Fault::ReadErrorUntilWritten | Fault::Rot => DiskOperation::Read,
        Fault::WriteErrorOnce | Fault::MisdirectedWrite | Fault::LostWrite => DiskOperation::Write,
    }
}
