//! Properties of builders and decoders: what is built is read back, and one wrong field is named exactly.

use ashlar_nvme::admin::{AbortCommand, GetLogPageCommand, IdentifyCommand, OffsetType, RetainEvent};
use ashlar_nvme::command::{Cqe, FusedOperation, Psdt, Sqe};
use ashlar_nvme::fabrics::{ConnectAttributes, ConnectCommand, ConnectData, InvalidParameter};
use ashlar_nvme::identify::{
    ControllerList, NamespaceList, NsIdDescriptor, NsIdDescriptors, NsIdWriter, ascii_field,
};
use ashlar_nvme::ids::{Cntlid, CommandId, Eui64, HostId, Lba, Nguid, Nqn, Nsid, Qid};
use ashlar_nvme::log::ana::{AnaGroups, ana_log_bytes};
use ashlar_nvme::log::{AnaGroupDescriptor, AnaLogHeader, AnaState};
use ashlar_nvme::nvm::{DsmAttributes, DsmCommand, DsmRange, RwCommand, RwControl};
use ashlar_nvme::opcode::{AdminOpcode, DataDirection, FabricsType, NvmOpcode};
use ashlar_nvme::pdu::data::Last;
use ashlar_nvme::pdu::header::Framing;
use ashlar_nvme::pdu::*;
use ashlar_nvme::registers::{Cap, Cc};
use ashlar_nvme::sgl::{DataPointer, SglDescriptor};
use ashlar_nvme::status::{Retry, Status, StatusField};
use ashlar_nvme::wire::{U32, Wire};
use proptest::prelude::*;

fn digest_use() -> impl Strategy<Value = DigestUse> {
    any::<bool>().prop_map(DigestUse::from)
}

fn framing() -> impl Strategy<Value = Framing> {
    (digest_use(), digest_use(), 0..=Pda::MAX).prop_map(|(header_digest, data_digest, pda)| Framing {
        header_digest,
        data_digest,
        alignment: Pda::new(pda).expect("in range"),
    })
}

/// Rules under which everything that `framing` builds is right.
fn rules_for(framing: Framing, direction: Direction) -> HeaderRules {
    HeaderRules {
        direction,
        phase: Phase::Running,
        header_digest: framing.header_digest,
        data_digest: framing.data_digest,
        alignment: framing.alignment,
        in_capsule_max: 16 * 1024,
        data_max: 128 * 1024,
    }
}

fn data_pdu_kind() -> impl Strategy<Value = PduKind> {
    prop_oneof![Just(PduKind::CapsuleCmd), Just(PduKind::H2cData), Just(PduKind::C2hData)]
}

fn direction_of(kind: PduKind) -> Direction {
    match kind {
        PduKind::IcReq | PduKind::H2cTermReq | PduKind::CapsuleCmd | PduKind::H2cData => {
            Direction::HostToController
        }
        _ => Direction::ControllerToHost,
    }
}

proptest! {
    #[test]
    fn what_framing_builds_the_peer_takes(
        f in framing(), kind in data_pdu_kind(), dwords in 0u32..4096, last in any::<bool>(),
    ) {
        let len = dwords * 4;
        prop_assume!(len > 0 || kind == PduKind::CapsuleCmd);
        let extra = if last && kind != PduKind::CapsuleCmd { flags::LAST_PDU } else { 0 };
        let ch = f.header(kind, extra, len);
        let layout = rules_for(f, direction_of(kind)).check(&ch).expect("valid");
        prop_assert_eq!(layout.data_len, len);
        prop_assert_eq!(layout.plen(), ch.plen.get());
        prop_assert_eq!(layout.padding(), u32::from(f.padding(kind, len)));
        if len > 0 {
            prop_assert_eq!(layout.data_offset % f.alignment.bytes(), 0);
            prop_assert!(layout.padding() < 128);
        }
    }

    #[test]
    fn data_pdus_come_back(
        f in framing(), cid: u16, ttag: u16, at in 0u32..0x4000_0000, dwords in 1u32..0x8000,
    ) {
        let (datao, datal) = (at & !3, dwords * 4);
        let p = H2cData::new(f, CommandId(cid), ttag, datao, datal, Last::Yes);
        let layout = rules_for(f, Direction::HostToController).check(&p.ch).expect("valid");
        prop_assert_eq!(p.check(&layout), Ok(()));
        prop_assert!(p.is_last());
        prop_assert_eq!(H2cData::read_from(p.bytes()), Ok(p));
        for last in [Last::No, Last::Yes, Last::YesWithSuccess] {
            let p = C2hData::new(f, CommandId(cid), datao, datal, last);
            let layout = rules_for(f, Direction::ControllerToHost).check(&p.ch).expect("valid");
            prop_assert_eq!(p.check(&layout), Ok(()));
            prop_assert_eq!(p.last(), last);
        }
        let p = R2t::new(f, CommandId(cid), ttag, datao, datal);
        prop_assert!(rules_for(f, Direction::ControllerToHost).check(&p.ch).is_ok());
        prop_assert_eq!(p.check(), Ok(()));
    }

    #[test]
    fn every_wrong_hlen_is_named(f in framing(), kind in data_pdu_kind(), hlen: u8) {
        let mut ch = f.header(kind, 0, 4);
        prop_assume!(ch.hlen != hlen);
        ch.hlen = hlen;
        prop_assert_eq!(rules_for(f, direction_of(kind)).check(&ch), Err(HeaderError::invalid(2)));
    }

    #[test]
    fn every_wrong_pdo_is_named(f in framing(), kind in data_pdu_kind(), pdo: u8) {
        let mut ch = f.header(kind, 0, 1024);
        prop_assume!(pdo < ch.pdo || u32::from(pdo) % f.alignment.bytes() != 0);
        ch.pdo = pdo;
        prop_assert_eq!(rules_for(f, direction_of(kind)).check(&ch), Err(HeaderError::invalid(3)));
    }

    #[test]
    fn a_plen_without_room_for_data_is_named(f in framing(), kind in data_pdu_kind(), plen in 0u32..300) {
        let mut ch = f.header(kind, 0, 4);
        let head = u32::from(kind.hlen()) + f.header_digest.bytes();
        prop_assume!(plen < ch.plen.get() - 3 && plen != head);
        ch.plen = U32::new(plen);
        prop_assert_eq!(rules_for(f, direction_of(kind)).check(&ch), Err(HeaderError::invalid(4)));
    }

    #[test]
    fn every_digest_flag_that_was_not_negotiated_is_named(
        f in framing(), kind in data_pdu_kind(), flip in 1u8..4,
    ) {
        let mut ch = f.header(kind, 0, 512);
        ch.flags ^= flip;
        prop_assert_eq!(rules_for(f, direction_of(kind)).check(&ch), Err(HeaderError::invalid(1)));
    }

    #[test]
    fn undefined_types_are_named(pdu_type: u8, f in framing(), from_host: bool) {
        prop_assume!(PduKind::try_from(pdu_type).is_err());
        let mut ch = f.header(PduKind::CapsuleCmd, 0, 0);
        ch.pdu_type = pdu_type;
        let direction = if from_host { Direction::HostToController } else { Direction::ControllerToHost };
        prop_assert_eq!(rules_for(f, direction).check(&ch), Err(HeaderError::invalid(0)));
    }

    #[test]
    fn data_beyond_the_limit_is_refused(f in framing(), over in 1u32..1_000_000) {
        let rules = rules_for(f, Direction::HostToController);
        let ch = f.header(PduKind::H2cData, 0, rules.data_max + over);
        prop_assert_eq!(rules.check(&ch), Err(HeaderError::limit_exceeded()));
        let ch = f.header(PduKind::CapsuleCmd, 0, rules.in_capsule_max + over);
        prop_assert_eq!(rules.check(&ch), Err(HeaderError::limit_exceeded()));
    }

    #[test]
    fn connection_setup_comes_back(
        hpda in 0..=Pda::MAX, header: bool, data: bool, r2t in 1u32.., max in 4096u32..,
    ) {
        let pda = Pda::new(hpda).expect("in range");
        let digests = DigestGrant { header: DigestUse::from(header), data: DigestUse::from(data) };
        let p = IcReq::new(pda, digests, r2t).params().expect("valid");
        prop_assert_eq!((p.hpda, p.digests, p.r2t_max), (pda, digests, u64::from(r2t)));
        let p = IcResp::new(pda, digests, max).params().expect("valid");
        prop_assert_eq!((p.cpda, p.digests, p.maxh2cdata), (pda, digests, max & !3));
    }

    #[test]
    fn ranges_come_back(slba: u64, nlb in 1u32..=65536, fua: bool, deac: bool, cid: u16, nsid: u32) {
        let control = RwControl(0).with_fua(fua).with_deac(deac).with_nlb((nlb - 1) as u16);
        let rw = RwCommand { slba: Lba(slba), nlb, control };
        let sqe = rw.to_sqe(NvmOpcode::WriteZeroes, CommandId(cid), Nsid(nsid), DataPointer::None);
        prop_assert_eq!(RwCommand::from_sqe(&sqe), rw);
        prop_assert_eq!((sqe.command_id(), sqe.namespace()), (CommandId(cid), Nsid(nsid)));
    }

    #[test]
    fn a_range_fits_exactly_up_to_the_end(slba: u64, nlb in 1u32..=65536, off in -2i128..=2, any_size: u64) {
        let rw = RwCommand { slba: Lba(slba), nlb, control: RwControl(0) };
        let dsm = DsmRange::new(Lba(slba), nlb);
        let end = u128::from(slba) + u128::from(nlb);
        // Sizes around the range's end, where a wrong comparison shows, and any size.
        let near = u64::try_from(end.saturating_add_signed(off)).unwrap_or(u64::MAX);
        for nsze in [near, any_size] {
            prop_assert_eq!(rw.fits(nsze), end <= u128::from(nsze));
            prop_assert_eq!(dsm.fits(nsze), end <= u128::from(nsze));
        }
    }

    #[test]
    fn dataset_management_comes_back(nr in 1u16..=256, ad: bool) {
        let dsm = DsmCommand { nr, attributes: DsmAttributes(0).with_ad(ad) };
        let sqe = dsm.to_sqe(CommandId(1), Nsid(1), DataPointer::Transport { len: dsm.bytes() });
        prop_assert_eq!(DsmCommand::from_sqe(&sqe), dsm);
    }

    #[test]
    fn data_pointers_come_back(offset in 0u32..8192, len in 1u32..8192, mptr in any::<bool>()) {
        let mut sqe = Sqe::new(1, CommandId(0), Nsid(1));
        sqe.set_psdt(if mptr { Psdt::SglMptrSegment } else { Psdt::SglMptrAddress });
        sqe.set_fused(FusedOperation::Second);
        sqe.dptr = SglDescriptor::in_capsule(u64::from(offset), len);
        let want = if offset >= 8192 {
            Err(Status::SGL_OFFSET_INVALID)
        } else if offset + len > 8192 {
            Err(Status::DATA_SGL_LENGTH_INVALID)
        } else {
            Ok(DataPointer::InCapsule { offset, len })
        };
        prop_assert_eq!(DataPointer::parse(&sqe, 8192), want);
        sqe.dptr = SglDescriptor::transport(len);
        prop_assert_eq!(DataPointer::parse(&sqe, 0), Ok(DataPointer::Transport { len }));
        prop_assert_eq!(sqe.fused(), Ok(FusedOperation::Second));
    }

    #[test]
    fn other_descriptors_are_refused(identifier: u8, len: u32) {
        prop_assume!(identifier != 0x01 && identifier != 0x5A);
        let mut d = SglDescriptor::transport(len);
        d.identifier = identifier;
        prop_assert_eq!(d.locate(u32::MAX), Err(Status::SGL_DESCRIPTOR_TYPE_INVALID));
    }

    #[test]
    fn log_requests_come_back(
        lid: u8, lsp in 0u8..128, dwords in 1u64..=1 << 32, lpo: u64, lsi: u16, csi: u8,
        retain: bool, index: bool,
    ) {
        let want = GetLogPageCommand {
            lid,
            lsp,
            rae: if retain { RetainEvent::Retain } else { RetainEvent::Clear },
            len: dwords * 4,
            lpo,
            lsi,
            ot: if index { OffsetType::Index } else { OffsetType::Bytes },
            csi,
            uuid_index: 3,
        };
        prop_assert_eq!(GetLogPageCommand::from_sqe(&want.to_sqe(CommandId(0), Nsid(1))), want);
    }

    #[test]
    fn admin_commands_come_back(cns: u8, cntid: u16, cnssid: u16, csi: u8, sqid: u16, cid: u16) {
        let want = IdentifyCommand { cns, cntid: Cntlid(cntid), cnssid, csi, uuid_index: 0 };
        prop_assert_eq!(IdentifyCommand::from_sqe(&want.to_sqe(CommandId(0), Nsid(1))), want);
        let want = AbortCommand { sqid: Qid(sqid), cid: CommandId(cid) };
        prop_assert_eq!(AbortCommand::from_sqe(&want.to_sqe(CommandId(0))), want);
    }

    #[test]
    fn connects_come_back(
        hostid: [u8; 16], cntlid: u16, qid: u16, sqsize: u16, kato: u32, name in "[a-z0-9:]{1,150}",
    ) {
        let nqn = Nqn::parse(&format!("nqn.2026-01.io.{name}x")).or_else(|_| Nqn::parse("nqn.2026-01.io.x"));
        let nqn = nqn.expect("valid");
        let data = ConnectData::new(HostId(hostid), Cntlid(cntlid), &Nqn::discovery(), &nqn);
        prop_assert_eq!(data.host(), Ok(nqn));
        prop_assert!(data.subsystem().expect("valid").is_discovery());
        prop_assert_eq!((data.host_id(), data.controller()), (HostId(hostid), Cntlid(cntlid)));
        let attributes = ConnectAttributes(4);
        let c = ConnectCommand::new(CommandId(1), Qid(qid), sqsize, attributes, kato);
        let got = ConnectCommand::of(c.as_sqe());
        prop_assert_eq!((got.qid.get(), got.sqsize.get(), got.kato.get()), (qid, sqsize, kato));
        prop_assert!(got.attributes().disable_flow_control());
    }

    #[test]
    fn invalid_parameters_come_back(ipo: u16) {
        for p in [InvalidParameter::Command { ipo }, InvalidParameter::Data { ipo }] {
            prop_assert_eq!(InvalidParameter::from_dw0(p.dw0()), p);
        }
    }

    #[test]
    fn statuses_come_back(sct in 0u8..8, sc: u8, cid: u16, sqhd: u16, result: u64) {
        let status = Status::from_parts(sct, sc);
        let cqe = Cqe::new(CommandId(cid), sqhd, status).with_result(result);
        let field = cqe.status_field();
        prop_assert_eq!((field.status(), field.dnr(), field.phase()), (status, status.dnr(), false));
        prop_assert_eq!((cqe.command_id(), cqe.result()), (CommandId(cid), result));
        prop_assert!(StatusField::new(status, Retry::Futile).dnr());
    }

    #[test]
    fn path_errors_are_always_retried(sc: u8) {
        prop_assert!(!Status::from_parts(3, sc).dnr());
    }

    #[test]
    fn register_fields_do_not_touch_each_other(raw: u64, mqes: u16, css: u8) {
        let cap = Cap(raw).with_mqes(mqes).with_css(css);
        prop_assert_eq!((cap.mqes(), cap.css()), (mqes, css));
        let others = !(0xFFFF | (0xFF << 37));
        prop_assert_eq!(cap.0 & others, raw & others);
        let cc = Cc(raw as u32).with_shn(0xFF);
        prop_assert_eq!((cc.shn(), cc.0 | 0xC000), (3, raw as u32 | 0xC000));
    }

    #[test]
    fn lists_come_back(ids in prop::collection::btree_set(1u32..0xFFFF_FFFE, 0..1200)) {
        let nsids: Vec<Nsid> = ids.iter().map(|&n| Nsid(n)).collect();
        let list = NamespaceList::from_ids(nsids.iter().copied());
        let fit = nsids.len().min(NamespaceList::MAX);
        prop_assert_eq!(list.iter().collect::<Vec<_>>(), &nsids[..fit]);
        let list = ControllerList::from_ids(ids.iter().map(|&n| Cntlid(n as u16)));
        prop_assert_eq!(list.iter().count(), ids.len());
    }

    #[test]
    fn ana_logs_come_back(sizes in prop::collection::vec(0u32..20, 0..20), chgcnt: u64) {
        let mut log = AnaLogHeader::new(chgcnt, sizes.len() as u16).bytes().to_vec();
        for (group, &n) in (1..).zip(&sizes) {
            log.extend_from_slice(AnaGroupDescriptor::new(group, n, chgcnt, AnaState::Optimized).bytes());
            for nsid in 1..=n {
                log.extend_from_slice(&nsid.to_le_bytes());
            }
        }
        let total: u32 = sizes.iter().sum();
        prop_assert_eq!(ana_log_bytes(sizes.len() as u64, u64::from(total)), log.len() as u64);
        let groups: Vec<u32> = AnaGroups::new(&log).expect("a header").map(|(_, n)| n.len() as u32).collect();
        prop_assert_eq!(groups, sizes);
    }

    #[test]
    fn namespace_descriptors_come_back(nguid: [u8; 16], uuid: [u8; 16], eui: [u8; 8], csi: u8) {
        let want = [
            NsIdDescriptor::Eui64(Eui64(eui)),
            NsIdDescriptor::Nguid(Nguid(nguid)),
            NsIdDescriptor::Uuid(uuid),
            NsIdDescriptor::Csi(csi),
        ];
        let bytes = want.iter().fold(NsIdWriter::default(), |w, &d| w.with(d)).finish();
        prop_assert_eq!(NsIdDescriptors::new(&bytes[..]).collect::<Vec<_>>(), want);
    }

    #[test]
    fn names_are_taken_or_refused_without_panic(text in ".{0,260}", field: [u8; 256]) {
        if let Ok(nqn) = Nqn::parse(&text) {
            prop_assert_eq!(nqn.as_str(), &text);
            prop_assert_eq!(Nqn::from_field(&nqn.to_field()), Ok(nqn));
        }
        let _ = Nqn::from_field(&field);
    }

    #[test]
    fn uuid_names_are_valid(uuid: [u8; 16]) {
        let nqn = Nqn::from_uuid(uuid);
        prop_assert!(nqn.is_uuid_form());
        prop_assert_eq!(Nqn::parse(nqn.as_str()), Ok(nqn));
    }
}

#[test]
fn pdus_out_of_sequence_are_sequence_errors() {
    for direction in [Direction::HostToController, Direction::ControllerToHost] {
        for &kind in PduKind::ALL.iter().filter(|&&k| direction_of(k) == direction) {
            let ch = Framing::PLAIN.header(kind, 0, 8);
            let setup = matches!(kind, PduKind::IcReq | PduKind::IcResp);
            let term = matches!(kind, PduKind::H2cTermReq | PduKind::C2hTermReq);
            let before = HeaderRules::initialize(direction).check(&ch);
            let running = rules_for(Framing::PLAIN, direction).check(&ch);
            let sequence = Err(HeaderError::sequence());
            assert_eq!(
                before == sequence,
                !setup && !term,
                "{kind:?} before the connection is set up: {before:?}"
            );
            assert_eq!(running == sequence, setup, "{kind:?} on a running connection: {running:?}");
        }
    }
}

#[test]
fn pdus_of_the_other_direction_are_refused_by_type() {
    for &kind in PduKind::ALL {
        let other = match direction_of(kind) {
            Direction::HostToController => Direction::ControllerToHost,
            Direction::ControllerToHost => Direction::HostToController,
        };
        let ch = Framing::PLAIN.header(kind, 0, 8);
        assert_eq!(rules_for(Framing::PLAIN, other).check(&ch), Err(HeaderError::invalid(0)), "{kind:?}");
    }
}

#[test]
fn success_without_last_is_refused() {
    let ch = Framing::PLAIN.header(PduKind::C2hData, flags::SUCCESS, 8);
    let rules = rules_for(Framing::PLAIN, Direction::ControllerToHost);
    assert_eq!(rules.check(&ch), Err(HeaderError::invalid(1)));
}

#[test]
fn a_data_digest_flag_without_data_means_no_digest() {
    let f = Framing { data_digest: DigestUse::On, ..Framing::PLAIN };
    let mut ch = f.header(PduKind::CapsuleCmd, 0, 0);
    let rules = rules_for(f, Direction::HostToController);
    assert_eq!(rules.check(&ch).map(|l| l.data_digest), Ok(DigestUse::Off));
    ch.flags |= flags::DDGSTF;
    assert_eq!(rules.check(&ch).map(|l| (l.data_digest, l.plen())), Ok((DigestUse::Off, 72)));
}

#[test]
fn empty_data_pdus_are_refused() {
    // NVME N5: never a zero-length transfer.
    let rules = rules_for(Framing::PLAIN, Direction::HostToController);
    let ch = Framing::PLAIN.header(PduKind::H2cData, flags::LAST_PDU, 0);
    assert_eq!(rules.check(&ch), Err(HeaderError::invalid(4)));
    assert_eq!(R2t::new(Framing::PLAIN, CommandId(0), 0, 0, 0).check(), Err(HeaderError::invalid(16)));
}

#[test]
fn data_fields_that_disagree_are_named() {
    let rules = rules_for(Framing::PLAIN, Direction::HostToController);
    let mut p = H2cData::new(Framing::PLAIN, CommandId(0), 0, 4, 512, Last::Yes);
    let layout = rules.check(&p.ch).expect("valid");
    p.datal = U32::new(508);
    assert_eq!(p.check(&layout), Err(HeaderError::invalid(16)));
    p.datal = U32::new(512);
    p.datao = U32::new(2);
    assert_eq!(p.check(&layout), Err(HeaderError::invalid(12)));
    p.datao = U32::new(u32::MAX - 3);
    assert_eq!(p.check(&layout), Err(HeaderError::out_of_range()));
}

#[test]
fn setup_fields_are_named() {
    let mut p = IcReq::new(Pda::NONE, DigestGrant::default(), 1);
    p.dgst = 4;
    assert_eq!(p.params(), Err(HeaderError::invalid(11)));
    p.hpda = 32;
    assert_eq!(p.params(), Err(HeaderError::invalid(10)));
    p.pfv = 1.into();
    assert_eq!(p.params(), Err(HeaderError::unsupported(8)));
    let mut p = IcResp::new(Pda::NONE, DigestGrant::default(), 0);
    assert_eq!(p.params().map(|p| p.maxh2cdata), Ok(4096));
    p.maxh2cdata = U32::new(4098);
    assert_eq!(p.params(), Err(HeaderError::invalid(12)));
}

#[test]
fn prp_and_reserved_psdt_are_invalid_fields() {
    let mut sqe = Sqe::new(2, CommandId(0), Nsid(1));
    sqe.dptr = SglDescriptor::transport(512);
    sqe.set_psdt(Psdt::Prp);
    assert_eq!(DataPointer::parse(&sqe, 0), Err(Status::INVALID_FIELD));
    sqe.flags |= 0b1100_0000;
    assert_eq!(DataPointer::parse(&sqe, 0), Err(Status::INVALID_FIELD));
    sqe.flags = 0b0100_0011;
    assert_eq!(sqe.fused(), Err(Status::INVALID_FIELD));
}

#[test]
fn opcodes_tell_their_direction() {
    assert_eq!(NvmOpcode::Read.direction(), DataDirection::ControllerToHost);
    assert_eq!(NvmOpcode::Compare.direction(), DataDirection::HostToController);
    assert_eq!(NvmOpcode::WriteZeroes.direction(), DataDirection::None);
    assert_eq!(NvmOpcode::DatasetManagement.direction(), DataDirection::HostToController);
    assert_eq!(NvmOpcode::Verify.direction(), DataDirection::None);
    assert_eq!(AdminOpcode::Identify.direction(), DataDirection::ControllerToHost);
    assert_eq!(FabricsType::Connect.direction(), DataDirection::HostToController);
    assert_eq!(FabricsType::PropertyGet.direction(), DataDirection::None);
}

#[test]
fn names_of_the_wrong_form_are_refused() {
    for text in [
        "",
        "nqn",
        "nqn.2014-08",
        "nqn.2014-08.",
        "nqn.2014-08.:x",
        "nqn.14-08.org.x",
        "nqn.2014_08.org.x",
        "iqn.2014-08.org.x",
        "nqn.2014-08.org.nvmexpress:uuid:1234",
        "nqn.2014-08.org.x\n",
    ] {
        assert!(Nqn::parse(text).is_err(), "{text:?}");
    }
    let longest = format!("nqn.2014-08.org.{}", "x".repeat(223 - 16));
    assert!(Nqn::parse(&longest).is_ok());
    assert!(Nqn::parse(&format!("{longest}x")).is_err());
    assert!(Nqn::from_field(&[b'n'; 256]).is_err());
}

#[test]
fn fields_of_text_are_padded_and_cut() {
    assert_eq!(&ascii_field::<8>("Ashlar"), b"Ashlar  ");
    assert_eq!(&ascii_field::<4>("Ashlar"), b"Ashl");
}
