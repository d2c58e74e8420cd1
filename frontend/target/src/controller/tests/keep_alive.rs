//! Keep-alive: rounding, and when an association is over (NVME N6, N7).

use super::*;
use crate::limits;

fn with(kind: ControllerKind, kato_ms: u32) -> Fixture {
    Fixture::new(kind, inventory([subsystem(SUBSYSTEM, [namespace(1)])], 1), kato_ms)
}

fn granted(kato_ms: u32) -> u32 {
    let fixture = with(ControllerKind::Io, kato_ms);
    fixture.enable();
    let current = fixture.get(FeatureId::KeepAliveTimer, Select::Current).dw0;
    assert_eq!(fixture.controller.kato_ms(), current);
    current
}

#[test]
fn the_timeout_is_rounded_up_and_get_features_says_so() {
    for (asked, want) in [(0, 0), (1, 1000), (1000, 1000), (1001, 2000), (15_000, 15_000)] {
        assert_eq!(granted(asked), want);
        let fixture = Fixture::io();
        assert_eq!(fixture.set(FeatureId::KeepAliveTimer, asked).status, Status::SUCCESS);
        assert_eq!(fixture.get(FeatureId::KeepAliveTimer, Select::Current).dw0, want);
    }
    // The largest timeout has no larger multiple.
    assert_eq!(granted(u32::MAX), 4_294_967_000);
}

#[test]
fn traffic_on_any_core_keeps_the_association() {
    let fixture = with(ControllerKind::Io, 5000);
    fixture.enable();
    let interval = Duration::from_secs(5);
    let start = now();
    assert_eq!(fixture.controller.expires_at(), Some(start + 2 * interval));
    advance(interval);
    for core in [0, 1] {
        advance(Duration::from_secs(1));
        fixture.controller.shared().traffic(CoreId(core)).expect("a core").heard(now());
        assert_eq!(fixture.controller.expires_at(), Some(now() + 2 * interval));
    }
    fixture.controller.end();
    assert_eq!(fixture.controller.expires_at(), None);
}

#[test]
fn without_keep_alive_io_lives_and_idle_discovery_ends() {
    let io = with(ControllerKind::Io, 0);
    io.enable();
    assert_eq!(io.controller.expires_at(), None);
    let discovery = with(ControllerKind::Discovery, 0);
    discovery.enable();
    assert_eq!(discovery.controller.expires_at(), Some(now() + limits::DISCOVERY_IDLE));
    let persistent = with(ControllerKind::Discovery, 30_000);
    persistent.enable();
    assert_eq!(persistent.controller.expires_at(), Some(now() + Duration::from_secs(60)));
}

#[test]
fn a_disabled_association_survives_two_minutes_whatever_is_heard() {
    for stop in [CC_ENABLE & !1, CC_ENABLE | 1 << 14] {
        let fixture = with(ControllerKind::Io, 0);
        // Not enabled yet counts too.
        assert_eq!(fixture.controller.expires_at(), Some(now() + limits::DISABLED_ASSOCIATION));
        fixture.enable();
        advance(Duration::from_secs(1000));
        fixture.set_cc(stop).expect("stopped");
        let end = now() + limits::DISABLED_ASSOCIATION;
        assert_eq!(fixture.controller.expires_at(), Some(end));
        advance(Duration::from_secs(60));
        fixture.controller.shared().traffic(CoreId(0)).expect("a core").heard(now());
        // Neither does another write to CC start it anew.
        fixture.set_cc(stop).expect("nothing new");
        assert_eq!(fixture.controller.expires_at(), Some(end));
        if stop & 1 == 1 {
            fixture.set_cc(0).expect("disabled after shutdown");
            assert_eq!(fixture.controller.expires_at(), Some(end));
        }
        fixture.enable();
        assert_eq!(fixture.controller.expires_at(), None);
    }
}
