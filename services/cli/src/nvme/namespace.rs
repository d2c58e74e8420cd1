//! Identify Namespace by the specification's field names (NVM Command Set 1.0 §4.1.5).

use ashlar_nvme::identify::IdentifyNamespace;
use ashlar_nvme::identify::namespace::{NMIC_SHARED, NSATTR_WRITE_PROTECTED, dlfeat, nsfeat};

use super::fields::{BitNames, Fields, hex};
use super::list::Identifiers;
use crate::units::show_bytes;

const NSFEAT: BitNames = &[
    (nsfeat::THIN as u64, "thin provisioning"),
    (nsfeat::NSABP as u64, "own atomic units"),
    (nsfeat::DAE as u64, "deallocated block error"),
    (nsfeat::UIDREUSE as u64, "ids never reused"),
    (nsfeat::OPTPERF as u64, "preferred sizes"),
];
const DLFEAT: BitNames = &[
    (dlfeat::READS_ZEROES as u64, "deallocated blocks read zeroes"),
    (dlfeat::WRITE_ZEROES_DEALLOCATE as u64, "Write Zeroes may deallocate"),
];

/// Decodes the structure together with the namespace's identifiers.
pub(super) fn decode(n: &IdentifyNamespace, identifiers: &Identifiers) -> Fields {
    let mut f = Fields::default();
    let block = n.block_size();
    let bytes =
        |blocks: u64| block.and_then(|block| blocks.checked_mul(block)).map_or_else(String::new, show_bytes);
    f.number("nsze", n.nsze.get(), bytes(n.nsze.get()));
    f.number("ncap", n.ncap.get(), bytes(n.ncap.get()));
    f.number("nuse", n.nuse.get(), bytes(n.nuse.get()));
    f.bits("nsfeat", n.nsfeat, NSFEAT);
    f.number("nlbaf", n.nlbaf, format!("{} LBA formats", u16::from(n.nlbaf) + 1));
    f.number("flbas", n.flbas, format!("format {} in use", n.format_index()));
    f.bits("mc", n.mc, &[]);
    f.bits("dpc", n.dpc, &[]);
    f.bits("dps", n.dps, &[]);
    f.bits("nmic", n.nmic, &[(NMIC_SHARED as u64, "shared")]);
    f.bits("rescap", n.rescap, &[]);
    f.number("fpi", n.fpi, "");
    f.bits("dlfeat", n.dlfeat, DLFEAT);
    for (name, value) in [
        ("nawun", n.nawun),
        ("nawupf", n.nawupf),
        ("nacwu", n.nacwu),
        ("nabsn", n.nabsn),
        ("nabspf", n.nabspf),
        ("npwg", n.npwg),
        ("npwa", n.npwa),
        ("npdg", n.npdg),
        ("npda", n.npda),
        ("nows", n.nows),
    ] {
        f.number(name, value.get(), bytes(u64::from(value.get()) + 1));
    }
    f.number("nabo", n.nabo.get(), "");
    f.number("noiob", n.noiob.get(), "");
    let capacity = u128::from_le_bytes(n.nvmcap);
    f.number("nvmcap", capacity, u64::try_from(capacity).map_or_else(|_| String::new(), show_bytes));
    f.number("mssrl", n.mssrl.get(), "");
    f.number("mcl", n.mcl.get(), "");
    f.number("msrc", n.msrc, "");
    f.number("anagrpid", n.anagrpid.get(), "ANA group");
    f.bits("nsattr", n.nsattr, &[(NSATTR_WRITE_PROTECTED as u64, "write protected")]);
    f.number("nvmsetid", n.nvmsetid.get(), "");
    f.number("endgid", n.endgid.get(), "");
    f.text("nguid", hex(&n.nguid), "");
    f.text("eui64", hex(&n.eui64), "");
    f.text("uuid", identifiers.uuid.clone().unwrap_or_default(), "");
    for (index, format) in n.lbaf.iter().enumerate().take(usize::from(n.nlbaf) + 1) {
        let bits = format.bits();
        let meaning = match bits.lbads() {
            lbads @ 9..=63 => format!("{}-byte blocks, {} bytes of metadata", 1_u64 << lbads, bits.ms()),
            _ => "not available".to_owned(),
        };
        f.number(&format!("lbaf{index}"), bits.0, meaning);
    }
    f
}

#[cfg(test)]
mod tests {
    use ashlar_nvme::Wire;
    use ashlar_nvme::identify::LbaFormat;
    use ashlar_nvme::wire::{U16, U64};

    use super::super::fields::Value;
    use super::*;

    #[test]
    fn sizes_are_shown_in_bytes_of_the_format_in_use() {
        let mut n = IdentifyNamespace::zeroed();
        n.nsze = U64::new(1 << 18);
        n.lbaf[0] = LbaFormat::new(12);
        n.npwg = U16::new(0);
        let fields = decode(&n, &Identifiers { uuid: Some("u-u-i-d".into()), ..Identifiers::default() });
        assert_eq!(fields.get("nsze"), Some((&Value::Number(1 << 18), "1 GiB")));
        assert_eq!(fields.get("npwg"), Some((&Value::Number(0), "4 KiB")));
        assert_eq!(
            fields.get("lbaf0").map(|(_, meaning)| meaning),
            Some("4096-byte blocks, 0 bytes of metadata")
        );
        assert_eq!(fields.get("uuid").map(|(value, _)| value), Some(&Value::Text("u-u-i-d".into())));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]
        #[test]
        fn any_bytes_decode(bytes in proptest::collection::vec(proptest::num::u8::ANY, 4096)) {
            let n = IdentifyNamespace::read_from(&bytes).expect("4096 bytes are one");
            proptest::prop_assert!(!decode(&n, &Identifiers::default()).table().is_empty());
        }
    }
}
