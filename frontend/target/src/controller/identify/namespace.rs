//! Identify Namespace (CNS 00h, 03h, 05h, 08h); NVME N3, N8–N10.

use ashlar_nvme::identify::independent::NSTAT_NRDY;
use ashlar_nvme::identify::namespace::{NMIC_SHARED, dlfeat, nsfeat};
use ashlar_nvme::identify::{
    IdentifyIndependentNamespace, IdentifyNamespace, IdentifyNvmNamespace, LbaFormat, NsIdDescriptor,
    NsIdWriter,
};
use ashlar_nvme::ids::Nsid;
use ashlar_nvme::opcode::Csi;
use ashlar_nvme::wire::{U16, U32, U64};
use ashlar_nvme::{Status, Wire};

use super::super::Controller;
use super::is_within_nn;
use crate::backend::Deallocated;
use crate::inventory::{LbaSize, Namespace};
use crate::io::ATOMIC_BYTES;
use crate::limits;

/// Bytes that are written as a whole, and the unit in which space is given back: one store block (NVME N8).
const STORE_BLOCK_BYTES: u32 = 4096;
// That is also what a fused Compare and Write really does (NACWU).
const _: () = assert!(ATOMIC_BYTES == STORE_BLOCK_BYTES as u64);

/// VWCNP in the independent structure's NSFEAT: this namespace has no volatile write cache.
const NSFEAT_NO_WRITE_CACHE: u8 = 1 << 5;

/// A number of bytes as a 0-based number of blocks.
fn blocks_0based(lba: LbaSize, bytes: u32) -> U16 {
    U16::new((bytes / lba.bytes() - 1) as u16)
}

fn describe(namespace: &Namespace) -> IdentifyNamespace {
    let lba = namespace.lba;
    let unit = blocks_0based(lba, STORE_BLOCK_BYTES);
    let mut id = IdentifyNamespace::zeroed();
    let blocks = U64::new(namespace.blocks);
    (id.nsze, id.ncap, id.nuse) = (blocks, blocks, blocks);
    id.nsfeat = nsfeat::OPTPERF | nsfeat::NSABP;
    id.nmic = NMIC_SHARED;
    id.dlfeat = match namespace.backend.deallocated {
        Deallocated::Zeroes => dlfeat::READS_ZEROES | dlfeat::WRITE_ZEROES_DEALLOCATE,
        Deallocated::Unspecified => 0,
    };
    (id.nawun, id.nawupf, id.nacwu) = (unit, unit, unit);
    (id.nabsn, id.nabspf) = (unit, unit);
    (id.npwg, id.npwa, id.npdg, id.npda) = (unit, unit, unit, unit);
    id.nows = blocks_0based(lba, limits::SLICE_BYTES);
    let bytes = u128::from(namespace.blocks) << lba.shift();
    id.nvmcap = bytes.to_le_bytes();
    id.anagrpid = U32::new(namespace.ana_group);
    id.nguid = namespace.nguid.0;
    if let Some(format) = id.lbaf.first_mut() {
        *format = LbaFormat::new(lba.shift() as u8);
    }
    id
}

impl Controller {
    /// CNS 00h: all zero for an NSID that is not in use. Without Namespace Management FFFFFFFFh names
    /// nothing.
    pub(super) fn identify_namespace(&self, nsid: Nsid) -> Result<Vec<u8>, Status> {
        self.described(nsid, describe)
    }

    /// CNS 05h: no protection information, no extended formats.
    pub(super) fn identify_nvm_namespace(&self, nsid: Nsid) -> Result<Vec<u8>, Status> {
        self.described(nsid, |_| IdentifyNvmNamespace::zeroed())
    }

    /// CNS 08h.
    pub(super) fn identify_independent(&self, nsid: Nsid) -> Result<Vec<u8>, Status> {
        self.described(nsid, |namespace| {
            let mut id = IdentifyIndependentNamespace::zeroed();
            id.nsfeat = if namespace.backend.volatile_cache { 0 } else { NSFEAT_NO_WRITE_CACHE };
            id.nmic = NMIC_SHARED;
            id.anagrpid = U32::new(namespace.ana_group);
            id.nstat = NSTAT_NRDY;
            id
        })
    }

    fn described<T: Wire>(
        &self,
        nsid: Nsid,
        describe: impl FnOnce(&Namespace) -> T,
    ) -> Result<Vec<u8>, Status> {
        match self.namespace(nsid) {
            Some(namespace) => Ok(describe(&namespace).bytes().to_vec()),
            None if is_within_nn(nsid) => Ok(vec![0; T::SIZE]),
            None => Err(Status::INVALID_NAMESPACE_OR_FORMAT),
        }
    }

    /// CNS 03h. EUI64 is left out: it would need an OUI (NVME N2).
    pub(super) fn identify_descriptors(&self, nsid: Nsid) -> Result<Vec<u8>, Status> {
        let namespace = self.active_namespace(nsid)?;
        let list = NsIdWriter::default()
            .with(NsIdDescriptor::Nguid(namespace.nguid))
            .with(NsIdDescriptor::Uuid(*namespace.uuid.as_bytes()))
            .with(NsIdDescriptor::csi(Csi::Nvm));
        Ok(list.finish().to_vec())
    }
}
