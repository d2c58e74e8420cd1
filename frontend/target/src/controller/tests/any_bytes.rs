//! Any bytes as commands: always an answer, never a panic, data exactly as long as asked for.

use ashlar_nvme::Wire;
use proptest::prelude::*;

use super::*;

/// Admin commands that exist, so that their insides are reached.
const OPCODES: [u8; 7] = [0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18];

fn check(fixture: &Fixture, sqe: &Sqe, data: &[u8]) -> Result<(), TestCaseError> {
    // A request for events may wait.
    if let Poll::Ready(reply) = poll_once(pin!(fixture.controller.execute(sqe, data))) {
        if let Some(data) = &reply.data {
            prop_assert_eq!(reply.status, Status::SUCCESS);
            prop_assert_eq!(data.len(), sqe.dptr.length.get() as usize);
        }
    } else {
        prop_assert_eq!(sqe.opcode, 0x0C);
    }
    Ok(())
}

fn fixtures() -> [Fixture; 3] {
    let served = || inventory([subsystem(SUBSYSTEM, [namespace(1), namespace(2)])], 1);
    let disabled = Fixture::new(ControllerKind::Io, served(), 0);
    [Fixture::io(), Fixture::discovery(served()), disabled]
}

proptest! {
    #[test]
    fn any_entry_is_answered(bytes in prop::collection::vec(any::<u8>(), 64), data in any::<Vec<u8>>()) {
        let sqe = Sqe::read_from(&bytes).expect("64 bytes");
        for fixture in fixtures() {
            check(&fixture, &sqe, &data)?;
        }
    }

    #[test]
    fn any_arguments_of_a_known_command_are_answered(
        opcode in prop::sample::select(OPCODES.to_vec()),
        nsid in prop_oneof![0_u32..4, Just(u32::MAX), any::<u32>()],
        cdw10 in prop_oneof![0_u32..0x100, any::<u32>(), (0_u32..0x90).prop_map(|low| low | 0x00FF_0000)],
        cdw11 in prop_oneof![0_u32..4, any::<u32>()],
        offset in prop_oneof![0_u32..5000, any::<u32>()],
        len in prop_oneof![Just(0_u32), Just(16), Just(512), Just(1024), Just(4096), any::<u32>()],
        data in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let mut sqe = Sqe::new(opcode, CommandId(1), Nsid(nsid));
        sqe.cdw10 = cdw10.into();
        sqe.cdw11 = cdw11.into();
        sqe.cdw12 = offset.into();
        sqe.dptr = ashlar_nvme::sgl::SglDescriptor::transport(len);
        for fixture in fixtures() {
            check(&fixture, &sqe, &data)?;
        }
    }

    #[test]
    fn any_property_access_is_answered(
        offset in prop_oneof![0_u32..0x80, any::<u32>()],
        values in any::<[u64; 4]>(),
    ) {
        let fixture = Fixture::io();
        for value in values {
            for size in [PropertySize::Four, PropertySize::Eight] {
                let _ = fixture.controller.property_set(offset, size, value);
                let _ = fixture.controller.property_get(offset, size);
            }
            let _ = fixture.set_cc(value);
            prop_assert!(fixture.csts() & !0b1101 == 0);
        }
    }
}

#[test]
fn opcodes_that_do_not_exist_are_invalid_opcodes_with_dnr() {
    let fixture = Fixture::io();
    for opcode in (0..=0xFF).filter(|opcode| !OPCODES.contains(opcode)) {
        let reply = fixture.ask(&Sqe::new(opcode, CommandId(1), Nsid(1)));
        assert_eq!(reply.status, Status::INVALID_OPCODE, "{opcode:#04x}");
        assert!(reply.status.dnr());
    }
}

#[test]
fn fused_admin_commands_are_invalid_fields() {
    let fixture = Fixture::io();
    for opcode in OPCODES {
        for fused in 1..=3 {
            let mut sqe = Sqe::new(opcode, CommandId(1), Nsid::NONE);
            sqe.flags |= fused;
            assert_eq!(fixture.ask(&sqe).status, Status::INVALID_FIELD, "{opcode:#04x}");
        }
    }
}
