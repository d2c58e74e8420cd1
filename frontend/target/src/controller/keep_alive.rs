//! When an association ends by itself: keep-alive, idle discovery, a controller that stays disabled.

use std::time::Duration;

use ashlar_reactor::Instant;

use super::{Controller, ControllerKind, ControllerState};
use crate::limits;

/// KATO as granted: rounded up to the granularity (NVME N7). 0 stays 0: no keep-alive.
pub(super) fn granted_ms(asked_ms: u32) -> u32 {
    let unit = granularity_ms();
    match asked_ms.div_ceil(unit).checked_mul(unit) {
        Some(granted) => granted,
        None => u32::MAX - u32::MAX % unit,
    }
}

/// KAS in milliseconds.
pub(super) const fn granularity_ms() -> u32 {
    limits::KEEP_ALIVE_GRANULARITY.as_millis() as u32
}

impl Controller {
    /// When the association is over unless something is heard of the host before. `None`: never. Ask again at
    /// that moment, after every property set and every Set Features: if it has moved, the controller lives. A
    /// core that was late asks only after it has taken in what had arrived meanwhile (NVME N7).
    ///
    /// Keep-alive is counted by traffic (NVMe Base 2.0 §3.9): a host that was heard of within one interval
    /// may stay silent for the whole next one, so that it is lost after two.
    pub fn expires_at(&self) -> Option<Instant> {
        if self.shared.state() == ControllerState::Ended {
            return None;
        }
        let heard = self.shared.last_heard().max(self.created);
        let silence = match (self.kato_ms.get(), self.shared.kind) {
            (0, ControllerKind::Io) => None,
            (0, ControllerKind::Discovery) => Some(heard + limits::DISCOVERY_IDLE),
            (kato_ms, _) => Some(heard + 2 * Duration::from_millis(u64::from(kato_ms))),
        };
        let disabled =
            self.registers.get().disabled_since().map(|since| since + limits::DISABLED_ASSOCIATION);
        silence.into_iter().chain(disabled).min()
    }

    /// KATO as granted, in milliseconds; 0 is none.
    pub fn kato_ms(&self) -> u32 {
        self.kato_ms.get()
    }
}
