//! The discovery log: who sees what where (NVME N13).

use ashlar_nvme::Wire;
use ashlar_nvme::admin::{RetainEvent, async_event_request};
use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::log::discovery::{DiscoveryEntry, DiscoveryHeader};

use super::*;
use crate::controller::discovery::entries as entries_for;

const TWO: &str = "nqn.2026-01.example:two";

fn with_portals(
    subsystems: impl IntoIterator<Item = Subsystem>,
    portals: Vec<Portal>,
    revision: u64,
) -> Arc<Inventory> {
    let inventory = inventory(subsystems, revision);
    Arc::new(Inventory { portals, ..Inventory::clone(&inventory) })
}

struct Log {
    generation: u64,
    /// Subtype, name, address, port.
    entries: Vec<(u8, String, String, String)>,
}

fn read(fixture: &Fixture) -> Log {
    let data = fixture.log(LogId::Discovery, 0, 64 * 1024).data.expect("data");
    let (header, rest) = DiscoveryHeader::split_from(&data).expect("a header");
    let entries = rest
        .chunks(DiscoveryEntry::SIZE)
        .take(header.numrec.get() as usize)
        .map(|bytes| {
            let entry = DiscoveryEntry::read_from(bytes).expect("an entry");
            let nqn = entry.subsystem().expect("an NQN").as_str().to_owned();
            let address = entry.address().expect("text").to_owned();
            (entry.subtype, nqn, address, entry.service().expect("text").to_owned())
        })
        .collect();
    Log { generation: header.genctr.get(), entries }
}

fn line(subtype: u8, nqn: &str, address: &str, port: &str) -> (u8, String, String, String) {
    (subtype, nqn.to_owned(), address.to_owned(), port.to_owned())
}

const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

#[test]
fn a_host_sees_what_it_may_use_at_every_portal() {
    let closed = Subsystem { hosts: HostAccess::default(), ..subsystem(TWO, []) };
    let mut advertised = portal("[::]:4421");
    advertised.advertise = Some("[2001:db8::5]:9999".parse().expect("an address"));
    let mut discovery_port = portal("0.0.0.0:8009");
    discovery_port.discovery_only = true;
    let portals = vec![portal("0.0.0.0:4420"), portal("198.51.100.1:4420"), advertised, discovery_port];
    let fixture = Fixture::discovery(with_portals([subsystem(SUBSYSTEM, []), closed], portals, 5));
    let log = read(&fixture);
    assert_eq!(log.generation, 5);
    let want = [
        line(3, DISCOVERY, "192.0.2.7", "4420"),
        // A wildcard is told as the address that this host connected to.
        line(2, SUBSYSTEM, "192.0.2.7", "4420"),
        line(2, SUBSYSTEM, "198.51.100.1", "4420"),
        line(2, SUBSYSTEM, "2001:db8::5", "9999"),
    ];
    assert_eq!(log.entries, want);
}

#[test]
fn every_field_of_an_entry() {
    let fixture = Fixture::discovery(inventory([subsystem(SUBSYSTEM, [])], 1));
    let data = fixture.log(LogId::Discovery, 2048, 1024).data.expect("data");
    // TCP, IPv4, NVM subsystem, nothing said of a secure channel, flow control can be disabled, port 1,
    // dynamic controllers, 256 admin entries.
    assert_eq!(data[..12], [3, 1, 2, 4, 1, 0, 0xFF, 0xFF, 0, 1, 0, 0]);
    assert!(data[12..32].iter().all(|byte| *byte == 0));
    assert_eq!(data[32..64], *format!("{:32}", "4420").as_bytes());
    assert!(data[64..256].iter().all(|byte| *byte == 0));
    assert_eq!(data[256..256 + SUBSYSTEM.len()], *SUBSYSTEM.as_bytes());
    assert!(data[256 + SUBSYSTEM.len()..512].iter().all(|byte| *byte == 0));
    assert_eq!(data[512..768], *format!("{:256}", "192.0.2.7").as_bytes());
    assert!(data[768..].iter().all(|byte| *byte == 0));
    // The discovery subsystem itself: persistent connections, the same everywhere.
    let itself = fixture.log(LogId::Discovery, 1024, 1024).data.expect("data");
    assert_eq!(itself[..12], [3, 1, 3, 4, 1, 0, 0xFF, 0xFF, 0, 1, 3, 0]);
}

#[test]
fn a_wildcard_is_never_told() {
    let mut careless = portal("[::]:4421");
    careless.advertise = Some("0.0.0.0:4421".parse().expect("an address"));
    let portals = vec![portal("0.0.0.0:4420"), careless];
    let served = with_portals([subsystem(SUBSYSTEM, [])], portals, 1);
    for (local, want) in [
        // A wildcard of the other family cannot be reached.
        ("192.0.2.7:4420", vec!["192.0.2.7", "192.0.2.7"]),
        ("[::ffff:192.0.2.7]:4420", vec!["192.0.2.7", "192.0.2.7"]),
        ("[2001:db8::7]:4421", vec!["2001:db8::7", "2001:db8::7"]),
        ("0.0.0.0:4420", vec![]),
    ] {
        let local = local.parse().expect("an address");
        let entries = entries_for(&served, &nqn(HOST), local);
        let told: Vec<_> = entries.iter().map(|entry| entry.address().expect("text")).collect();
        assert_eq!(told, want, "{local}");
    }
}

#[test]
fn the_generation_changes_only_with_what_this_host_sees() {
    let one = || subsystem(SUBSYSTEM, [namespace(1)]);
    let closed = || Subsystem { hosts: HostAccess::default(), ..subsystem(TWO, []) };
    let fixture = Fixture::discovery(inventory([one()], 1));
    let steps = [
        (inventory([one(), closed()], 2), 1),
        (inventory([subsystem(SUBSYSTEM, [namespace(1), namespace(2)])], 3), 1),
        (inventory([one(), subsystem(TWO, [])], 4), 4),
        (inventory([one(), closed()], 5), 5),
        (inventory([], 6), 6),
        (inventory([], 7), 6),
    ];
    for (served, want) in steps {
        fixture.change(&served);
        assert_eq!(read(&fixture).generation, want);
    }
}

#[test]
fn another_content_is_another_generation_whatever_the_revision() {
    let fixture = Fixture::discovery(inventory([subsystem(SUBSYSTEM, [])], 7));
    fixture.change(&inventory([], 7));
    assert_eq!(read(&fixture).generation, 8);
    fixture.change(&inventory([subsystem(SUBSYSTEM, [])], 3));
    assert_eq!(read(&fixture).generation, 9);
}

#[test]
fn a_change_between_two_pieces_is_seen_in_the_header() {
    let fixture = Fixture::discovery(inventory([subsystem(SUBSYSTEM, [])], 1));
    let piece = |offset, len, rae| {
        let command = GetLogPageCommand { rae, ..GetLogPageCommand::new(LogId::Discovery, offset, len) };
        fixture.data(&command.to_sqe(CommandId(1), Nsid::NONE))
    };
    let before = piece(0, 16, RetainEvent::Retain);
    piece(1024, 1024, RetainEvent::Retain);
    fixture.change(&inventory([subsystem(SUBSYSTEM, []), subsystem(TWO, [])], 2));
    piece(2048, 1024, RetainEvent::Retain);
    assert_ne!(piece(0, 16, RetainEvent::Clear), before);
}

#[test]
fn a_listening_host_is_told_of_changes_that_it_sees() {
    let fixture = Fixture::discovery(inventory([subsystem(SUBSYSTEM, [])], 1));
    assert_eq!(fixture.set(FeatureId::AsyncEventConfiguration, 1 << 31).status, Status::SUCCESS);
    let sqe = async_event_request(CommandId(1));
    let mut waiting = pin!(fixture.controller.execute(&sqe, &[]));
    assert!(poll_once(waiting.as_mut()).is_pending());
    let closed = Subsystem { hosts: HostAccess::default(), ..subsystem(TWO, []) };
    fixture.change(&inventory([subsystem(SUBSYSTEM, []), closed], 2));
    assert!(poll_once(waiting.as_mut()).is_pending());
    fixture.change(&inventory([subsystem(SUBSYSTEM, []), subsystem(TWO, [])], 3));
    let Poll::Ready(reply) = poll_once(waiting.as_mut()) else { panic!("the change was not reported") };
    assert_eq!(reply.dw0, AsyncEvent::DiscoveryLogChange.dw0());
    assert_eq!(reply.dw0, 0x0070_F002);
}
