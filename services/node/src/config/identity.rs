//! What follows from an NQN and an nsid when the file does not say it: the same wherever it is read.

use ashlar_nvme::ids::{Nguid, Nqn, Nsid};
use uuid::Uuid;

/// The UUID namespace (RFC 9562 §5.5) in which names of ours are hashed. It must never change: hosts know
/// disks by what is derived from it.
const DERIVED: Uuid = Uuid::from_u128(0x9d1c_2f3e_6b0a_4d57_8e21_5a7c_60f4_b913);

/// UUID of a namespace: version 5, from `NQN/nsid`.
pub fn namespace_uuid(subsystem: &Nqn, nsid: Nsid) -> Uuid {
    Uuid::new_v5(&DERIVED, format!("{subsystem}/{nsid}").as_bytes())
}

/// NGUID of a namespace: its UUID's bytes, which are as unique.
pub fn nguid(uuid: Uuid) -> Nguid {
    Nguid(uuid.into_bytes())
}

/// Serial number of a subsystem: 20 hexadecimal digits of the version 5 UUID of its NQN.
pub fn serial(subsystem: &Nqn) -> String {
    let mut digits = Uuid::new_v5(&DERIVED, subsystem.as_str().as_bytes()).simple().to_string();
    digits.truncate(20);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_identities_never_change() {
        let nqn = Nqn::parse("nqn.2026-01.io.ashlar:disks").expect("an NQN");
        assert_eq!(namespace_uuid(&nqn, Nsid(1)).to_string(), "b9258f34-92a1-5f45-81d8-c47471499654");
        assert_eq!(serial(&nqn), "f306d1b8974851418a2c");
    }

    #[test]
    fn derived_identities_differ() {
        let a = Nqn::parse("nqn.2026-01.io.ashlar:a").expect("an NQN");
        let b = Nqn::parse("nqn.2026-01.io.ashlar:b").expect("an NQN");
        assert_ne!(namespace_uuid(&a, Nsid(1)), namespace_uuid(&a, Nsid(2)));
        assert_ne!(namespace_uuid(&a, Nsid(1)), namespace_uuid(&b, Nsid(1)));
        assert_ne!(serial(&a), serial(&b));
    }
}
