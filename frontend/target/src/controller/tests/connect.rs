//! Connect: every refusal (NVME N6, NVMe Base 2.0 §6.3).

use ashlar_nvme::fabrics::InvalidParameter;
use proptest::prelude::*;

use super::*;
use crate::controller::connect::{
    AdminAdmission, ConnectRefusal, FlowControl, IoQueueAdmission, check_admin,
};
use crate::limits;

fn admin_connect() -> (ConnectCommand, ConnectData) {
    (
        ConnectCommand::new(CommandId(0), Qid::ADMIN, 31, ConnectAttributes(0), 5000),
        ConnectData::new(HOST_ID, Cntlid::DYNAMIC, &nqn(SUBSYSTEM), &nqn(HOST)),
    )
}

fn served() -> Arc<Inventory> {
    inventory([subsystem(SUBSYSTEM, [namespace(1)])], 1)
}

fn check(
    change: impl FnOnce(&mut ConnectCommand, &mut ConnectData),
) -> Result<AdminAdmission, ConnectRefusal> {
    let (mut command, mut data) = admin_connect();
    change(&mut command, &mut data);
    check_admin(&command, &data, &served(), &portal("0.0.0.0:4420"))
}

fn admit(
    fixture: &Fixture,
    change: impl FnOnce(&mut ConnectCommand, &mut ConnectData),
) -> Result<IoQueueAdmission, ConnectRefusal> {
    let (mut command, mut data) = io_connect(1);
    change(&mut command, &mut data);
    fixture.controller.admit_io_queue(&command, &data)
}

const fn invalid(parameter: InvalidParameter) -> ConnectRefusal {
    ConnectRefusal::invalid(parameter)
}

#[test]
fn an_admin_connect_in_order_is_admitted() {
    let want = AdminAdmission {
        kind: ControllerKind::Io,
        host_nqn: nqn(HOST),
        host_id: HOST_ID,
        subsystem: nqn(SUBSYSTEM),
        kato_ms: 5000,
        entries: 32,
        flow_control: FlowControl::Enabled,
    };
    assert_eq!(check(|_, _| ()), Ok(want.clone()));
    let without = AdminAdmission { flow_control: FlowControl::Disabled, ..want };
    assert_eq!(check(|command, _| command.cattr = 1 << 2), Ok(without));
}

#[test]
fn each_wrong_field_of_an_admin_connect_is_named() {
    assert_eq!(
        check(|command, _| command.recfmt = 1.into()),
        Err(ConnectRefusal::status(Status::CONNECT_INCOMPATIBLE_FORMAT))
    );
    assert_eq!(check(|command, _| command.qid = 1.into()), Err(invalid(InvalidParameter::QID)));
    for size in [0, limits::ADMIN_QUEUE_ENTRIES_MAX, 0xFFFF] {
        assert_eq!(check(|c, _| c.sqsize = size.into()), Err(invalid(InvalidParameter::SQSIZE)));
    }
    for cntlid in [0, 5, 0xFFFE] {
        assert_eq!(check(|_, data| data.cntlid = cntlid.into()), Err(invalid(InvalidParameter::CNTLID)));
    }
    assert_eq!(check(|_, data| data.hostid = [0; 16]), Err(invalid(InvalidParameter::HOSTID)));
    assert_eq!(check(|_, data| data.hostnqn = [0; 256]), Err(invalid(InvalidParameter::HOSTNQN)));
    assert_eq!(check(|_, data| data.hostnqn = [b'a'; 256]), Err(invalid(InvalidParameter::HOSTNQN)));
    assert_eq!(check(|_, data| data.subnqn = [b'n'; 256]), Err(invalid(InvalidParameter::SUBNQN)));
    let unknown = nqn("nqn.2026-01.example:unknown").to_field();
    let refusal = check(|_, data| data.subnqn = unknown);
    // IPO 256 in the data (IATTR 1).
    assert_eq!(refusal, Err(ConnectRefusal { status: Status::CONNECT_INVALID_PARAMETERS, dw0: 0x0001_0100 }));
}

#[test]
fn a_host_that_is_not_listed_is_denied() {
    let denied = Err(ConnectRefusal::status(Status::CONNECT_INVALID_HOST));
    let stranger = nqn("nqn.2026-01.example:stranger").to_field();
    assert_eq!(check(|_, data| data.hostnqn = stranger), denied);
    let (command, data) = admin_connect();
    for (hosts, admitted) in [(HostAccess::default(), false), (HostAccess::Any, true)] {
        let of = Subsystem { hosts, ..subsystem(SUBSYSTEM, []) };
        let result = check_admin(&command, &data, &inventory([of], 1), &portal("0.0.0.0:4420"));
        assert_eq!(result.is_ok(), admitted);
    }
}

#[test]
fn discovery_is_for_everybody_and_alone_on_its_port() {
    let (command, mut data) = admin_connect();
    let mut port = portal("0.0.0.0:8009");
    port.discovery_only = true;
    assert_eq!(check_admin(&command, &data, &served(), &port), Err(invalid(InvalidParameter::SUBNQN)));
    data.subnqn = Nqn::discovery().to_field();
    data.hostnqn = nqn("nqn.2026-01.example:stranger").to_field();
    for port in [port, portal("0.0.0.0:4420")] {
        let admitted = check_admin(&command, &data, &served(), &port).expect("admitted");
        assert_eq!(admitted.kind, ControllerKind::Discovery);
    }
}

#[test]
fn an_io_connect_must_match_its_controller() {
    let fixture = Fixture::io();
    let other = nqn("nqn.2026-01.example:other").to_field();
    assert_eq!(
        admit(&fixture, |command, _| command.recfmt = 1.into()),
        Err(ConnectRefusal::status(Status::CONNECT_INCOMPATIBLE_FORMAT))
    );
    for cntlid in [0, 0xFFFF] {
        let refusal = admit(&fixture, |_, data| data.cntlid = cntlid.into());
        assert_eq!(refusal, Err(ConnectRefusal::UNKNOWN_CONTROLLER));
    }
    assert_eq!(admit(&fixture, |_, data| data.subnqn = other), Err(invalid(InvalidParameter::SUBNQN)));
    assert_eq!(admit(&fixture, |_, data| data.hostnqn = other), Err(invalid(InvalidParameter::HOSTNQN)));
    assert_eq!(admit(&fixture, |_, data| data.hostid = [8; 16]), Err(invalid(InvalidParameter::HOSTID)));
    assert_eq!(fixture.controller.io_queue_count(), 0);
}

#[test]
fn an_io_queue_has_a_free_number_and_a_size_within_mqes() {
    let fixture = Fixture::io();
    for qid in [0, limits::IO_QUEUES_MAX + 1, 0xFFFF] {
        assert_eq!(admit(&fixture, |c, _| c.qid = qid.into()), Err(invalid(InvalidParameter::QID)));
    }
    for size in [0, limits::QUEUE_ENTRIES_MAX, 0xFFFF] {
        assert_eq!(admit(&fixture, |c, _| c.sqsize = size.into()), Err(invalid(InvalidParameter::SQSIZE)));
    }
    let admitted = admit(&fixture, |c, _| c.sqsize = (limits::QUEUE_ENTRIES_MAX - 1).into());
    let want = IoQueueAdmission {
        qid: Qid(1),
        entries: limits::QUEUE_ENTRIES_MAX,
        flow_control: FlowControl::Enabled,
    };
    assert_eq!(admitted, Ok(want));
    let again = fixture.connect_queue(1);
    assert_eq!(again, Err(ConnectRefusal::status(Status::COMMAND_SEQUENCE_ERROR)));
    fixture.controller.release_io_queue(Qid(1));
    fixture.connect_queue(1).expect("free again");
    fixture.connect_queue(limits::IO_QUEUES_MAX).expect("the last one");
    assert_eq!(fixture.controller.io_queue_count(), 2);
}

#[test]
fn an_io_connect_needs_an_enabled_controller_with_the_right_entry_sizes() {
    let fixture = Fixture::new(ControllerKind::Io, served(), 0);
    let out_of_sequence = Err(ConnectRefusal::status(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(fixture.connect_queue(1), out_of_sequence);
    for cc in [1, 0x0040_0001, 0x0006_0001, 0x0064_0001] {
        fixture.set_cc(cc).expect("enabled");
        assert_eq!(fixture.connect_queue(1), Err(invalid(InvalidParameter::QID)), "CC {cc:#x}");
        fixture.set_cc(0).expect("disabled");
    }
    fixture.enable();
    fixture.connect_queue(1).expect("admitted");
    fixture.set_cc(CC_ENABLE | 1 << 14).expect("shut down");
    assert_eq!(fixture.connect_queue(2), out_of_sequence);
}

#[test]
fn an_io_connect_to_a_dying_controller_is_refused() {
    let fixture = Fixture::io();
    fixture.controller.end();
    assert_eq!(fixture.connect_queue(1), Err(ConnectRefusal::UNKNOWN_CONTROLLER));
}

#[test]
fn a_host_that_lost_its_permission_gets_no_further_queue() {
    let fixture = Fixture::io();
    let mut closed = subsystem(SUBSYSTEM, [namespace(1)]);
    closed.hosts = HostAccess::default();
    assert_eq!(fixture.controller.inventory_changed(&inventory([closed], 2)), Access::Lost);
    assert_eq!(fixture.connect_queue(1), Err(ConnectRefusal::status(Status::CONNECT_INVALID_HOST)));
}

#[test]
fn a_host_that_was_denied_on_its_way_to_the_owner_core_cannot_enable_its_controller() {
    let closed = Subsystem { hosts: HostAccess::default(), ..subsystem(SUBSYSTEM, [namespace(1)]) };
    for served in [inventory([closed], 2), inventory([], 2)] {
        let fixture = Fixture::new(ControllerKind::Io, served, 0);
        assert_eq!(fixture.controller.access(), Access::Lost);
        assert_eq!(fixture.set_cc(CC_ENABLE), Err(Status::OPERATION_DENIED));
    }
}

#[test]
fn a_discovery_controller_has_no_io_queues() {
    let fixture = Fixture::discovery(served());
    let refusal = admit(&fixture, |_, data| data.subnqn = Nqn::discovery().to_field());
    assert_eq!(refusal, Err(invalid(InvalidParameter::QID)));
}

proptest! {
    #[test]
    fn any_bytes_get_an_answer(
        command in prop::collection::vec(any::<u8>(), 64),
        data in prop::collection::vec(any::<u8>(), 1024),
    ) {
        use ashlar_nvme::Wire;
        let command = ConnectCommand::read_from(&command).expect("64 bytes");
        let data = ConnectData::read_from(&data).expect("1024 bytes");
        prop_assert!(check_admin(&command, &data, &served(), &portal("0.0.0.0:4420")).is_err());
        prop_assert!(Fixture::io().controller.admit_io_queue(&command, &data).is_err());
    }
}
