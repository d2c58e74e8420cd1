//! Who we are to a target: host NQN and host identifier, the same at every run on one machine.

use std::fs;
use std::path::Path;

use ashlar_nvme::ids::{HostId, Nqn};
use uuid::Uuid;

use crate::exit::{Exit, Failure, Outcome};

/// Name space (RFC 9562 §6.6) under which the machine's identifier becomes ours, so that the machine-id
/// itself, which machine-id(5) asks to keep confidential, is not sent to targets.
const MACHINES: Uuid = Uuid::from_u128(0x6f0b_2d53_9c1e_4f7a_8a54_3d1f_6e27_b0c9);

const NQN_UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// Host NQN and host identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Host NQN.
    pub(crate) nqn: Nqn,
    /// Host identifier.
    pub(crate) id: HostId,
}

/// What a machine says of itself; files' contents, so that tests can have others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machine {
    /// `/etc/nvme/hostnqn`, which nvme-cli uses too.
    hostnqn: Option<String>,
    /// `/etc/nvme/hostid`.
    hostid: Option<String>,
    /// `/etc/machine-id`.
    machine_id: Option<String>,
}

impl Machine {
    /// Reads the files that exist.
    pub(crate) fn read() -> Self {
        let first_line = |path: &str| {
            let text = fs::read_to_string(Path::new(path)).ok()?;
            let line = text.lines().next()?.trim();
            (!line.is_empty()).then(|| line.to_owned())
        };
        Self {
            hostnqn: first_line("/etc/nvme/hostnqn"),
            hostid: first_line("/etc/nvme/hostid"),
            machine_id: first_line("/etc/machine-id"),
        }
    }

    /// Arguments win over `/etc/nvme`, that over the machine-id; without any of them a name for this run
    /// only.
    pub(crate) fn identity(&self, nqn: Option<&str>, id: Option<&str>) -> Outcome<Identity> {
        let machine = self.machine_uuid();
        let nqn_text = nqn.or(self.hostnqn.as_deref());
        let nqn = match nqn_text {
            Some(text) => Nqn::parse(text).map_err(|error| {
                let given = if nqn.is_some() { "--host-nqn" } else { "/etc/nvme/hostnqn" };
                Failure::new(Exit::Usage, format!("reading the host NQN from {given}"), error)
            })?,
            None => Nqn::from_uuid(*machine.as_bytes()),
        };
        let id_text = id.or(self.hostid.as_deref());
        let id = match id_text {
            Some(text) => {
                let given = if id.is_some() { "--host-id" } else { "/etc/nvme/hostid" };
                let doing = format!("reading the host identifier {text:?} from {given}");
                let uuid =
                    Uuid::parse_str(text).map_err(|error| Failure::new(Exit::Usage, &*doing, error))?;
                if uuid.is_nil() {
                    return Err(Failure::new(Exit::Usage, doing, "over Fabrics it may not be zero"));
                }
                uuid
            }
            // One host has one identifier: two NQNs with the same one, or the other way round, confuse
            // targets.
            None => nqn
                .as_str()
                .strip_prefix(NQN_UUID_PREFIX)
                .and_then(|text| Uuid::parse_str(text).ok())
                .unwrap_or_else(|| Uuid::new_v5(&machine, nqn.as_str().as_bytes())),
        };
        Ok(Identity { nqn, id: HostId(*id.as_bytes()) })
    }

    fn machine_uuid(&self) -> Uuid {
        match &self.machine_id {
            Some(text) => Uuid::new_v5(&MACHINES, text.as_bytes()),
            None => Uuid::new_v4(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine { machine_id: Some("0123456789abcdef0123456789abcdef".into()), ..Machine::default() }
    }

    #[test]
    fn the_same_machine_has_the_same_identity_at_every_run() {
        let first = machine().identity(None, None).expect("an identity");
        assert_eq!(machine().identity(None, None).expect("an identity"), first);
        let uuid = Uuid::from_bytes(first.id.0);
        assert_eq!(uuid.get_version_num(), 5);
        assert_eq!(first.nqn.as_str(), format!("{NQN_UUID_PREFIX}{uuid}"));
        assert!(!first.nqn.as_str().contains("0123456789abcdef"), "the machine-id is not sent");
    }

    #[test]
    fn nvme_clis_files_win_over_the_machine_id() {
        let uuid = "5a3b4c5d-1111-4222-8333-444455556666";
        let machine =
            Machine { hostnqn: Some(format!("{NQN_UUID_PREFIX}{uuid}")), hostid: None, ..machine() };
        let identity = machine.identity(None, None).expect("an identity");
        assert_eq!(identity.nqn.as_str(), format!("{NQN_UUID_PREFIX}{uuid}"));
        assert_eq!(Uuid::from_bytes(identity.id.0).to_string(), uuid);
    }

    #[test]
    fn arguments_win_over_files() {
        let machine = Machine { hostnqn: Some("nqn.2024-01.example:file".into()), ..machine() };
        let other = "00000000-0000-4000-8000-000000000001";
        let identity =
            machine.identity(Some("nqn.2024-01.example:argument"), Some(other)).expect("an identity");
        assert_eq!(identity.nqn.as_str(), "nqn.2024-01.example:argument");
        assert_eq!(Uuid::from_bytes(identity.id.0).to_string(), other);
    }

    #[test]
    fn two_names_on_one_machine_have_two_identifiers() {
        let a = machine().identity(Some("nqn.2024-01.example:a"), None).expect("an identity");
        let b = machine().identity(Some("nqn.2024-01.example:b"), None).expect("an identity");
        assert_ne!(a.id, b.id);
    }

    #[test]
    fn broken_names_are_usage_errors() {
        for (nqn, id) in [
            (Some("iqn.2024-01.example:a"), None),
            (None, Some("no uuid")),
            (None, Some("00000000-0000-0000-0000-000000000000")),
        ] {
            let failure = machine().identity(nqn, id).expect_err("refused");
            assert_eq!(failure.exit(), Exit::Usage);
        }
    }
}
