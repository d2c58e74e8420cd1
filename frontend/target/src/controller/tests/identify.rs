//! Identify Controller, byte by byte (NVME N2, N8), and the lists.

use ashlar_nvme::Wire;
use ashlar_nvme::identify::{NamespaceList, NsIdDescriptor, NsIdDescriptors};
use ashlar_nvme::ids::NQN_FIELD;
use ashlar_nvme::sgl::SglDescriptor;

use super::*;
use crate::limits;

/// 4096 zeroes with these hexadecimal bytes at these offsets.
pub(super) fn page(fields: &[(usize, &str)]) -> Vec<u8> {
    let mut page = vec![0; 4096];
    for (offset, hex) in fields {
        for (at, byte) in (*offset..).zip(hex.split_whitespace()) {
            page[at] = u8::from_str_radix(byte, 16).expect("two hex digits");
        }
    }
    page
}

fn put_text(page: &mut [u8], offset: usize, len: usize, text: &str, fill: u8) {
    for (at, byte) in text.bytes().chain(std::iter::repeat(fill)).take(len).enumerate() {
        page[offset + at] = byte;
    }
}

/// Where two pages differ, for a readable failure.
pub(super) fn assert_same(got: &[u8], want: &[u8]) {
    assert_eq!(got.len(), want.len());
    let differ: Vec<_> = got.iter().zip(want).enumerate().filter(|(_, (got, want))| got != want).collect();
    assert!(differ.is_empty(), "offset (got, want): {differ:x?}");
}

#[test]
fn every_byte_of_identify_controller_of_an_io_controller() {
    let mut want = page(&[
        (77, "08"),            // MDTS: 1 MiB
        (78, "02 01"),         // CNTLID
        (80, "00 00 02 00"),   // VER 2.0
        (92, "00 09 00 00"),   // OAES: namespace attributes, ANA
        (96, "41 00 00 00"),   // CTRATT: 128-bit host id, traffic based keep-alive
        (111, "01"),           // CNTRLTYPE: I/O
        (258, "03"),           // ACL
        (259, "03"),           // AERL
        (260, "03"),           // FRMW
        (261, "26"),           // LPA: effects, extended data, supported pages
        (262, "3f"),           // ELPE
        (320, "0a 00"),        // KAS: 1 s
        (342, "0a"),           // ANATT
        (343, "55"),           // ANACAP: optimized, inaccessible, change, fixed group
        (344, "00 10 00 00"),  // ANAGRPMAX
        (348, "00 10 00 00"),  // NANAGRPID
        (512, "66 44"),        // SQES, CQES
        (514, "00 04"),        // MAXCMD = MQES + 1
        (516, "00 10 00 00"),  // NN
        (520, "9d 00"),        // ONCS: compare, DSM, write zeroes, save and select, verify
        (522, "01 00"),        // FUSES
        (525, "07"),           // VWC: present, flush broadcast
        (536, "01 00 30 00"),  // SGLS: supported, offset, transport
        (540, "00 10 00 00"),  // MNAN
        (1792, "04 04 00 00"), // IOCCSZ: (64 + 16384) / 16
        (1796, "01 00 00 00"), // IORCSZ
        (1803, "01"),          // MSDBD
        (1804, "01 00"),       // OFCS: Disconnect
    ]);
    want[76] = 0b1011; // CMIC: several ports and controllers, ANA
    put_text(&mut want, 4, 20, "SN-1", b' ');
    put_text(&mut want, 24, 40, "Ashlar", b' ');
    put_text(&mut want, 64, 8, env!("CARGO_PKG_VERSION"), b' ');
    put_text(&mut want, 768, NQN_FIELD, SUBSYSTEM, 0);
    assert_same(&Fixture::io().identify(Cns::Controller, 0).data.expect("data"), &want);
}

#[test]
fn every_byte_of_identify_controller_of_a_discovery_controller() {
    let mut want = page(&[
        (77, "08"),
        (78, "02 01"),
        (80, "00 00 02 00"),
        (92, "00 00 00 80"), // OAES: discovery log
        (96, "41 00 00 00"),
        (111, "02"), // CNTRLTYPE: discovery
        (258, "03"),
        (259, "03"),
        (261, "26"),
        (262, "3f"),
        (320, "0a 00"),
        (514, "00 04"),
        (536, "01 00 30 00"),
        (1806, "01"), // DCTYPE: direct
    ]);
    put_text(&mut want, 4, 20, "ASHLAR-DISCOVERY", b' ');
    put_text(&mut want, 24, 40, "Ashlar discovery", b' ');
    put_text(&mut want, 64, 8, env!("CARGO_PKG_VERSION"), b' ');
    put_text(&mut want, 768, NQN_FIELD, "nqn.2014-08.org.nvmexpress.discovery", 0);
    let fixture = Fixture::discovery(inventory([], 1));
    assert_same(&fixture.identify(Cns::Controller, 0).data.expect("data"), &want);
}

#[test]
fn a_discovery_controller_has_no_other_structure() {
    let fixture = Fixture::discovery(inventory([], 1));
    for cns in Cns::ALL.iter().filter(|cns| **cns != Cns::Controller) {
        assert_eq!(fixture.identify(*cns, 0).status, Status::INVALID_FIELD, "{cns:?}");
    }
}

#[test]
fn write_zeroes_of_any_block_size_fits_sixteen_bits() {
    let id = Fixture::io().identify(Cns::CsiController, 0).data.expect("data");
    // WZSL is 32 MiB: 65536 blocks of 512 bytes (NVME N9). No limit to Dataset Management (NVME N10).
    assert_same(&id, &page(&[(1, "0d")]));
}

#[test]
fn no_cache_is_reported_where_no_namespace_has_one() {
    let mut write_through = namespace(1);
    write_through.backend.volatile_cache = false;
    let fixture = Fixture::of_namespaces([write_through.clone()]);
    let vwc = |fixture: &Fixture| fixture.identify(Cns::Controller, 0).data.expect("data")[525];
    assert_eq!(vwc(&fixture), 0b110);
    // A host that was told so never flushes: what comes later must be durable without.
    fixture.change(&inventory([subsystem(SUBSYSTEM, [write_through, namespace(2)])], 2));
    assert_eq!(vwc(&fixture), 0b110);
    assert_eq!(fixture.controller.shared().write_cache(), WriteCache::Disabled);
}

#[test]
fn a_length_other_than_the_structures_is_refused() {
    let mut sqe = IdentifyCommand::new(Cns::Controller).to_sqe(CommandId(1), Nsid::NONE);
    for len in [0, 4, 4092, 4100, u32::MAX] {
        sqe.dptr = SglDescriptor::transport(len);
        assert_eq!(Fixture::io().ask(&sqe).status, Status::DATA_SGL_LENGTH_INVALID);
    }
}

#[test]
fn undefined_and_absent_structures_are_invalid_fields() {
    let fixture = Fixture::io();
    for cns in [0x04, 0x09, 0x0A, 0x0B, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1D, 0xFF] {
        let mut sqe = IdentifyCommand::new(Cns::Controller).to_sqe(CommandId(1), Nsid(1));
        sqe.cdw10 = cns.into();
        assert_eq!(fixture.ask(&sqe).status, Status::INVALID_FIELD, "CNS {cns:#04x}");
    }
}

#[test]
fn other_command_sets_are_refused() {
    let fixture = Fixture::io();
    for cns in [Cns::CsiNamespace, Cns::CsiController, Cns::CsiActiveNamespaces, Cns::CsiAllocatedNamespace] {
        let sqe = IdentifyCommand { csi: 2, ..IdentifyCommand::new(cns) }.to_sqe(CommandId(1), Nsid(1));
        assert_eq!(fixture.ask(&sqe).status, Status::INVALID_IO_COMMAND_SET, "{cns:?}");
    }
}

#[test]
fn four_thousand_namespaces_are_listed_in_pieces() {
    let fixture = Fixture::of_namespaces((1..=limits::NAMESPACES_MAX).map(namespace));
    for cns in [
        Cns::ActiveNamespaces,
        Cns::CsiActiveNamespaces,
        Cns::AllocatedNamespaces,
        Cns::CsiAllocatedNamespaces,
    ] {
        let mut seen = Vec::new();
        loop {
            let after = seen.last().map_or(0, |nsid: &Nsid| nsid.0);
            let data = fixture.identify(cns, after).data.expect("data");
            let list = NamespaceList::read_from(&data).expect("a list");
            let before = seen.len();
            seen.extend(list.iter());
            if seen.len() - before < NamespaceList::MAX {
                break;
            }
        }
        assert_eq!(seen, (1..=limits::NAMESPACES_MAX).map(Nsid).collect::<Vec<_>>());
    }
    for nsid in [0xFFFF_FFFE, 0xFFFF_FFFF] {
        let reply = fixture.identify(Cns::ActiveNamespaces, nsid);
        assert_eq!(reply.status, Status::INVALID_NAMESPACE_OR_FORMAT);
    }
    assert_eq!(fixture.identify(Cns::ActiveNamespaces, 0xFFFF_FFFD).data, Some(vec![0; 4096]));
}

#[test]
fn a_namespace_names_itself_by_nguid_uuid_and_command_set() {
    let fixture = Fixture::io();
    let data = fixture.identify(Cns::NamespaceDescriptors, 2).data.expect("data");
    let found: Vec<_> = NsIdDescriptors::new(&data).collect();
    let of = namespace(2);
    assert_eq!(
        found,
        [NsIdDescriptor::Nguid(of.nguid), NsIdDescriptor::Uuid(*of.uuid.as_bytes()), NsIdDescriptor::Csi(0)]
    );
    for nsid in [0, 3, 0xFFFF_FFFF] {
        let status = fixture.identify(Cns::NamespaceDescriptors, nsid).status;
        assert_eq!(status, Status::INVALID_NAMESPACE_OR_FORMAT);
    }
}

#[test]
fn only_the_nvm_command_set_is_combined() {
    let fixture = Fixture::io();
    let of = |cntid| {
        let command = IdentifyCommand { cntid, ..IdentifyCommand::new(Cns::CommandSets) };
        fixture.ask(&command.to_sqe(CommandId(1), Nsid::NONE))
    };
    assert_same(&of(Cntlid::DYNAMIC).data.expect("data"), &page(&[(0, "01")]));
    assert_same(&of(CNTLID).data.expect("data"), &page(&[(0, "01")]));
    assert_eq!(of(Cntlid(9)).status, Status::INVALID_FIELD);
}
