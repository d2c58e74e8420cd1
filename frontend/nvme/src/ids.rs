//! Newtypes for every kind of number and name that identifies something.

use std::fmt;
use std::sync::Arc;

/// Namespace identifier (NVMe Base 2.0 §3.2.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Nsid(pub u32);

impl Nsid {
    /// No namespace.
    pub const NONE: Nsid = Nsid(0);
    /// All namespaces of the controller.
    pub const BROADCAST: Nsid = Nsid(0xFFFF_FFFF);

    /// Whether it can name one namespace: neither 0, FFFFFFFFh nor the reserved FFFFFFFEh.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.0 != 0 && self.0 < 0xFFFF_FFFE
    }
}

impl fmt::Display for Nsid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Controller identifier (NVMe Base 2.0 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cntlid(pub u16);

impl Cntlid {
    /// In an admin Connect: any controller, the dynamic model (NVMe Base 2.0 §6.3).
    pub const DYNAMIC: Cntlid = Cntlid(0xFFFF);
    /// In an admin Connect to the static model: any available controller.
    pub const STATIC_ANY: Cntlid = Cntlid(0xFFFE);
    /// Identifiers from here on are reserved (NVMe Base 2.0 §3.1).
    pub const RESERVED_FROM: u16 = 0xFFF0;
}

impl fmt::Display for Cntlid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Queue identifier; 0 is the admin queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qid(pub u16);

impl Qid {
    /// The admin queue.
    pub const ADMIN: Qid = Qid(0);

    /// Whether it is the admin queue.
    #[must_use]
    pub const fn is_admin(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Qid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Command identifier, unique among a queue's outstanding commands. FFFFh is not used (NVMe Base 2.0
/// §3.3.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(pub u16);

/// Logical block address, in logical blocks of the namespace's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Lba(pub u64);

/// NQN of the well-known discovery subsystem (NVMe Base 2.0 §4.5).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Longest NQN in bytes, without the terminator (NVMe Base 2.0 §4.5).
pub const NQN_MAX: usize = 223;

/// Bytes of an NQN field in a structure.
pub const NQN_FIELD: usize = 256;

const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// Why a string or field is no NQN.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NqnError {
    /// Nothing there.
    #[error("the NQN is empty")]
    Empty,
    /// Longer than [`NQN_MAX`] bytes, or a field without its terminator.
    #[error("the NQN has {0} bytes, at most {NQN_MAX} are allowed")]
    TooLong(usize),
    /// Bytes that are no UTF-8, or control characters.
    #[error("the NQN holds bytes that are not printable UTF-8")]
    NotText,
    /// Not `nqn.yyyy-mm.reverse.domain[:name]`.
    #[error("the NQN {0:?} does not have the form nqn.yyyy-mm.reverse.domain[:name]")]
    Form(String),
    /// `…:uuid:` not followed by a UUID.
    #[error("the NQN {0:?} does not end in a UUID after \":uuid:\"")]
    Uuid(String),
}

/// NVMe qualified name, valid by construction. A clone is a reference count.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nqn(Arc<str>);

impl Nqn {
    /// Checks the form that NVMe Base 2.0 §4.5 gives.
    pub fn parse(text: &str) -> Result<Nqn, NqnError> {
        if text.is_empty() {
            return Err(NqnError::Empty);
        }
        if text.len() > NQN_MAX {
            return Err(NqnError::TooLong(text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err(NqnError::NotText);
        }
        if !has_date_form(text) {
            return Err(NqnError::Form(text.to_owned()));
        }
        if let Some(uuid) = text.strip_prefix(UUID_PREFIX)
            && !is_uuid(uuid)
        {
            return Err(NqnError::Uuid(text.to_owned()));
        }
        Ok(Nqn(Arc::from(text)))
    }

    /// From a zero-terminated field of a structure. What follows the terminator is ignored.
    pub fn from_field(field: &[u8; NQN_FIELD]) -> Result<Nqn, NqnError> {
        let len = field.iter().position(|&b| b == 0).unwrap_or(field.len());
        if len > NQN_MAX {
            return Err(NqnError::TooLong(len));
        }
        let text =
            std::str::from_utf8(field.get(..len).unwrap_or_default()).map_err(|_| NqnError::NotText)?;
        Nqn::parse(text)
    }

    /// The zero-filled field of a structure.
    #[must_use]
    pub fn to_field(&self) -> [u8; NQN_FIELD] {
        let mut field = [0; NQN_FIELD];
        for (to, from) in field.iter_mut().zip(self.0.bytes()) {
            *to = from;
        }
        field
    }

    /// The discovery subsystem's well-known name.
    #[must_use]
    pub fn discovery() -> Nqn {
        Nqn(Arc::from(DISCOVERY_NQN))
    }

    /// `nqn.2014-08.org.nvmexpress:uuid:…` of a UUID's 16 bytes in their printed order.
    #[must_use]
    pub fn from_uuid(uuid: [u8; 16]) -> Nqn {
        use std::fmt::Write;
        let mut text = String::from(UUID_PREFIX);
        for (i, byte) in uuid.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            // Writing into a String never fails.
            let _ = write!(text, "{byte:02x}");
        }
        Nqn(Arc::from(text))
    }

    /// Whether it is the well-known discovery name.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        &*self.0 == DISCOVERY_NQN
    }

    /// Whether it has the UUID form.
    #[must_use]
    pub fn is_uuid_form(&self) -> bool {
        self.0.starts_with(UUID_PREFIX)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn has_date_form(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("nqn.") else { return false };
    let Some((date, domain)) = rest.split_once('.') else { return false };
    let mut bytes = date.bytes();
    let digits =
        |n: usize, bytes: &mut std::str::Bytes<'_>| bytes.by_ref().take(n).all(|b| b.is_ascii_digit());
    date.len() == 7
        && digits(4, &mut bytes)
        && bytes.next() == Some(b'-')
        && digits(2, &mut bytes)
        && !domain.is_empty()
        && !domain.starts_with(':')
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nqn({})", self.0)
    }
}

impl AsRef<str> for Nqn {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Nqn {
    type Err = NqnError;

    fn from_str(text: &str) -> Result<Nqn, NqnError> {
        Nqn::parse(text)
    }
}

/// Host identifier, 128 bits as over Fabrics (NVMe Base 2.0 §5.27.1.25).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(pub [u8; 16]);

impl HostId {
    /// Whether it is all zero, which over Fabrics no host may use (NVMe Base 2.0 §6.3).
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }
}

/// Namespace globally unique identifier: vendor extension, OUI, extension; big-endian (NVMe Base 2.0 §4.5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Nguid(pub [u8; 16]);

/// IEEE extended unique identifier, big-endian; zero when there is no OUI (NVME N2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Eui64(pub [u8; 8]);
