//! Supported log pages, 00h (NVMe Base 2.0 §5.16.1.1).

use crate::log::LogId;
use crate::wire::{bits, wire};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

bits! {
    /// Support for one log page.
    LogSupport: u32 {
        /// LSUPP: supported.
        lsupp, with_lsupp: 0..1 as bool;
        /// IOS: index offset supported.
        ios, with_ios: 1..1 as bool;
        /// Log specific parameter of LID 0Dh and others.
        lidsp, with_lidsp: 16..16 as u16;
    }
}

/// Which log pages there are, 1024 bytes, by LID.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SupportedLogPages {
    /// Support by LID.
    pub lid: [U32; 256],
}

impl SupportedLogPages {
    /// Marks a page as supported.
    pub fn set(&mut self, lid: LogId) {
        if let Some(e) = self.lid.get_mut(usize::from(lid.code())) {
            *e = U32::new(LogSupport(0).with_lsupp(true).0);
        }
    }

    /// Whether a page is supported.
    #[must_use]
    pub fn has(&self, lid: LogId) -> bool {
        self.lid.get(usize::from(lid.code())).is_some_and(|e| LogSupport(e.get()).lsupp())
    }
}

wire! { SupportedLogPages = 1024, "supported log pages"; }
