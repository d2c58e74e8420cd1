//! Namespace identification descriptor list, CNS 03h (NVMe Base 2.0 figure 278).

use crate::identify::IDENTIFY_SIZE;
use crate::ids::{Eui64, Nguid};
use crate::opcode::Csi;

/// One descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NsIdDescriptor {
    /// NIDT 1, 8 bytes.
    Eui64(Eui64),
    /// NIDT 2, 16 bytes.
    Nguid(Nguid),
    /// NIDT 3, 16 bytes in printed order.
    Uuid([u8; 16]),
    /// NIDT 4, 1 byte.
    Csi(u8),
}

impl NsIdDescriptor {
    /// The descriptor of a command set.
    #[must_use]
    pub fn csi(csi: Csi) -> NsIdDescriptor {
        NsIdDescriptor::Csi(csi.code())
    }

    fn parts(&self) -> (u8, &[u8]) {
        match self {
            NsIdDescriptor::Eui64(v) => (1, &v.0),
            NsIdDescriptor::Nguid(v) => (2, &v.0),
            NsIdDescriptor::Uuid(v) => (3, v),
            NsIdDescriptor::Csi(v) => (4, std::slice::from_ref(v)),
        }
    }
}

/// Writes descriptors one after the other; a zero header ends the list.
#[derive(Debug)]
pub struct NsIdWriter {
    bytes: Box<[u8; IDENTIFY_SIZE]>,
    len: usize,
}

impl Default for NsIdWriter {
    fn default() -> NsIdWriter {
        NsIdWriter { bytes: Box::new([0; IDENTIFY_SIZE]), len: 0 }
    }
}

impl NsIdWriter {
    /// Appends a descriptor. One that does not fit is left out; all four kinds together take 57 bytes.
    #[must_use]
    pub fn with(mut self, descriptor: NsIdDescriptor) -> NsIdWriter {
        let (nidt, nid) = descriptor.parts();
        let end = self.len + HEADER + nid.len();
        if let Some([to_nidt, to_nidl, _, _, to_nid @ ..]) = self.bytes.get_mut(self.len..end) {
            *to_nidt = nidt;
            *to_nidl = nid.len() as u8;
            to_nid.copy_from_slice(nid);
            self.len = end;
        }
        self
    }

    /// The 4096 bytes.
    #[must_use]
    pub fn finish(self) -> Box<[u8; IDENTIFY_SIZE]> {
        self.bytes
    }
}

/// Bytes before each identifier: NIDT, NIDL, two reserved.
const HEADER: usize = 4;

/// Reads descriptors; unknown types and wrong lengths are skipped, a broken tail ends the list.
#[derive(Debug, Clone)]
pub struct NsIdDescriptors<'a>(&'a [u8]);

impl<'a> NsIdDescriptors<'a> {
    /// Over the bytes of an Identify answer.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> NsIdDescriptors<'a> {
        NsIdDescriptors(bytes)
    }
}

impl Iterator for NsIdDescriptors<'_> {
    type Item = NsIdDescriptor;

    fn next(&mut self) -> Option<NsIdDescriptor> {
        loop {
            let [nidt, nidl, _, _, rest @ ..] = self.0 else { return None };
            // A zero length ends the list (NVMe Base 2.0 figure 278).
            if *nidl == 0 {
                self.0 = &[];
                return None;
            }
            let Some((nid, rest)) = rest.split_at_checked(usize::from(*nidl)) else {
                self.0 = &[];
                return None;
            };
            self.0 = rest;
            let found = match nidt {
                1 => nid.try_into().ok().map(|v| NsIdDescriptor::Eui64(Eui64(v))),
                2 => nid.try_into().ok().map(|v| NsIdDescriptor::Nguid(Nguid(v))),
                3 => nid.try_into().ok().map(NsIdDescriptor::Uuid),
                4 => <[u8; 1]>::try_from(nid).ok().map(|[v]| NsIdDescriptor::Csi(v)),
                _ => None,
            };
            if found.is_some() {
                return found;
            }
        }
    }
}
