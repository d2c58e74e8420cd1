//! Properties, and what enabling, disabling and shutting down mean (NVME N3, N6).

use ashlar_nvme::admin::keep_alive;
use ashlar_nvme::registers::{CSS_NVM, Cap, Crto};

use super::*;
use crate::limits;

const CC: u32 = Property::Cc as u32;
const DISABLE: u64 = CC_ENABLE & !1;
const SHN_NORMAL: u64 = 1 << 14;
const SHN_ABRUPT: u64 = 2 << 14;
const SHST_OCCURRING: u64 = 1 << 2;
const SHST_COMPLETE: u64 = 2 << 2;
const RDY: u64 = 1;

fn fresh() -> Fixture {
    Fixture::new(ControllerKind::Io, inventory([subsystem(SUBSYSTEM, [namespace(1)])], 1), 5000)
}

#[test]
fn capabilities_agree_with_the_limits_and_the_version() {
    let fixture = fresh();
    let get = |property: Property| fixture.controller.property_get(property as u32, property.size());
    let cap = Cap(get(Property::Cap).expect("CAP"));
    assert_eq!(cap.mqes(), limits::QUEUE_ENTRIES_MAX - 1);
    assert!(cap.cqr());
    assert_eq!(cap.css(), CSS_NVM);
    assert_eq!((cap.mpsmin(), cap.mpsmax(), cap.ams(), cap.nssrs()), (0, 0, 0, false));
    // Linux reads CRTO because of CRWMS, and complains if it is shorter than TO.
    assert!(cap.crwms() && !cap.crims());
    let crto = Crto(get(Property::Crto).expect("CRTO") as u32);
    assert_eq!(crto.crwmt(), u16::from(cap.to()));
    assert_eq!(get(Property::Vs), Ok(0x0002_0000));
}

#[test]
fn a_property_has_one_size_and_the_others_do_not_exist() {
    let controller = fresh().controller;
    for offset in 0..0x100 {
        for size in [PropertySize::Four, PropertySize::Eight] {
            let exists = Property::try_from(offset).is_ok_and(|p| p.size() == size && p != Property::Nssr);
            assert_eq!(controller.property_get(offset, size).is_ok(), exists, "{offset:#x} {size:?}");
            if offset != CC {
                assert_eq!(controller.property_set(offset, size, 0), Err(Status::INVALID_FIELD));
            }
        }
    }
    assert_eq!(controller.property_set(CC, PropertySize::Eight, 0), Err(Status::INVALID_FIELD));
}

#[test]
fn only_what_cap_offers_can_be_configured() {
    let fixture = fresh();
    // CSS 110b and 111b, MPS 1, AMS 1, reserved SHN, CRIME.
    for bad in [6 << 4, 7 << 4, 1 << 7, 1 << 11, 3 << 14, 1 << 24] {
        assert_eq!(fixture.set_cc(CC_ENABLE | bad), Err(Status::INVALID_FIELD), "{bad:#x}");
        assert_eq!(fixture.csts(), 0);
    }
}

#[test]
fn before_ready_only_fabrics_commands_are_executed() {
    let fixture = fresh();
    assert_eq!(fixture.identify(Cns::Controller, 0).status, Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(fixture.ask(&keep_alive(CommandId(1))).status, Status::COMMAND_SEQUENCE_ERROR);
    fixture.enable();
    assert_eq!(fixture.csts(), RDY);
    assert_eq!(fixture.controller.shared().state(), ControllerState::Ready);
    assert_eq!(fixture.ask(&keep_alive(CommandId(1))).status, Status::SUCCESS);
}

#[test]
fn linux_writes_its_configuration_before_it_enables() {
    let fixture = fresh();
    assert_eq!(fixture.set_cc(CC_ENABLE & !1), Ok(PropertyEffect::None));
    assert_eq!(fixture.controller.property_get(CC, PropertySize::Four), Ok(CC_ENABLE & !1));
    assert_eq!((fixture.csts(), fixture.controller.shared().state()), (0, ControllerState::Disabled));
    fixture.enable();
    assert_eq!(fixture.controller.property_get(CC, PropertySize::Four), Ok(CC_ENABLE));
}

#[test]
fn disabling_is_over_when_the_last_io_queue_is_released() {
    let fixture = Fixture::io();
    fixture.connect_queue(1).expect("admitted");
    fixture.connect_queue(2).expect("admitted");
    assert_eq!(fixture.set_cc(DISABLE), Ok(PropertyEffect::Disabled));
    assert_eq!(fixture.controller.shared().state(), ControllerState::Disabled);
    fixture.controller.release_io_queue(Qid(1));
    assert_eq!(fixture.csts(), RDY);
    assert_eq!(fixture.set_cc(CC_ENABLE), Err(Status::COMMAND_SEQUENCE_ERROR));
    fixture.controller.release_io_queue(Qid(2));
    assert_eq!(fixture.csts(), 0);
    fixture.enable();
    fixture.connect_queue(1).expect("the same queue again");
}

#[test]
fn shutdown_ends_with_shst_complete_and_a_reset_clears_it() {
    for shn in [SHN_NORMAL, SHN_ABRUPT] {
        let fixture = Fixture::io();
        fixture.connect_queue(1).expect("admitted");
        assert_eq!(fixture.set_cc(CC_ENABLE | shn), Ok(PropertyEffect::ShutDown));
        assert_eq!(fixture.controller.shared().state(), ControllerState::Disabled);
        assert_eq!(fixture.csts(), RDY | SHST_OCCURRING);
        fixture.controller.release_io_queue(Qid(1));
        assert_eq!(fixture.csts(), RDY | SHST_COMPLETE);
        assert_eq!(fixture.set_cc(CC_ENABLE | shn), Ok(PropertyEffect::None));
        assert_eq!(fixture.set_cc(DISABLE), Ok(PropertyEffect::Disabled));
        assert_eq!(fixture.csts(), 0);
        fixture.enable();
        assert_eq!(fixture.csts(), RDY);
    }
}

#[test]
fn shutdown_of_a_controller_that_was_never_enabled_completes_at_once() {
    let fixture = fresh();
    assert_eq!(fixture.set_cc(SHN_NORMAL), Ok(PropertyEffect::None));
    assert_eq!(fixture.csts(), SHST_COMPLETE);
    assert_eq!(fixture.set_cc(CC_ENABLE | SHN_NORMAL), Err(Status::COMMAND_SEQUENCE_ERROR));
    fixture.enable();
    assert_eq!(fixture.csts(), RDY);
}

#[test]
fn a_reset_sets_features_back_but_not_the_keep_alive_timeout() {
    let fixture = Fixture::io();
    assert_eq!(fixture.set(FeatureId::AsyncEventConfiguration, 1 << 8).status, Status::SUCCESS);
    assert_eq!(fixture.set(FeatureId::VolatileWriteCache, 0).status, Status::SUCCESS);
    assert_eq!(fixture.set(FeatureId::KeepAliveTimer, 9000).status, Status::SUCCESS);
    assert_eq!(fixture.set_cc(DISABLE), Ok(PropertyEffect::Disabled));
    fixture.enable();
    assert_eq!(fixture.get(FeatureId::AsyncEventConfiguration, Select::Current).dw0, 0);
    assert_eq!(fixture.get(FeatureId::VolatileWriteCache, Select::Current).dw0, 1);
    assert_eq!(fixture.get(FeatureId::KeepAliveTimer, Select::Current).dw0, 9000);
}

#[test]
fn an_ended_controller_does_nothing_any_more() {
    let fixture = Fixture::io();
    fixture.controller.end();
    fixture.controller.end();
    assert_eq!(fixture.set_cc(DISABLE), Err(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(fixture.identify(Cns::Controller, 0).status, Status::ABORTED_SQ_DELETION);
    assert_eq!(fixture.controller.shared().state(), ControllerState::Ended);
}
