//! Get Log Page: contents, and any offset and length (NVME N11).

use ashlar_nvme::Wire;
use ashlar_nvme::admin::{OffsetType, RetainEvent};
use ashlar_nvme::log::ana::{AnaGroups, LSP_GROUPS_ONLY, ana_log_bytes};
use ashlar_nvme::log::smart::SmartLog;
use ashlar_nvme::log::{AnaLogHeader, CommandsEffectsLog, ErrorEntry, SupportedLogPages};
use ashlar_nvme::sgl::SglDescriptor;
use proptest::prelude::*;

use super::*;
use crate::limits;

/// A log's whole content.
fn whole(fixture: &Fixture, lid: LogId, len: u32) -> Vec<u8> {
    fixture.log(lid, 0, len).data.expect("data")
}

const IO_LOGS: [(LogId, u64); 8] = [
    (LogId::SupportedLogPages, 1024),
    (LogId::ErrorInformation, 64 * 64),
    (LogId::Smart, 512),
    (LogId::FirmwareSlot, 512),
    (LogId::ChangedNamespaces, 4096),
    (LogId::CommandsEffects, 4096),
    // The largest there can be: hosts read it to its end in pieces.
    (LogId::Ana, 16 + limits::NAMESPACES_MAX as u64 * (32 + 4)),
    (LogId::FeatureEffects, 1024),
];

#[test]
fn the_supported_pages_are_those_that_are_answered() {
    let discovery = Fixture::discovery(inventory([], 1));
    for fixture in [Fixture::io(), discovery] {
        let data = whole(&fixture, LogId::SupportedLogPages, 1024);
        let supported = SupportedLogPages::read_from(&data).expect("a log");
        for lid in LogId::ALL {
            let status = fixture.log(*lid, 0, 4).status;
            let want = if supported.has(*lid) { Status::SUCCESS } else { Status::INVALID_LOG_PAGE };
            assert_eq!(status, want, "{lid:?}");
        }
    }
}

#[test]
fn an_offset_at_the_end_reads_zeroes_and_one_beyond_it_is_refused() {
    let fixture = Fixture::io();
    for (lid, size) in IO_LOGS {
        assert_eq!(fixture.log(lid, size, 8).data, Some(vec![0; 8]), "{lid:?}");
        for offset in [size + 4, u64::MAX - 3] {
            assert_eq!(fixture.log(lid, offset, 8).status, Status::INVALID_FIELD, "{lid:?}");
        }
    }
}

#[test]
fn what_is_read_past_the_content_is_zero() {
    let fixture = Fixture::io();
    for (lid, size) in IO_LOGS {
        let data = fixture.log(lid, size - 4, limits::MAX_TRANSFER_BYTES).data.expect("data");
        assert_eq!(data.len(), limits::MAX_TRANSFER_BYTES as usize);
        assert!(data[4..].iter().all(|byte| *byte == 0), "{lid:?}");
    }
}

proptest! {
    #[test]
    fn any_part_of_a_log_is_that_part(
        which in 0_usize..IO_LOGS.len(),
        offset in 0_u64..5000,
        dwords in 1_u32..2000,
    ) {
        let fixture = Fixture::io();
        let (lid, size) = IO_LOGS[which];
        let mut all = fixture.log(lid, 0, size as u32).data.expect("data");
        all.resize(20_000, 0);
        let reply = fixture.log(lid, offset, dwords * 4);
        if offset % 4 != 0 || offset > size {
            prop_assert_eq!(reply.status, Status::INVALID_FIELD);
            // The refusal is itself an error to be logged.
        } else {
            let want = &all[offset as usize..][..dwords as usize * 4];
            prop_assert_eq!(reply.data.expect("data"), want);
        }
    }
}

#[test]
fn a_wrong_selector_or_length_is_refused() {
    let fixture = Fixture::io();
    let good = GetLogPageCommand::new(LogId::Smart, 0, 512);
    let refused = |command: GetLogPageCommand, nsid| fixture.ask(&command.to_sqe(CommandId(1), nsid)).status;
    assert_eq!(refused(good, Nsid::NONE), Status::SUCCESS);
    assert_eq!(refused(good, Nsid(1)), Status::INVALID_FIELD);
    let index = GetLogPageCommand { ot: OffsetType::Index, ..good };
    assert_eq!(refused(index, Nsid::BROADCAST), Status::INVALID_FIELD);
    let long = GetLogPageCommand { len: u64::from(limits::MAX_TRANSFER_BYTES) + 4, ..good };
    assert_eq!(refused(long, Nsid::BROADCAST), Status::INVALID_FIELD);
    let mut sqe = good.to_sqe(CommandId(1), Nsid::BROADCAST);
    sqe.dptr = SglDescriptor::transport(508);
    assert_eq!(fixture.ask(&sqe).status, Status::DATA_SGL_LENGTH_INVALID);
}

#[test]
fn health_counts_units_of_512000_bytes_rounded_up() {
    let data = whole(&Fixture::io(), LogId::Smart, 512);
    let log = SmartLog::read_from(&data).expect("a log");
    assert_eq!((log.data_units_read.get(), log.data_units_written.get()), (2, 1));
    assert_eq!((log.host_reads.get(), log.host_writes.get()), (3, 4));
    assert_eq!((log.media_errors.get(), log.ctrl_busy_time.get()), (5, 6));
    assert_eq!((log.critical_warning, log.avail_spare), (0, 100));
}

#[test]
fn failed_commands_are_in_the_error_log_newest_first() {
    let fixture = Fixture::io();
    for cid in 0..70 {
        let sqe = Sqe::new(0xC0, CommandId(cid), Nsid(9));
        assert_eq!(fixture.ask(&sqe).status, Status::INVALID_OPCODE);
    }
    let data = whole(&fixture, LogId::ErrorInformation, 64 * 64);
    let entries: Vec<_> =
        data.chunks(64).map(|entry| ErrorEntry::read_from(entry).expect("an entry")).collect();
    let counts: Vec<_> = entries.iter().map(|entry| entry.error_count.get()).collect();
    assert_eq!(counts, (7..=70).rev().collect::<Vec<u64>>());
    let newest = entries.first().expect("an entry");
    // Invalid Command Opcode with DNR, phase 0.
    assert_eq!((newest.cid.get(), newest.status.get(), newest.nsid.get()), (69, 0x8002, 9));
    assert_eq!((newest.location.get(), newest.trtype), (0xFFFF, 3));
    let smart = whole(&fixture, LogId::Smart, 512);
    assert_eq!(SmartLog::read_from(&smart).expect("a log").num_err_log_entries.get(), 70);
}

#[test]
fn errors_of_other_queues_are_in_the_error_log_too() {
    let fixture = Fixture::io();
    fixture.controller.record_error(CommandError {
        qid: Qid(3),
        command: CommandId(8),
        status: Status::UNRECOVERED_READ,
        lba: ashlar_nvme::Lba(77),
        nsid: Nsid(1),
    });
    let data = whole(&fixture, LogId::ErrorInformation, 64);
    let entry = ErrorEntry::read_from(&data).expect("an entry");
    assert_eq!((entry.sqid.get(), entry.cid.get(), entry.lba.get()), (3, 8, 77));
}

#[test]
fn the_effects_log_names_what_is_executed() {
    let data = whole(&Fixture::io(), LogId::CommandsEffects, 4096);
    let log = CommandsEffectsLog::read_from(&data).expect("a log");
    let set = |of: &[ashlar_nvme::wire::U32]| -> Vec<(usize, u32)> {
        of.iter().enumerate().filter(|(_, e)| e.get() != 0).map(|(at, e)| (at, e.get())).collect()
    };
    let admin = [0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18, 0x7F];
    assert_eq!(set(&log.acs), admin.map(|opcode| (opcode, 1)));
    let io = [(0x00, 1), (0x01, 3), (0x02, 1), (0x05, 1), (0x08, 3), (0x09, 3), (0x0C, 1)];
    assert_eq!(set(&log.iocs), io);
}

#[test]
fn the_firmware_log_has_one_slot() {
    let data = whole(&Fixture::io(), LogId::FirmwareSlot, 512);
    assert_eq!(data[0], 1);
    assert_eq!(&data[8..16], format!("{:8}", env!("CARGO_PKG_VERSION")).as_bytes());
    assert!(data[16..].iter().all(|byte| *byte == 0));
}

fn ana(fixture: &Fixture, lsp: u8, len: u32) -> Vec<u8> {
    let command = GetLogPageCommand { lsp, ..GetLogPageCommand::new(LogId::Ana, 0, len) };
    fixture.data(&command.to_sqe(CommandId(1), Nsid::BROADCAST))
}

/// Groups of an ANA log: id, change count, state, namespaces.
fn groups(log: &[u8]) -> Vec<(u32, u64, u8, Vec<u32>)> {
    AnaGroups::new(log)
        .expect("a log")
        .map(|(group, nsids)| {
            let nsids = nsids.iter().map(|nsid| nsid.get()).collect();
            (group.anagrpid.get(), group.chgcnt.get(), group.state, nsids)
        })
        .collect()
}

#[test]
fn the_ana_log_has_a_group_per_namespace() {
    let mut away = namespace(2);
    away.ana_state = AnaState::Inaccessible;
    let mut moving = namespace(3);
    moving.ana_state = AnaState::Transition;
    let fixture = Fixture::of_namespaces([namespace(1), away, moving]);
    let want = vec![(1, 0, 0x1, vec![1]), (2, 0, 0x3, vec![2]), (3, 0, 0xF, vec![3])];
    assert_eq!(groups(&ana(&fixture, 0, 4096)), want);
    let groups_only = vec![(1, 0, 0x1, vec![]), (2, 0, 0x3, vec![]), (3, 0, 0xF, vec![])];
    assert_eq!(groups(&ana(&fixture, LSP_GROUPS_ONLY, 4096)), groups_only);
}

#[test]
fn ana_change_counts_rise_with_their_group_only() {
    let fixture = Fixture::io();
    let mut away = namespace(2);
    away.ana_state = AnaState::Inaccessible;
    fixture.change(&inventory([subsystem(SUBSYSTEM, [namespace(1), away.clone()])], 2));
    let log = ana(&fixture, 0, 4096);
    assert_eq!(AnaLogHeader::ref_from(&log).expect("a header").chgcnt.get(), 1);
    assert_eq!(groups(&log), vec![(1, 0, 1, vec![1]), (2, 1, 3, vec![2])]);
    // The same again, and another subsystem: nothing happened.
    let same = [subsystem(SUBSYSTEM, [namespace(1), away]), subsystem("nqn.2026-01.example:two", [])];
    fixture.change(&inventory(same, 3));
    assert_eq!(ana(&fixture, 0, 4096), log);
}

#[test]
fn the_largest_ana_log_is_read_in_one_transfer() {
    let fixture = Fixture::of_namespaces((1..=limits::NAMESPACES_MAX).map(namespace));
    let all = u64::from(limits::NAMESPACES_MAX);
    let largest = u32::try_from(ana_log_bytes(all, all)).expect("fits");
    assert!(largest <= limits::MAX_TRANSFER_BYTES);
    let groups = groups(&ana(&fixture, 0, largest));
    assert_eq!(groups.len(), limits::NAMESPACES_MAX as usize);
    assert!(groups.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].3 < pair[1].3));
    // Linux reads the largest log even of few namespaces.
    assert_eq!(ana(&Fixture::io(), 0, largest).len(), largest as usize);
}

#[test]
fn the_changed_list_is_kept_until_it_is_read_without_retain() {
    let fixture = Fixture::io();
    let mut larger = namespace(2);
    larger.blocks += 1;
    fixture.change(&inventory([subsystem(SUBSYSTEM, [larger, namespace(5)])], 2));
    let read = |rae| {
        let command = GetLogPageCommand { rae, ..GetLogPageCommand::new(LogId::ChangedNamespaces, 0, 16) };
        fixture.data(&command.to_sqe(CommandId(1), Nsid::BROADCAST))
    };
    let listed = [1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(read(RetainEvent::Retain), listed);
    assert_eq!(read(RetainEvent::Clear), listed);
    assert_eq!(read(RetainEvent::Clear), [0; 16]);
}

#[test]
fn too_many_changed_namespaces_are_only_said_to_be_too_many() {
    let fixture = Fixture::of_namespaces((1..=1025).map(namespace));
    fixture.change(&inventory([subsystem(SUBSYSTEM, [])], 2));
    let data = whole(&fixture, LogId::ChangedNamespaces, 4096);
    assert_eq!(data[..4], [0xFF; 4]);
    assert!(data[4..].iter().all(|byte| *byte == 0));
}
