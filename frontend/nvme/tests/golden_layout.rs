//! Byte offsets of the structures' fields, as the specification's figures give them. Sizes are asserted in
//! the crate.

use ashlar_nvme::command::{Cqe, Sqe};
use ashlar_nvme::fabrics::{ConnectCommand, ConnectData, DisconnectCommand, PropertyCommand};
use ashlar_nvme::feature::{HostBehaviorSupport, Timestamp};
use ashlar_nvme::identify::*;
use ashlar_nvme::log::*;
use ashlar_nvme::nvm::DsmRange;
use ashlar_nvme::pdu::*;
use ashlar_nvme::sgl::SglDescriptor;
use std::mem::offset_of;

macro_rules! offsets {
    ($ty:ty: $($field:ident = $at:literal),+ $(,)?) => {
        $(assert_eq!(offset_of!($ty, $field), $at, "{}.{}", stringify!($ty), stringify!($field));)+
    };
}

#[test]
fn entries_lie_as_in_the_base_specification() {
    offsets!(Sqe: opcode = 0, flags = 1, cid = 2, nsid = 4, cdw2 = 8, cdw3 = 12, mptr = 16, dptr = 24, cdw10 =
        40, cdw11 = 44, cdw12 = 48, cdw13 = 52, cdw14 = 56, cdw15 = 60);
    offsets!(Cqe: dw0 = 0, dw1 = 4, sqhd = 8, sqid = 10, cid = 12, status = 14);
    offsets!(SglDescriptor: address = 0, length = 8, identifier = 15);
    offsets!(DsmRange: cattr = 0, nlb = 4, slba = 8);
}

#[test]
fn fabrics_commands_lie_as_in_the_base_specification() {
    offsets!(ConnectCommand: opcode = 0, flags = 1, cid = 2, fctype = 4, sgl1 = 24, recfmt = 40, qid = 42,
        sqsize = 44, cattr = 46, kato = 48);
    offsets!(ConnectData: hostid = 0, cntlid = 16, subnqn = 256, hostnqn = 512);
    offsets!(PropertyCommand: fctype = 4, attrib = 40, ofst = 44, value = 48);
    offsets!(DisconnectCommand: fctype = 4, recfmt = 40);
}

#[test]
fn identify_controller_lies_as_in_the_base_specification() {
    offsets!(IdentifyController: vid = 0, ssvid = 2, sn = 4, mn = 24, fr = 64, rab = 72, ieee = 73, cmic = 76,
        mdts = 77, cntlid = 78, ver = 80, rtd3r = 84, rtd3e = 88, oaes = 92, ctratt = 96, rrls = 100,
        cntrltype = 111, fguid = 112, crdt1 = 128, crdt2 = 130, crdt3 = 132, nvmsr = 253, vwci = 254, mec =
        255, oacs = 256, acl = 258, aerl = 259, frmw = 260, lpa = 261, elpe = 262, npss = 263, avscc = 264,
        apsta = 265, wctemp = 266, cctemp = 268, mtfa = 270, hmpre = 272, hmmin = 276, tnvmcap = 280, unvmcap
        = 296, rpmbs = 312, edstt = 316, dsto = 318, fwug = 319, kas = 320, hctma = 322, mntmt = 324, mxtmt =
        326, sanicap = 328, hmminds = 332, hmmaxd = 336, nsetidmax = 338, endgidmax = 340, anatt = 342, anacap
        = 343, anagrpmax = 344, nanagrpid = 348, pels = 352, domainid = 356, megcap = 368, sqes = 512, cqes =
        513, maxcmd = 514, nn = 516, oncs = 520, fuses = 522, fna = 524, vwc = 525, awun = 526, awupf = 528,
        icsvscc = 530, nwpc = 531, acwu = 532, cdfs = 534, sgls = 536, mnan = 540, maxdna = 544, maxcna = 560,
        subnqn = 768, ioccsz = 1792, iorcsz = 1796, icdoff = 1800, fcatt = 1802, msdbd = 1803, ofcs = 1804,
        dctype = 1806, psd = 2048, vs = 3072);
    offsets!(PowerStateDescriptor: mp = 0, flags = 3, enlat = 4, exlat = 8, rrt = 12, rrl = 13, rwt = 14, rwl
        = 15, idlp = 16, ips = 18, actp = 20, apws = 22);
}

#[test]
fn identify_namespace_lies_as_in_the_nvm_command_set() {
    offsets!(IdentifyNamespace: nsze = 0, ncap = 8, nuse = 16, nsfeat = 24, nlbaf = 25, flbas = 26, mc = 27,
        dpc = 28, dps = 29, nmic = 30, rescap = 31, fpi = 32, dlfeat = 33, nawun = 34, nawupf = 36, nacwu =
        38, nabsn = 40, nabo = 42, nabspf = 44, noiob = 46, nvmcap = 48, npwg = 64, npwa = 66, npdg = 68, npda
        = 70, nows = 72, mssrl = 74, mcl = 76, msrc = 80, nulbaf = 82, anagrpid = 92, nsattr = 99, nvmsetid =
        100, endgid = 102, nguid = 104, eui64 = 120, lbaf = 128, vs = 384);
    offsets!(IdentifyNvmNamespace: lbstm = 0, pic = 8, elbaf = 12);
    offsets!(IdentifyIndependentNamespace: nsfeat = 0, nmic = 1, rescap = 2, fpi = 3, anagrpid = 4, nsattr =
        8, nvmsetid = 10, endgid = 12, nstat = 14);
    offsets!(IdentifyNvmController: vsl = 0, wzsl = 1, wusl = 2, dmrl = 3, dmrsl = 4, dmsl = 8);
    offsets!(PrimaryControllerCapabilities: cntlid = 0, portid = 2, crt = 4, vqfrt = 32, vqrfa = 36, vqrfap =
        40, vqprt = 42, vqfrsm = 44, vqgran = 46, vifrt = 64, virfa = 68, virfap = 72, viprt = 74, vifrsm =
        76, vigran = 78);
    offsets!(ControllerList: num = 0, cntlid = 2);
    offsets!(UuidList: entry = 0);
    offsets!(SecondaryControllerList: num = 0, entries = 32);
}

#[test]
fn logs_lie_as_in_the_base_specification() {
    offsets!(ErrorEntry: error_count = 0, sqid = 8, cid = 10, status = 12, location = 14, lba = 16, nsid = 24,
        vs = 28, trtype = 29, cs = 32, trtype_specific = 40);
    offsets!(SmartLog: critical_warning = 0, composite_temperature = 1, avail_spare = 3, spare_thresh = 4,
        percent_used = 5, endu_grp_crit_warn_sumry = 6, data_units_read = 32, data_units_written = 48,
        host_reads = 64, host_writes = 80, ctrl_busy_time = 96, power_cycles = 112, power_on_hours = 128,
        unsafe_shutdowns = 144, media_errors = 160, num_err_log_entries = 176, warning_temp_time = 192,
        critical_comp_time = 196, temp_sensor = 200, thm_temp1_trans_count = 216, thm_temp2_trans_count = 220,
        thm_temp1_total_time = 224, thm_temp2_total_time = 228);
    offsets!(FirmwareSlotLog: afi = 0, frs = 8);
    offsets!(CommandsEffectsLog: acs = 0, iocs = 1024);
    offsets!(AnaLogHeader: chgcnt = 0, ngrps = 8);
    offsets!(AnaGroupDescriptor: anagrpid = 0, nnsids = 4, chgcnt = 8, state = 16);
    offsets!(DiscoveryHeader: genctr = 0, numrec = 8, recfmt = 16);
    offsets!(DiscoveryEntry: trtype = 0, adrfam = 1, subtype = 2, treq = 3, portid = 4, cntlid = 6, asqsz = 8,
        eflags = 10, trsvcid = 32, subnqn = 256, traddr = 512, tsas = 768);
}

#[test]
fn features_lie_as_in_the_base_specification() {
    offsets!(HostBehaviorSupport: acre = 0, etdas = 1, lbafee = 2);
    offsets!(Timestamp: ms_low = 0, ms_high = 4, attributes = 6);
}

#[test]
fn pdus_lie_as_in_the_tcp_specification() {
    offsets!(CommonHeader: pdu_type = 0, flags = 1, hlen = 2, pdo = 3, plen = 4);
    offsets!(IcReq: ch = 0, pfv = 8, hpda = 10, dgst = 11, maxr2t = 12);
    offsets!(IcResp: ch = 0, pfv = 8, cpda = 10, dgst = 11, maxh2cdata = 12);
    offsets!(TermReq: ch = 0, fes = 8, fei = 10);
    offsets!(CapsuleCmd: ch = 0, sqe = 8);
    offsets!(CapsuleResp: ch = 0, cqe = 8);
    offsets!(H2cData: cccid = 8, ttag = 10, datao = 12, datal = 16);
    offsets!(C2hData: cccid = 8, datao = 12, datal = 16);
    offsets!(R2t: cccid = 8, ttag = 10, r2to = 12, r2tl = 16);
}
