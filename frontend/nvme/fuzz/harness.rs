//! What fuzzer and corpus replay do with any bytes: decode them as everything, and check what must then hold.

use ashlar_nvme::admin::*;
use ashlar_nvme::command::*;
use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::fabrics::*;
use ashlar_nvme::feature::*;
use ashlar_nvme::identify::*;
use ashlar_nvme::ids::*;
use ashlar_nvme::log::ana::AnaGroups;
use ashlar_nvme::log::*;
use ashlar_nvme::nvm::*;
use ashlar_nvme::opcode::*;
use ashlar_nvme::pdu::*;
use ashlar_nvme::sgl::*;
use ashlar_nvme::wire::{DecodeError, Wire};

/// Decodes `data` in every way there is. Panics where a promise of the crate does not hold.
pub(crate) fn decode_everything(data: &[u8]) {
    structures(data);
    let Some((setup, rest)) = data.split_first_chunk::<8>() else { return };
    pdu(&rules(setup), rest);
    if let Ok(sqe) = Sqe::ref_from(rest) {
        command(sqe, u32::from(setup[7]) * 64);
    }
    views(rest);
}

fn structure<T: Wire>(data: &[u8]) {
    match <T as Wire>::ref_from(data) {
        Ok(t) => assert_eq!(Some(t.bytes()), data.get(..T::SIZE), "{} changes its bytes", T::NAME),
        Err(e) => {
            let want = DecodeError::Truncated { what: T::NAME, need: T::SIZE, have: data.len() };
            assert_eq!(e, want);
            assert!(data.len() < T::SIZE, "{} refuses enough bytes", T::NAME);
        }
    }
}

macro_rules! each {
    ($data:expr, $($ty:ty),+ $(,)?) => { $(structure::<$ty>($data);)+ };
}

fn structures(data: &[u8]) {
    each!(data, Sqe, Cqe, SglDescriptor, DsmRange, ConnectCommand, ConnectData, PropertyCommand);
    each!(data, DisconnectCommand, HostBehaviorSupport, Timestamp, IdentifyController);
    each!(data, PowerStateDescriptor, IdentifyNamespace, IdentifyNvmNamespace, LbaFormat);
    each!(data, IdentifyIndependentNamespace, IdentifyNvmController, PrimaryControllerCapabilities);
    each!(data, NamespaceList, ControllerList, CommandSetList, UuidList, SecondaryControllerList);
    each!(data, AnaLogHeader, AnaGroupDescriptor, DiscoveryHeader, DiscoveryEntry);
    each!(data, CommandsEffectsLog, FeatureEffectsLog, ErrorEntry, FirmwareSlotLog, SmartLog);
    each!(data, SupportedLogPages, CommonHeader, IcReq, IcResp, TermReq, CapsuleCmd, CapsuleResp);
    each!(data, H2cData, C2hData, R2t);
}

/// Rules that 8 bytes choose; every combination can be reached.
fn rules(setup: &[u8; 8]) -> HeaderRules {
    let [bits, pda, capsule, _, data @ ..] = setup;
    HeaderRules {
        direction: if bits & 1 == 0 { Direction::HostToController } else { Direction::ControllerToHost },
        phase: if bits & 2 == 0 { Phase::Running } else { Phase::Initialize },
        header_digest: DigestUse::from(bits & 4 != 0),
        data_digest: DigestUse::from(bits & 8 != 0),
        alignment: Pda::new(pda % 32).expect("below 32"),
        in_capsule_max: u32::from(*capsule) * 256,
        data_max: u32::from_le_bytes(*data),
    }
}

/// What must hold for the header of a PDU.
fn pdu(rules: &HeaderRules, bytes: &[u8]) {
    let Ok(ch) = CommonHeader::ref_from(bytes) else { return };
    let layout = match rules.check(ch) {
        Ok(layout) => layout,
        Err(e) => {
            if e.fes == FatalErrorStatus::InvalidHeaderField {
                assert!(e.fei <= 4, "names a field of the common header");
            } else {
                assert_eq!(e.fei, 0);
            }
            let mut out = [0; TermReq::PLEN_MAX];
            let n =
                TermReq::put_with(Direction::ControllerToHost, e, bytes, &mut out).expect("it always fits");
            let peer = HeaderRules { direction: Direction::ControllerToHost, ..*rules };
            let sent = CommonHeader::ref_from(&out).expect("8 bytes");
            assert_eq!(peer.check(sent).map(|l| l.plen() as usize), Ok(n), "the peer reads our termination");
            return;
        }
    };
    assert_eq!(layout.plen(), ch.plen.get(), "the parts add up to PLEN");
    assert!(layout.head_len() <= layout.data_offset && layout.data_offset <= 255);
    assert_eq!(layout.hlen, u32::from(layout.kind.hlen()));
    if layout.data_len == 0 {
        assert_eq!(layout.data_digest, DigestUse::Off, "no data, no digest");
    }
    match layout.kind {
        PduKind::CapsuleCmd => assert!(layout.data_len <= rules.in_capsule_max),
        PduKind::H2cData | PduKind::C2hData => {
            assert!(layout.data_len > 0 && layout.data_len <= rules.data_max);
        }
        PduKind::H2cTermReq | PduKind::C2hTermReq => assert!(layout.data_len as usize <= TermReq::DATA_MAX),
        PduKind::IcReq | PduKind::IcResp | PduKind::CapsuleResp | PduKind::R2t => {
            assert_eq!(layout.data_len, 0);
        }
    }
    whole_header(&layout, bytes);
}

fn whole_header(layout: &PduLayout, bytes: &[u8]) {
    let span = |r: Result<(), HeaderError>, offset: u32, len: u32| {
        if r.is_ok() {
            assert!(
                len > 0
                    && offset.checked_add(len).is_some()
                    && offset.is_multiple_of(4)
                    && len.is_multiple_of(4)
            );
        }
    };
    match layout.kind {
        PduKind::IcReq => {
            if let Ok(Ok(p)) = IcReq::ref_from(bytes).map(IcReq::params) {
                assert!(p.r2t_max >= 1);
            }
        }
        PduKind::IcResp => {
            if let Ok(Ok(p)) = IcResp::ref_from(bytes).map(IcResp::params) {
                assert!(p.maxh2cdata >= 4096 && p.maxh2cdata.is_multiple_of(4));
            }
        }
        PduKind::H2cData => {
            if let Ok(p) = H2cData::ref_from(bytes) {
                span(p.check(layout), p.datao.get(), p.datal.get());
            }
        }
        PduKind::C2hData => {
            if let Ok(p) = C2hData::ref_from(bytes) {
                span(p.check(layout), p.datao.get(), p.datal.get());
                let _ = p.last();
            }
        }
        PduKind::R2t => {
            if let Ok(p) = R2t::ref_from(bytes) {
                span(p.check(), p.r2to.get(), p.r2tl.get());
            }
        }
        PduKind::H2cTermReq | PduKind::C2hTermReq => {
            let _ = TermReq::ref_from(bytes).map(TermReq::reason);
        }
        PduKind::CapsuleCmd => {
            if let Ok(p) = CapsuleCmd::ref_from(bytes) {
                command(&p.sqe, layout.data_len);
            }
        }
        PduKind::CapsuleResp => {
            if let Ok(p) = CapsuleResp::ref_from(bytes) {
                completion(&p.cqe);
            }
        }
    }
}

fn completion(cqe: &Cqe) {
    let field = cqe.status_field();
    let _ = (field.status().to_string(), field.dnr(), cqe.result(), AsyncEvent::from_dw0(cqe.dw0.get()));
    let _ = (ConnectResponse(cqe.dw0.get()).cntlid(), InvalidParameter::from_dw0(cqe.dw0.get()));
}

/// What must hold for a submission entry whose capsule carries `capsule_data` bytes.
fn command(sqe: &Sqe, capsule_data: u32) {
    match DataPointer::parse(sqe, capsule_data) {
        Ok(DataPointer::InCapsule { offset, len }) => {
            assert!(len > 0 && offset.checked_add(len).is_some_and(|end| end <= capsule_data));
        }
        Ok(DataPointer::Transport { len }) => assert!(len > 0),
        Ok(DataPointer::None) => {}
        Err(status) => assert!(status.dnr()),
    }
    let rw = RwCommand::from_sqe(sqe);
    assert!((1..=65536).contains(&rw.nlb));
    let _ = (rw.fits(u64::MAX), rw.bytes(12), rw.bytes(255), sqe.fused());
    let dsm = DsmCommand::from_sqe(sqe);
    assert!((1..=256).contains(&dsm.nr) && dsm.bytes() <= 4096);
    let log = GetLogPageCommand::from_sqe(sqe);
    assert!(log.len >= 4 && log.len.is_multiple_of(4));
    let _ = (Cns::try_from(IdentifyCommand::from_sqe(sqe).cns), LogId::try_from(log.lid));
    let get = GetFeaturesCommand::from_sqe(sqe);
    let _ = (FeatureId::try_from(get.fid), Select::try_from(get.sel), SetFeaturesCommand::from_sqe(sqe));
    let _ = (AbortCommand::from_sqe(sqe), fctype(sqe), connect_data_pointer(sqe, capsule_data));
    let _ = (AdminOpcode::try_from(sqe.opcode), NvmOpcode::try_from(sqe.opcode));
    let _ = (ConnectCommand::of(sqe).attributes(), PropertyCommand::of(sqe).size());
}

/// Variable-length contents: lists, logs, names.
fn views(data: &[u8]) {
    assert!(NsIdDescriptors::new(data).count() <= data.len());
    if let Ok(groups) = AnaGroups::new(data) {
        let bytes: usize = groups.map(|(_, nsids)| 32 + nsids.len() * 4).sum();
        assert!(bytes <= data.len());
    }
    assert_eq!(DsmRange::slice_from(data).len(), data.len() / DsmRange::SIZE);
    for range in DsmRange::slice_from(data) {
        let _ = range.fits(1 << 32);
    }
    if let Ok(connect) = ConnectData::ref_from(data) {
        for nqn in [connect.subsystem(), connect.host()].into_iter().flatten() {
            assert_eq!(Nqn::from_field(&nqn.to_field()).as_ref(), Ok(&nqn));
            assert_eq!(Nqn::parse(nqn.as_str()), Ok(nqn));
        }
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = Nqn::parse(text);
    }
    if let Ok(entry) = DiscoveryEntry::ref_from(data) {
        let _ = (entry.subsystem(), entry.address().map(str::len), entry.service().map(str::len));
    }
    if let Ok(ns) = IdentifyNamespace::ref_from(data) {
        let _ = (ns.block_size(), ns.format_index());
    }
    if let Ok(c) = IdentifyController::ref_from(data) {
        let _ = (c.subsystem(), c.in_capsule_bytes());
    }
    if let Ok(list) = ControllerList::ref_from(data) {
        assert!(list.iter().count() <= ControllerList::MAX);
    }
    if let Ok(list) = NamespaceList::ref_from(data) {
        assert!(list.iter().count() <= NamespaceList::MAX);
    }
    if let Ok(cqe) = Cqe::ref_from(data) {
        completion(cqe);
    }
}
