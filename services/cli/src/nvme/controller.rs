//! Identify Controller by the specification's field names (NVMe Base 2.0 figure 276).

use ashlar_nvme::identify::IdentifyController;
use ashlar_nvme::identify::controller::{
    ControllerType, FUSES_COMPARE_AND_WRITE, OFCS_DISCONNECT, anacap, cmic, ctratt, lpa, oacs, oncs, sgls,
    vwc,
};
use ashlar_nvme::registers::Vs;

use super::fields::{BitNames, Fields, ascii, hex};
use crate::units::show_bytes;

/// Unit of MDTS: CAP.MPSMIN, which over Fabrics is 4 KiB in practice.
const PAGE_BYTES: u64 = 4096;

const CMIC: BitNames = &[
    (cmic::MULTI_PORT as u64, "multi-port"),
    (cmic::MULTI_CONTROLLER as u64, "multi-controller"),
    (cmic::SRIOV as u64, "SR-IOV"),
    (cmic::ANA as u64, "ANA"),
];
const OAES: BitNames = &[
    (1 << 8, "namespace attributes"),
    (1 << 9, "firmware activation"),
    (1 << 11, "ANA change"),
    (1 << 14, "LBA status"),
    (1 << 15, "endurance group"),
    (1 << 16, "normal shutdown"),
    (1 << 31, "discovery log change"),
];
const CTRATT: BitNames = &[
    (ctratt::HOST_ID_128 as u64, "128-bit host id"),
    (ctratt::NOPSPM as u64, "non-operational power state permissive"),
    (ctratt::NVM_SETS as u64, "NVM sets"),
    (ctratt::ENDURANCE_GROUPS as u64, "endurance groups"),
    (ctratt::TBKAS as u64, "traffic based keep alive"),
    (ctratt::NAMESPACE_GRANULARITY as u64, "namespace granularity"),
    (ctratt::UUID_LIST as u64, "UUID list"),
    (ctratt::ELBAS as u64, "extended LBA formats"),
];
const OACS: BitNames = &[
    (oacs::SECURITY as u64, "Security Send/Receive"),
    (oacs::FORMAT as u64, "Format NVM"),
    (oacs::FIRMWARE as u64, "firmware update"),
    (oacs::NAMESPACE_MANAGEMENT as u64, "Namespace Management"),
];
const LPA: BitNames = &[
    (lpa::SMART_PER_NAMESPACE as u64, "SMART per namespace"),
    (lpa::COMMANDS_EFFECTS as u64, "commands and effects"),
    (lpa::EXTENDED_DATA as u64, "extended data"),
    (lpa::TELEMETRY as u64, "telemetry"),
    (lpa::PERSISTENT_EVENT as u64, "persistent events"),
    (lpa::SUPPORTED_PAGES as u64, "supported pages"),
];
const ANACAP: BitNames = &[
    (anacap::OPTIMIZED as u64, "Optimized"),
    (anacap::NON_OPTIMIZED as u64, "Non-Optimized"),
    (anacap::INACCESSIBLE as u64, "Inaccessible"),
    (anacap::PERSISTENT_LOSS as u64, "Persistent Loss"),
    (anacap::CHANGE as u64, "Change"),
    (anacap::GROUP_ID_FIXED as u64, "group ids fixed"),
    (anacap::GROUP_ID_SETTABLE as u64, "group ids settable"),
];
const ONCS: BitNames = &[
    (oncs::COMPARE as u64, "Compare"),
    (oncs::WRITE_UNCORRECTABLE as u64, "Write Uncorrectable"),
    (oncs::DATASET_MANAGEMENT as u64, "Dataset Management"),
    (oncs::WRITE_ZEROES as u64, "Write Zeroes"),
    (oncs::SAVE_SELECT as u64, "Save and Select"),
    (oncs::RESERVATIONS as u64, "reservations"),
    (oncs::TIMESTAMP as u64, "timestamp"),
    (oncs::VERIFY as u64, "Verify"),
    (oncs::COPY as u64, "Copy"),
];
const SGLS: BitNames = &[
    (sgls::SUPPORTED as u64, "supported"),
    (sgls::SUPPORTED_DWORD_ALIGNED as u64, "supported, dword-aligned"),
    (sgls::KEYED as u64, "keyed"),
    (sgls::OFFSET as u64, "offset"),
    (sgls::TRANSPORT as u64, "transport"),
];

/// Decodes the structure.
pub(super) fn decode(c: &IdentifyController) -> Fields {
    let mut fields = Fields::default();
    general(c, &mut fields);
    admin(c, &mut fields);
    io(c, &mut fields);
    fabrics(c, &mut fields);
    fields
}

fn general(c: &IdentifyController, f: &mut Fields) {
    f.number("vid", c.vid.get(), "");
    f.number("ssvid", c.ssvid.get(), "");
    f.text("sn", ascii(&c.sn), "serial number");
    f.text("mn", ascii(&c.mn), "model");
    f.text("fr", ascii(&c.fr), "firmware revision");
    f.number("rab", c.rab, "");
    f.text("ieee", hex(&c.ieee), "OUI, little-endian");
    f.bits("cmic", c.cmic, CMIC);
    let mdts = match c.mdts {
        0 => "no limit".to_owned(),
        n => 1_u64
            .checked_shl(u32::from(n))
            .and_then(|pages| pages.checked_mul(PAGE_BYTES))
            .map_or_else(|| "beyond 64 bits".to_owned(), show_bytes),
    };
    f.number("mdts", c.mdts, mdts);
    f.number("cntlid", c.cntlid.get(), "controller");
    let ver = Vs(c.ver.get());
    f.text("ver", format!("{}.{}.{}", ver.mjr(), ver.mnr(), ver.ter()), "");
    f.number("rtd3r", c.rtd3r.get(), "");
    f.number("rtd3e", c.rtd3e.get(), "");
    f.bits("oaes", c.oaes.get(), OAES);
    f.bits("ctratt", c.ctratt.get(), CTRATT);
    f.bits("rrls", c.rrls.get(), &[]);
    let kind = ControllerType::try_from(c.cntrltype);
    f.number(
        "cntrltype",
        c.cntrltype,
        kind.map_or_else(|_| "undefined".to_owned(), |kind| format!("{kind:?}")),
    );
    f.text("fguid", hex(&c.fguid), "");
    for (name, crdt) in [("crdt1", c.crdt1), ("crdt2", c.crdt2), ("crdt3", c.crdt3)] {
        f.number(name, crdt.get(), if crdt.get() == 0 { "" } else { "× 100 ms" });
    }
}

fn admin(c: &IdentifyController, f: &mut Fields) {
    f.bits("oacs", c.oacs.get(), OACS);
    f.number("acl", c.acl, format!("{} aborts at a time", u16::from(c.acl) + 1));
    f.number("aerl", c.aerl, format!("{} event requests", u16::from(c.aerl) + 1));
    f.bits("frmw", c.frmw, &[(1, "slot 1 read-only"), (1 << 4, "activation without reset")]);
    f.bits("lpa", c.lpa, LPA);
    f.number("elpe", c.elpe, format!("{} error log entries", u16::from(c.elpe) + 1));
    f.number("npss", c.npss, format!("{} power states", u16::from(c.npss) + 1));
    f.number("avscc", c.avscc, "");
    f.number("apsta", c.apsta, "");
    f.number("wctemp", c.wctemp.get(), kelvin(c.wctemp.get()));
    f.number("cctemp", c.cctemp.get(), kelvin(c.cctemp.get()));
    f.number("mtfa", c.mtfa.get(), "");
    let (total, free) = (u128::from_le_bytes(c.tnvmcap), u128::from_le_bytes(c.unvmcap));
    f.number("tnvmcap", total, capacity(total));
    f.number("unvmcap", free, capacity(free));
    f.number("fwug", c.fwug, "");
    let kas = match c.kas.get() {
        0 => "no keep alive".to_owned(),
        kas => format!("{} ms granularity", u32::from(kas) * 100),
    };
    f.number("kas", c.kas.get(), kas);
    f.number("sanicap", c.sanicap.get(), "");
    f.number("nsetidmax", c.nsetidmax.get(), "");
    f.number("endgidmax", c.endgidmax.get(), "");
    f.number("anatt", c.anatt, if c.anatt == 0 { "" } else { "s ANA transition" });
    f.bits("anacap", c.anacap, ANACAP);
    f.number("anagrpmax", c.anagrpmax.get(), "");
    f.number("nanagrpid", c.nanagrpid.get(), "");
    f.number("domainid", c.domainid.get(), "");
}

fn io(c: &IdentifyController, f: &mut Fields) {
    let entry = |bits: u8| format!("{} to {} bytes", 1_u32 << (bits & 0xF), 1_u32 << (bits >> 4));
    f.bits("sqes", c.sqes, &[]);
    f.text("sqes.bytes", entry(c.sqes), "");
    f.bits("cqes", c.cqes, &[]);
    f.text("cqes.bytes", entry(c.cqes), "");
    f.number("maxcmd", c.maxcmd.get(), "commands per queue");
    f.number("nn", c.nn.get(), "largest NSID");
    f.bits("oncs", c.oncs.get(), ONCS);
    f.bits("fuses", c.fuses.get(), &[(FUSES_COMPARE_AND_WRITE as u64, "Compare and Write")]);
    f.bits("fna", c.fna, &[]);
    let cache = match (c.vwc & vwc::PRESENT != 0, c.vwc & vwc::FLUSH_BROADCAST_SUPPORTED) {
        (false, _) => "no volatile write cache".to_owned(),
        (true, vwc::FLUSH_BROADCAST_SUPPORTED) => "present; Flush of all namespaces".to_owned(),
        (true, vwc::FLUSH_BROADCAST_UNSUPPORTED) => "present; Flush of one namespace".to_owned(),
        (true, _) => "present".to_owned(),
    };
    f.number("vwc", c.vwc, cache);
    f.number("awun", c.awun.get(), format!("{} blocks", u32::from(c.awun.get()) + 1));
    f.number("awupf", c.awupf.get(), format!("{} blocks", u32::from(c.awupf.get()) + 1));
    f.bits("nwpc", c.nwpc, &[]);
    f.number("acwu", c.acwu.get(), format!("{} blocks", u32::from(c.acwu.get()) + 1));
    f.bits("cdfs", c.cdfs.get(), &[]);
    f.bits("sgls", c.sgls.get(), SGLS);
    f.number("mnan", c.mnan.get(), "most namespaces");
    f.text("subnqn", ascii(&c.subnqn), "");
}

fn fabrics(c: &IdentifyController, f: &mut Fields) {
    f.number("ioccsz", c.ioccsz.get(), format!("{} in the capsule", show_bytes(c.in_capsule_bytes())));
    f.number("iorcsz", c.iorcsz.get(), format!("{} bytes", u64::from(c.iorcsz.get()) * 16));
    f.number("icdoff", c.icdoff.get(), "");
    f.number("fcatt", c.fcatt, if c.fcatt & 1 == 0 { "dynamic controllers" } else { "static controllers" });
    f.number("msdbd", c.msdbd, "data descriptors");
    f.bits("ofcs", c.ofcs.get(), &[(OFCS_DISCONNECT as u64, "Disconnect")]);
    f.number("dctype", c.dctype, "");
}

fn kelvin(kelvin: u16) -> String {
    if kelvin == 0 { String::new() } else { format!("{} °C", i32::from(kelvin) - 273) }
}

fn capacity(bytes: u128) -> String {
    match u64::try_from(bytes) {
        Ok(0) => String::new(),
        Ok(bytes) => show_bytes(bytes),
        Err(_) => "beyond 64 bits".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use ashlar_nvme::Wire;
    use ashlar_nvme::identify::ascii_field;
    use ashlar_nvme::wire::{U16, U32};

    use super::super::fields::Value;
    use super::*;

    #[test]
    fn fields_carry_the_specifications_names_and_their_meaning() {
        let mut c = IdentifyController::zeroed();
        c.mn = ascii_field("Ashlar");
        c.mdts = 8;
        c.ver = U32::new(0x0002_0000);
        c.kas = U16::new(10);
        c.vwc = vwc::PRESENT | vwc::FLUSH_BROADCAST_SUPPORTED;
        c.sgls = U32::new(sgls::SUPPORTED | sgls::OFFSET | sgls::TRANSPORT);
        c.ioccsz = U32::new((64 + 16384) / 16);
        let fields = decode(&c);
        for (name, value, meaning) in [
            ("mn", Value::Text("Ashlar".into()), "model"),
            ("mdts", Value::Number(8), "1 MiB"),
            ("ver", Value::Text("2.0.0".into()), ""),
            ("kas", Value::Number(10), "1000 ms granularity"),
            ("vwc", Value::Number(7), "present; Flush of all namespaces"),
            ("sgls", Value::Bits(0x30_0001), "supported, offset, transport"),
            ("ioccsz", Value::Number(1028), "16 KiB in the capsule"),
        ] {
            assert_eq!(fields.get(name), Some((&value, meaning)), "{name}");
        }
        assert!(fields.table().lines().all(|line| line.chars().count() <= 80), "{}", fields.table());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]
        #[test]
        fn any_bytes_decode(bytes in proptest::collection::vec(proptest::num::u8::ANY, 4096)) {
            let c = IdentifyController::read_from(&bytes).expect("4096 bytes are one");
            let escapes = decode(&c).table().matches('\x1b').count();
            proptest::prop_assert_eq!(escapes, 0);
        }
    }
}
