//! Whole entries and PDUs, byte by byte, written out by hand from the specifications.

use ashlar_nvme::admin::{GetLogPageCommand, IdentifyCommand};
use ashlar_nvme::command::{Cqe, FusedOperation};
use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::fabrics::{
    ConnectAttributes, ConnectCommand, ConnectResponse, InvalidParameter, PropertyCommand, PropertySize,
};
use ashlar_nvme::identify::Cns;
use ashlar_nvme::ids::{CommandId, Lba, Nsid, Qid};
use ashlar_nvme::log::LogId;
use ashlar_nvme::nvm::{RwCommand, RwControl};
use ashlar_nvme::opcode::NvmOpcode;
use ashlar_nvme::pdu::data::Last;
use ashlar_nvme::pdu::header::Framing;
use ashlar_nvme::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, DigestGrant, DigestUse, Direction, H2cData, HeaderError, IcReq, IcResp,
    Pda, R2t, TermReq,
};
use ashlar_nvme::registers::{Cap, Cc, Crto, Csts, Vs};
use ashlar_nvme::sgl::DataPointer;
use ashlar_nvme::status::{Retry, Status, StatusField};
use ashlar_nvme::wire::Wire;

/// `hex` with spaces, followed by zeroes up to `len` bytes.
fn bytes(hex: &str, len: usize) -> Vec<u8> {
    let mut out: Vec<u8> =
        hex.split_whitespace().map(|b| u8::from_str_radix(b, 16).expect("two hex digits")).collect();
    out.resize(len, 0);
    out
}

const ALL_ON: Framing =
    Framing { header_digest: DigestUse::On, data_digest: DigestUse::On, alignment: Pda::NONE };

#[test]
fn read_with_fua() {
    let rw = RwCommand { slba: Lba(0x1_0000_0002), nlb: 8, control: RwControl(0).with_fua(true) };
    let sqe = rw.to_sqe(NvmOpcode::Read, CommandId(0x1234), Nsid(1), DataPointer::Transport { len: 4096 });
    let want = "02 40 34 12  01 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00 \
                00 00 00 00  00 00 00 00  00 10 00 00  00 00 00 5a \
                02 00 00 00  01 00 00 00  07 00 00 40";
    assert_eq!(sqe.bytes(), bytes(want, 64));
}

#[test]
fn fused_compare_in_capsule() {
    let rw = RwCommand { slba: Lba(3), nlb: 1, control: RwControl(0) };
    let data = DataPointer::InCapsule { offset: 0, len: 512 };
    let mut sqe = rw.to_sqe(NvmOpcode::Compare, CommandId(1), Nsid(2), data);
    sqe.set_fused(FusedOperation::First);
    let want = "05 41 01 00  02 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00 \
                00 00 00 00  00 00 00 00  00 02 00 00  00 00 00 01  03";
    assert_eq!(sqe.bytes(), bytes(want, 64));
}

#[test]
fn identify_controller_command() {
    let sqe = IdentifyCommand::new(Cns::Controller).to_sqe(CommandId(9), Nsid::NONE);
    let want = "06 40 09 00  00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00 \
                00 00 00 00  00 00 00 00  00 10 00 00  00 00 00 5a  01";
    assert_eq!(sqe.bytes(), bytes(want, 64));
}

#[test]
fn get_log_page_command() {
    let sqe = GetLogPageCommand::new(LogId::Discovery, 1024, 0x4_0000).to_sqe(CommandId(9), Nsid::NONE);
    let want = "02 40 09 00  00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00 \
                00 00 00 00  00 00 00 00  00 00 04 00  00 00 00 5a  70 00 ff ff  00 00 00 00  00 04";
    assert_eq!(sqe.bytes(), bytes(want, 64));
}

#[test]
fn connect_command() {
    let cattr = ConnectAttributes(0).with_disable_flow_control(true);
    let c = ConnectCommand::new(CommandId(7), Qid(1), 127, cattr, 120_000);
    let want = "7f 40 07 00  01 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00 \
                00 00 00 00  00 00 00 00  00 04 00 00  00 00 00 01  00 00 01 00  7f 00 04 00  c0 d4 01 00";
    assert_eq!(c.bytes(), bytes(want, 64));
    assert_eq!(ConnectCommand::of(c.as_sqe()), &c);
}

#[test]
fn property_set_of_cc() {
    let cc = Cc(0).with_en(true).with_iosqes(6).with_iocqes(4);
    let c = PropertyCommand::set(CommandId(2), 0x14, PropertySize::Four, u64::from(cc.0));
    let want = "7f 40 02 00  00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00 \
                00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00  14 00 00 00  01 00 46 00";
    assert_eq!(c.bytes(), bytes(want, 64));
}

#[test]
fn completion_with_do_not_retry() {
    let cqe = Cqe::new(CommandId(0x0102), 5, Status::LBA_OUT_OF_RANGE);
    assert_eq!(cqe.bytes(), bytes("00 00 00 00 00 00 00 00 05 00 00 00 02 01 00 81", 16));
    let cqe = Cqe::new(CommandId(1), Cqe::SQHD_DISABLED, Status::ANA_INACCESSIBLE).with_dw0(0x55);
    assert_eq!(cqe.bytes(), bytes("55 00 00 00 00 00 00 00 ff ff 00 00 01 00 04 06", 16));
}

#[test]
fn connect_invalid_parameters_name_the_field() {
    let cqe = InvalidParameter::HOSTNQN.completion(CommandId(0), 0);
    assert_eq!(cqe.bytes(), bytes("00 02 01 00 00 00 00 00 00 00 00 00 00 00 04 83", 16));
    assert_eq!(InvalidParameter::from_dw0(0x0001_0200), InvalidParameter::HOSTNQN);
    assert_eq!(InvalidParameter::SQSIZE.dw0(), 44);
}

#[test]
fn connect_response_asks_for_authentication() {
    let r = ConnectResponse(0).with_cntlid(0x1234).with_atr(true);
    assert_eq!(r.0, 0x0002_1234);
}

#[test]
fn icreq_and_icresp() {
    let digests = DigestGrant { header: DigestUse::On, data: DigestUse::On };
    let pda = Pda::new(1).expect("1 is at most 31");
    let want = "00 00 80 00  80 00 00 00  00 00 01 03  03 00 00 00";
    assert_eq!(IcReq::new(pda, digests, 4).bytes(), bytes(want, 128));
    let want = "01 00 80 00  80 00 00 00  00 00 00 03  00 00 02 00";
    assert_eq!(IcResp::new(Pda::NONE, digests, 0x2_0000).bytes(), bytes(want, 128));
}

#[test]
fn capsule_with_data_and_digests() {
    let sqe = RwCommand { slba: Lba(0), nlb: 1, control: RwControl(0) }.to_sqe(
        NvmOpcode::Write,
        CommandId(0),
        Nsid(1),
        DataPointer::InCapsule { offset: 0, len: 4096 },
    );
    let head = CapsuleCmd::new(ALL_ON, sqe, 4096);
    assert_eq!(head.bytes()[..8], bytes("04 03 48 4c  50 10 00 00", 8));
    let head = CapsuleCmd::new(Framing::PLAIN, sqe, 0);
    assert_eq!(head.bytes()[..8], bytes("04 00 48 00  48 00 00 00", 8));
    let aligned = Framing { alignment: Pda::new(31).expect("31 is allowed"), ..ALL_ON };
    assert_eq!(CapsuleCmd::new(aligned, sqe, 4).ch.bytes(), bytes("04 03 48 80  88 00 00 00", 8));
    assert_eq!(aligned.padding(ashlar_nvme::pdu::PduKind::CapsuleCmd, 4), 0x80 - 0x4C);
}

#[test]
fn response_and_data_pdus() {
    let resp = CapsuleResp::new(ALL_ON, Cqe::new(CommandId(1), 2, Status::SUCCESS));
    let want = "05 01 18 00  1c 00 00 00  00 00 00 00 00 00 00 00  02 00 00 00  01 00 00 00";
    assert_eq!(resp.bytes(), bytes(want, 24));
    let c2h = C2hData::new(Framing::PLAIN, CommandId(0x10), 0x1000, 0x2000, Last::YesWithSuccess);
    let want = "07 0c 18 18  18 20 00 00  10 00 00 00  00 10 00 00  00 20 00 00";
    assert_eq!(c2h.bytes(), bytes(want, 24));
    let h2c = H2cData::new(ALL_ON, CommandId(0x10), 0x77, 0, 0x1000, Last::Yes);
    let want = "06 07 18 1c  20 10 00 00  10 00 77 00  00 00 00 00  00 10 00 00";
    assert_eq!(h2c.bytes(), bytes(want, 24));
    let r2t = R2t::new(ALL_ON, CommandId(0x10), 0x77, 0x2000, 0x1000);
    let want = "09 01 18 00  1c 00 00 00  10 00 77 00  00 20 00 00  00 10 00 00";
    assert_eq!(r2t.bytes(), bytes(want, 24));
}

#[test]
fn termination_echoes_the_header_up_to_128_bytes() {
    let mut out = [0xEE; 200];
    let error = HeaderError::header_digest(0xAABB_CCDD);
    let n = TermReq::put_with(Direction::ControllerToHost, error, &[0x11; 300], &mut out).expect("room");
    assert_eq!(n, 152);
    assert_eq!(out[..24], bytes("03 00 18 00  98 00 00 00  03 00 dd cc bb aa", 24));
    assert_eq!(out[24..152], [0x11; 128]);
    assert_eq!(out[152..], [0xEE; 48]);
    let n = TermReq::put_with(Direction::HostToController, HeaderError::invalid(3), &[9; 8], &mut out)
        .expect("room");
    assert_eq!(out[..n], [bytes("02 00 18 00  20 00 00 00  01 00 03", 24), vec![9; 8]].concat());
    assert!(TermReq::put_with(Direction::HostToController, error, &[9; 8], &mut [0; 31]).is_err());
}

#[test]
fn registers_have_their_bits() {
    let cap = Cap(0).with_mqes(1023).with_cqr(true).with_to(30).with_css(0x41).with_crwms(true);
    assert_eq!(cap.0, 0x0800_0820_1E01_03FF);
    assert_eq!(Cc(0x0046_0001), Cc(0).with_en(true).with_iosqes(6).with_iocqes(4));
    assert_eq!(Cc(0xC000).shn(), 3);
    assert_eq!(Csts(0).with_rdy(true).with_shst(2).0, 9);
    assert_eq!(Crto(0).with_crwmt(10).with_crimt(1).0, 0x0001_000A);
    assert_eq!((Vs::V2_0.mjr(), Vs::V2_0.mnr(), Vs::V1_4.mnr()), (2, 0, 4));
}

#[test]
fn events_have_their_dwords() {
    assert_eq!(AsyncEvent::NamespaceAttributeChanged.dw0(), 0x0004_0002);
    assert_eq!(AsyncEvent::AnaChange.dw0(), 0x000C_0302);
    assert_eq!(AsyncEvent::DiscoveryLogChange.dw0(), 0x0070_F002);
    for event in AsyncEvent::ALL {
        assert_eq!(AsyncEvent::from_dw0(event.dw0()), Ok(*event));
    }
}

#[test]
fn retry_rules_follow_who_is_to_blame() {
    // NVME N12.
    for status in [
        Status::INVALID_FIELD,
        Status::INVALID_OPCODE,
        Status::LBA_OUT_OF_RANGE,
        Status::CONNECT_INVALID_HOST,
        Status::CONNECT_INVALID_PARAMETERS,
    ] {
        assert!(status.dnr(), "{status}");
    }
    for status in [
        Status::NAMESPACE_NOT_READY,
        Status::CONNECT_CONTROLLER_BUSY,
        Status::COMMAND_INTERRUPTED,
        Status::TRANSIENT_TRANSPORT_ERROR,
        Status::INTERNAL_PATH_ERROR,
        Status::ANA_TRANSITION,
        Status::from_parts(3, 0x42),
    ] {
        assert!(!status.dnr(), "{status}");
    }
    let field = StatusField::new(Status::COMPARE_FAILURE, Retry::Futile).with_more().with_crd(2);
    assert_eq!(field.0, 0b1110_0101_0000_1010);
    assert_eq!(
        (field.status(), field.dnr(), field.more(), field.crd()),
        (Status::COMPARE_FAILURE, true, true, 2)
    );
}

#[test]
fn statuses_are_distinct_and_named() {
    let mut codes: Vec<u16> = Status::ALL.iter().map(|s| s.code()).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), Status::ALL.len());
    for status in Status::ALL {
        let name = status.name().expect("listed");
        assert!(status.to_string().starts_with(name), "{status}");
    }
    assert_eq!(Status::CONNECT_INVALID_HOST.to_string(), "Connect Invalid Host");
    assert_eq!(
        Status::CONNECT_INVALID_PARAMETERS.to_string(),
        "Attempted Write to Read Only Range (of Fabrics: Connect Invalid Parameters)"
    );
    assert_eq!(Status::from_parts(7, 0xAB).to_string(), "status 7h/abh");
}
