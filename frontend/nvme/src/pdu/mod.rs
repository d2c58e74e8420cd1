//! NVMe/TCP PDUs: one file per kind, and the checked decoding of their headers (NVMe-TCP 1.0 §3.6).

pub mod capsule;
pub mod check;
pub mod data;
pub mod header;
pub mod ic;
pub mod r2t;
pub mod term;

pub use capsule::{CapsuleCmd, CapsuleResp};
pub use check::{Direction, HeaderError, HeaderRules, PduLayout, Phase};
pub use data::{C2hData, H2cData};
pub use header::{CommonHeader, DigestUse, Pda, PduKind, flags};
pub use ic::{DigestGrant, IcReq, IcResp};
pub use r2t::R2t;
pub use term::{FatalErrorStatus, TermReq};
