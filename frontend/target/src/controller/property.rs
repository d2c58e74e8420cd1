//! Properties: CAP, VS, CC, CSTS, CRTO, and what setting CC does.

use ashlar_nvme::Status;
use ashlar_nvme::fabrics::PropertySize;

use super::Controller;

/// What setting a property did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertyEffect {
    /// Nothing that concerns others.
    None,
    /// CC.EN 0→1: I/O queues may connect, commands may start.
    Enabled,
    /// CC.EN 1→0: abort I/O and close the I/O queues; the admin queue stays (NVME N6). CSTS.RDY turns 0 when the last of them
    /// has been released.
    Disabled,
    /// CC.SHN: as [`PropertyEffect::Disabled`], and CSTS.SHST becomes 10b when the last I/O queue has been released.
    ShutDown,
}

impl Controller {
    /// Property Get.
    pub fn property_get(&self, offset: u32, size: PropertySize) -> Result<u64, Status> {
        let _ = (offset, size);
        Err(Status::INVALID_FIELD)
    }

    /// Property Set.
    pub fn property_set(
        &self,
        offset: u32,
        size: PropertySize,
        value: u64,
    ) -> Result<PropertyEffect, Status> {
        let _ = (offset, size, value);
        Err(Status::INVALID_FIELD)
    }
}
