//! Get and Set Features: values, selectors, refusals (NVME N7, N11).

use ashlar_nvme::sgl::SglDescriptor;

use super::*;
use crate::limits;

const OK: Status = Status::SUCCESS;

fn set_for(fixture: &Fixture, nsid: u32, fid: FeatureId, cdw11: u32) -> Status {
    fixture.ask(&SetFeaturesCommand::build(CommandId(1), Nsid(nsid), fid, cdw11, DataPointer::None)).status
}

#[test]
fn what_is_set_is_got_and_the_default_stays() {
    let fixture = Fixture::io();
    for (fid, value, default) in [
        (FeatureId::Arbitration, 3, 7),
        (FeatureId::PowerManagement, 2 << 5, 0),
        (FeatureId::TemperatureThreshold, 300, 0xFFFF),
        (FeatureId::VolatileWriteCache, 0, 1),
        (FeatureId::NumberOfQueues, 0x0003_0003, 0x007F_007F),
        (FeatureId::WriteAtomicity, 1, 0),
        (FeatureId::AsyncEventConfiguration, 0x09FF, 0),
        (FeatureId::KeepAliveTimer, 2000, 0),
    ] {
        assert_eq!(fixture.set(fid, value).status, OK, "{fid:?}");
        assert_eq!(fixture.get(fid, Select::Current).dw0, value, "{fid:?}");
        for select in [Select::Default, Select::Saved] {
            assert_eq!(fixture.get(fid, select).dw0, default, "{fid:?} {select:?}");
        }
        // Changeable, not saveable, not of a namespace.
        assert_eq!(fixture.get(fid, Select::SupportedCapabilities).dw0, 0b100, "{fid:?}");
    }
}

#[test]
fn features_that_do_not_exist_are_invalid_fields() {
    let supported_io = [0x01, 0x02, 0x04, 0x05, 0x06, 0x07, 0x0A, 0x0B, 0x0F, 0x16, 0x81];
    let discovery = Fixture::discovery(inventory([], 1));
    for (fixture, supported) in [(Fixture::io(), supported_io.as_slice()), (discovery, &[0x0B, 0x0F, 0x81])] {
        let effects = fixture.log(LogId::FeatureEffects, 0, 1024).data.expect("data");
        for fid in 0..=0xFF_u8 {
            let mut sqe = Sqe::new(0x0A, CommandId(1), Nsid(1));
            sqe.cdw10 = (u32::from(fid) | 3 << 8).into();
            let exists = supported.contains(&fid);
            let want = if exists { OK } else { Status::INVALID_FIELD };
            assert_eq!(fixture.ask(&sqe).status, want, "get {fid:#04x}");
            assert_eq!(effects[usize::from(fid) * 4] & 1 == 1, exists, "effects of {fid:#04x}");
            if !exists {
                sqe.opcode = 0x09;
                sqe.cdw10 = u32::from(fid).into();
                assert_eq!(fixture.ask(&sqe).status, Status::INVALID_FIELD, "set {fid:#04x}");
            }
        }
    }
}

#[test]
fn reserved_selectors_saving_and_wrong_scopes_have_their_statuses() {
    let fixture = Fixture::io();
    let mut sqe = Sqe::new(0x0A, CommandId(1), Nsid::NONE);
    for sel in 4..8_u32 {
        sqe.cdw10 = (0x01 | sel << 8).into();
        assert_eq!(fixture.ask(&sqe).status, Status::INVALID_FIELD);
    }
    let mut save = Sqe::new(0x09, CommandId(1), Nsid::NONE);
    save.cdw10 = (0x01 | 1 << 31).into();
    assert_eq!(fixture.ask(&save).status, Status::FEATURE_NOT_SAVEABLE);
    let status = set_for(&fixture, 1, FeatureId::Arbitration, 0);
    assert_eq!(status, Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
    assert_eq!(set_for(&fixture, u32::MAX, FeatureId::Arbitration, 0), OK);
}

#[test]
fn values_that_make_no_sense_are_invalid_fields() {
    let fixture = Fixture::io();
    for (fid, value) in [
        (FeatureId::PowerManagement, 1),
        (FeatureId::TemperatureThreshold, 1 << 16),
        (FeatureId::TemperatureThreshold, 2 << 20),
        (FeatureId::NumberOfQueues, 0xFFFF_0001),
        (FeatureId::NumberOfQueues, 0x0001_FFFF),
        (FeatureId::AsyncEventConfiguration, 1 << 9),
        (FeatureId::AsyncEventConfiguration, 1 << 31),
    ] {
        assert_eq!(fixture.set(fid, value).status, Status::INVALID_FIELD, "{fid:?} {value:#x}");
    }
    let discovery = Fixture::discovery(inventory([], 1));
    for (value, want) in [(1 << 31, OK), (1 << 8, Status::INVALID_FIELD), (1, Status::INVALID_FIELD)] {
        assert_eq!(discovery.set(FeatureId::AsyncEventConfiguration, value).status, want);
    }
}

#[test]
fn queues_are_granted_up_to_the_limit_and_before_the_first_connects() {
    let fixture = Fixture::io();
    assert_eq!(fixture.set(FeatureId::NumberOfQueues, 0xFFFE_FFFE).dw0, 0x007F_007F);
    assert_eq!(fixture.set(FeatureId::NumberOfQueues, 0x0001_0002).dw0, 0x0001_0002);
    fixture.connect_queue(2).expect("admitted");
    assert!(fixture.connect_queue(3).is_err());
    let status = fixture.set(FeatureId::NumberOfQueues, 0x0001_0002).status;
    assert_eq!(status, Status::COMMAND_SEQUENCE_ERROR);
    const { assert!(limits::IO_QUEUES_MAX == 0x80) };
}

#[test]
fn switching_the_cache_off_is_seen_by_all_cores() {
    let fixture = Fixture::io();
    assert_eq!(fixture.controller.shared().write_cache(), WriteCache::Enabled);
    assert_eq!(fixture.set(FeatureId::VolatileWriteCache, 0).status, OK);
    assert_eq!(fixture.controller.shared().write_cache(), WriteCache::Disabled);
}

#[test]
fn without_a_cache_there_is_no_switch_for_it() {
    let mut write_through = namespace(1);
    write_through.backend.volatile_cache = false;
    let fixture = Fixture::of_namespaces([write_through]);
    assert_eq!(fixture.get(FeatureId::VolatileWriteCache, Select::Current).status, Status::INVALID_FIELD);
    assert_eq!(fixture.set(FeatureId::VolatileWriteCache, 1).status, Status::INVALID_FIELD);
}

#[test]
fn error_recovery_belongs_to_a_namespace() {
    let fixture = Fixture::io();
    let get = |nsid| {
        let fid = FeatureId::ErrorRecovery;
        let sqe =
            GetFeaturesCommand::build(CommandId(1), Nsid(nsid), fid, Select::Current, DataPointer::None);
        fixture.ask(&sqe)
    };
    assert_eq!(set_for(&fixture, 1, FeatureId::ErrorRecovery, 5), OK);
    assert_eq!((get(1).dw0, get(2).dw0), (5, 0));
    assert_eq!(set_for(&fixture, u32::MAX, FeatureId::ErrorRecovery, 6), OK);
    assert_eq!((get(1).dw0, get(2).dw0), (6, 6));
    for nsid in [0, 3, u32::MAX] {
        assert_eq!(get(nsid).status, Status::INVALID_NAMESPACE_OR_FORMAT);
    }
    let status = set_for(&fixture, 3, FeatureId::ErrorRecovery, 5);
    assert_eq!(status, Status::INVALID_NAMESPACE_OR_FORMAT);
    // DULBE: no namespace offers it.
    assert_eq!(set_for(&fixture, 1, FeatureId::ErrorRecovery, 1 << 16), Status::INVALID_FIELD);
    assert_eq!(fixture.get(FeatureId::ErrorRecovery, Select::SupportedCapabilities).dw0, 0b110);
}

#[test]
fn the_host_identifier_is_read_and_cannot_be_set() {
    let fixture = Fixture::io();
    let data = DataPointer::Transport { len: 16 };
    let fid = FeatureId::HostIdentifier;
    let mut get = GetFeaturesCommand::build(CommandId(1), Nsid::NONE, fid, Select::Current, data);
    assert_eq!(fixture.ask(&get).status, Status::INVALID_FIELD);
    get.cdw11 = 1.into();
    assert_eq!(fixture.data(&get), HOST_ID.0);
    get.dptr = SglDescriptor::transport(8);
    assert_eq!(fixture.ask(&get).status, Status::DATA_SGL_LENGTH_INVALID);
    let set = SetFeaturesCommand::build(CommandId(1), Nsid::NONE, fid, 1, data);
    assert_eq!(fixture.ask_with(&set, &[9; 16]).status, Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(fixture.get(fid, Select::SupportedCapabilities).dw0, 0);
}

#[test]
fn host_behaviour_is_kept() {
    let fixture = Fixture::io();
    let pointer = DataPointer::Transport { len: 512 };
    let fid = FeatureId::HostBehaviorSupport;
    let set = SetFeaturesCommand::build(CommandId(1), Nsid::NONE, fid, 0, pointer);
    let mut behaviour = vec![0; 512];
    behaviour[0] = 1;
    assert_eq!(fixture.ask_with(&set, &behaviour).status, OK);
    let get = GetFeaturesCommand::build(CommandId(1), Nsid::NONE, fid, Select::Current, pointer);
    assert_eq!(fixture.data(&get), behaviour);
    behaviour[2] = 2;
    assert_eq!(fixture.ask_with(&set, &behaviour).status, Status::INVALID_FIELD);
    assert_eq!(fixture.ask_with(&set, &behaviour[..511]).status, Status::DATA_SGL_LENGTH_INVALID);
    assert_eq!(fixture.set(fid, 0).status, Status::DATA_SGL_LENGTH_INVALID);
}
