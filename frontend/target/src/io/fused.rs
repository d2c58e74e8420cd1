//! Fused Compare-and-Write: finding the two halves, and carrying them out as one.

use ashlar_nvme::Status;
use ashlar_nvme::command::{FusedOperation, Sqe};
use ashlar_nvme::opcode::NvmOpcode;
use ashlar_reactor::spawn_join;

use super::check::{Request, check};
use super::compare::equal;
use super::execute::durability;
use super::{DataPort, NamespaceCore, gate};
use crate::WriteCache;
use crate::backend::{Backend, WriteData};
use crate::inventory::Namespace;

/// Largest Compare-and-Write in bytes: one store block, which it may not straddle (NACWU; NVME N8).
pub const ATOMIC_BYTES: u64 = 4096;

/// A fused pair that passed [`check_fused`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FusedRequest {
    compare: Request,
    write: Request,
}

impl FusedRequest {
    /// The first half; its transfer is the data to compare with.
    pub fn compare(&self) -> &Request {
        &self.compare
    }

    /// The second half; its transfer is the data to write.
    pub fn write(&self) -> &Request {
        &self.write
    }
}

/// Checks both halves of a pair, each with the length that its data pointer gives. The statuses are for the
/// first and the second half, in this order.
pub fn check_fused(
    first: (&Sqe, u32),
    second: (&Sqe, u32),
    namespace: &Namespace,
) -> Result<FusedRequest, (Status, Status)> {
    let halves = (NvmOpcode::try_from(first.0.opcode), NvmOpcode::try_from(second.0.opcode));
    // FUSES announces Compare and Write only; the ranges must be the same (NVM Command Set 1.0 §2.1.1).
    if !matches!(halves, (Ok(NvmOpcode::Compare), Ok(NvmOpcode::Write))) || first.0.nsid != second.0.nsid {
        return Err((Status::INVALID_FIELD, Status::INVALID_FIELD));
    }
    let compare =
        check(first.0, namespace, first.1).map_err(|status| (status, Status::ABORTED_FAILED_FUSED))?;
    let write =
        check(second.0, namespace, second.1).map_err(|status| (Status::ABORTED_FAILED_FUSED, status))?;
    if compare.range != write.range {
        return Err((Status::INVALID_FIELD, Status::INVALID_FIELD));
    }
    let last = compare.range.end().saturating_sub(1);
    if compare.range.offset / ATOMIC_BYTES != last / ATOMIC_BYTES {
        return Err((Status::ATOMIC_WRITE_UNIT_EXCEEDED, Status::ABORTED_FAILED_FUSED));
    }
    Ok(FusedRequest { compare, write })
}

/// Carries out a fused pair: fetches both halves' data, then compares and writes with no other write of any
/// core in between (`gate`). The statuses are for the first and the second half; they are answered in that
/// order (NVME N11). Once the data is there the pair runs to its end, also if the future is dropped.
pub async fn execute_fused<B: Backend, P: DataPort>(
    namespace: &NamespaceCore<B>,
    request: &FusedRequest,
    compare_port: &P,
    write_port: &P,
    cache: WriteCache,
) -> (Status, Status) {
    Box::pin(fetch_and_run(namespace, request, compare_port, write_port, cache)).await
}

async fn fetch_and_run<B: Backend, P: DataPort>(
    namespace: &NamespaceCore<B>,
    request: &FusedRequest,
    compare_port: &P,
    write_port: &P,
    cache: WriteCache,
) -> (Status, Status) {
    let range = request.write.range;
    if range.end() > namespace.bytes() {
        return (Status::LBA_OUT_OF_RANGE, Status::ABORTED_FAILED_FUSED);
    }
    let len = range.len as u32;
    let halves = (compare_port, write_port);
    let expected = match waiting(halves, compare_port.fetch(0, len)).await {
        Ok(Ok(data)) => data,
        Ok(Err(status)) => return (status, Status::ABORTED_FAILED_FUSED),
        Err(statuses) => return statuses,
    };
    let new = match waiting(halves, write_port.fetch(0, len)).await {
        Ok(Ok(data)) => data,
        Ok(Err(status)) => return (Status::ABORTED_FAILED_FUSED, status),
        Err(statuses) => return statuses,
    };
    // At most 4 KiB each, which fit a buffer; receive buffers are too few to be held while waiting for other
    // cores.
    let buffers = async { expected.into_buffer().await.zip(new.into_buffer().await) };
    let (expected, new) = match waiting(halves, buffers).await {
        Ok(Some(buffers)) => buffers,
        Ok(None) => return (Status::ATOMIC_WRITE_UNIT_EXCEEDED, Status::ABORTED_FAILED_FUSED),
        Err(statuses) => return statuses,
    };
    let flush_first = request.compare.force_unit_access && namespace.volatile_cache();
    let durability = durability(&request.write, cache);
    let (id, home, held) = (namespace.gate_id(), namespace.home(), namespace.clone());
    let pair = async move {
        let backend = held.backend();
        if flush_first && let Err(error) = backend.flush().await {
            return (error.status(), Status::ABORTED_FAILED_FUSED);
        }
        match backend.read(range).await {
            Ok(stored) if equal(&stored, &expected) => {}
            Ok(_) => return (Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED),
            Err(error) => return (error.status(), Status::ABORTED_FAILED_FUSED),
        }
        match backend.write(range, WriteData::Buffer(new), durability).await {
            Ok(()) => (Status::SUCCESS, Status::SUCCESS),
            Err(error) => (Status::ABORTED_FAILED_FUSED, error.status()),
        }
    };
    let outcome = spawn_join(gate::alone(id, home, range, pair)).await;
    // Not started because a core was too busy to be asked; or the core is stopping.
    outcome.ok().flatten().unwrap_or((Status::COMMAND_INTERRUPTED, Status::ABORTED_FAILED_FUSED))
}

/// Waits on behalf of both halves: who aborts one of them ends both.
async fn waiting<P: DataPort, T>(
    (compare, write): (&P, &P),
    wait: impl Future<Output = T>,
) -> Result<T, (Status, Status)> {
    match compare.wait(write.wait(wait)).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(status)) => Err((Status::ABORTED_FAILED_FUSED, status)),
        Err(status) => Err((status, Status::ABORTED_FAILED_FUSED)),
    }
}

/// Finds the pairs among a queue's commands, which are adjacent (NVMe Base 2.0 §3.4.2).
#[derive(Debug)]
pub struct Pairing<T> {
    first: Option<T>,
}

/// What becomes of a command that arrived, and of a first half that was held.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival<T> {
    /// Not fused: start it.
    Alone(T),
    /// A first half: it waits for the next command.
    Held,
    /// Both halves: start them as one.
    Pair(T, T),
    /// The held first half misses its second: answer it with [`Pairing::MISSING`], then start `then`, or if
    /// that is `None`, the arrived command is a first half itself and is held now.
    Widowed {
        /// The one to be answered.
        first: T,
        /// The one to be started.
        then: Option<T>,
    },
    /// A second half without a first: answer it with [`Pairing::MISSING`].
    Orphan(T),
}

impl<T> Default for Pairing<T> {
    fn default() -> Self {
        Self { first: None }
    }
}

impl<T> Pairing<T> {
    /// Status of a half whose other half is missing: 0Ah.
    pub const MISSING: Status = Status::ABORTED_MISSING_FUSED;

    /// A command arrived, with its FUSE field.
    pub fn arrive(&mut self, fused: FusedOperation, command: T) -> Arrival<T> {
        match (fused, self.first.take()) {
            (FusedOperation::Normal, None) => Arrival::Alone(command),
            (FusedOperation::Normal, Some(first)) => Arrival::Widowed { first, then: Some(command) },
            (FusedOperation::First, held) => {
                self.first = Some(command);
                held.map_or(Arrival::Held, |first| Arrival::Widowed { first, then: None })
            }
            (FusedOperation::Second, Some(first)) => Arrival::Pair(first, command),
            (FusedOperation::Second, None) => Arrival::Orphan(command),
        }
    }

    /// The first half that is held.
    pub fn held(&self) -> Option<&T> {
        self.first.as_ref()
    }

    /// The first half that is held, to be given up when its queue ends.
    pub fn take_held(&mut self) -> Option<T> {
        self.first.take()
    }
}

#[cfg(test)]
mod tests {
    use ashlar_nvme::ids::Nguid;
    use ashlar_nvme::nvm::{RwCommand, RwControl};
    use ashlar_nvme::sgl::DataPointer;
    use ashlar_nvme::{CommandId, Lba, Nsid};

    use super::*;
    use crate::backend::{BackendInfo, Deallocated};
    use crate::inventory::{AnaState, LbaSize};

    const BLOCK: u32 = 4096;

    fn namespace(lba: LbaSize) -> Namespace {
        let backend = BackendInfo {
            bytes: 1 << 20,
            access_bytes: 512,
            volatile_cache: false,
            deallocated: Deallocated::Zeroes,
        };
        let (uuid, nguid) = (uuid::Uuid::from_u128(1), Nguid([1; 16]));
        let blocks = (1 << 20) >> lba.shift();
        let ana_state = AnaState::Optimized;
        Namespace { nsid: Nsid(1), uuid, nguid, lba, blocks, backend, ana_group: 1, ana_state }
    }

    fn half(opcode: NvmOpcode, slba: u64, nlb: u32) -> Sqe {
        let command = RwCommand { slba: Lba(slba), nlb, control: RwControl(0) };
        command.to_sqe(opcode, CommandId(1), Nsid(1), DataPointer::None)
    }

    fn pair_of(lba: LbaSize, slba: u64, nlb: u32) -> Result<FusedRequest, (Status, Status)> {
        let bytes = nlb << lba.shift();
        let (compare, write) = (half(NvmOpcode::Compare, slba, nlb), half(NvmOpcode::Write, slba, nlb));
        check_fused((&compare, bytes), (&write, bytes), &namespace(lba))
    }

    #[test]
    fn more_than_one_store_block_exceeds_the_atomic_unit() {
        let exceeded = Err((Status::ATOMIC_WRITE_UNIT_EXCEEDED, Status::ABORTED_FAILED_FUSED));
        assert!(pair_of(LbaSize::B4096, 5, 1).is_ok());
        assert_eq!(pair_of(LbaSize::B4096, 5, 2), exceeded);
        assert!(pair_of(LbaSize::B512, 8, 8).is_ok());
        assert!(pair_of(LbaSize::B512, 15, 1).is_ok());
        assert_eq!(pair_of(LbaSize::B512, 15, 2), exceeded);
        assert_eq!(pair_of(LbaSize::B512, 8, 9), exceeded);
    }

    #[test]
    fn halves_that_do_not_belong_together_are_an_invalid_field() {
        let described = namespace(LbaSize::B4096);
        let compare = half(NvmOpcode::Compare, 1, 1);
        let mut elsewhere = half(NvmOpcode::Write, 1, 1);
        elsewhere.nsid = 2.into();
        let invalid = Err((Status::INVALID_FIELD, Status::INVALID_FIELD));
        for second in [half(NvmOpcode::Write, 2, 1), half(NvmOpcode::Read, 1, 1), elsewhere] {
            assert_eq!(check_fused((&compare, BLOCK), (&second, BLOCK), &described), invalid);
        }
        let write = half(NvmOpcode::Write, 1, 1);
        assert_eq!(check_fused((&write, BLOCK), (&write, BLOCK), &described), invalid);
    }

    #[test]
    fn a_half_that_fails_by_itself_takes_the_other_along() {
        let described = namespace(LbaSize::B4096);
        let (compare, write) = (half(NvmOpcode::Compare, 1, 1), half(NvmOpcode::Write, 1, 1));
        let beyond = half(NvmOpcode::Compare, 256, 1);
        assert_eq!(
            check_fused((&beyond, BLOCK), (&write, BLOCK), &described),
            Err((Status::LBA_OUT_OF_RANGE, Status::ABORTED_FAILED_FUSED))
        );
        assert_eq!(
            check_fused((&compare, BLOCK), (&write, 512), &described),
            Err((Status::ABORTED_FAILED_FUSED, Status::DATA_SGL_LENGTH_INVALID))
        );
    }

    #[test]
    fn adjacent_halves_make_a_pair() {
        let mut pairing = Pairing::default();
        assert_eq!(pairing.arrive(FusedOperation::Normal, 1), Arrival::Alone(1));
        assert_eq!(pairing.arrive(FusedOperation::First, 2), Arrival::Held);
        assert_eq!(pairing.arrive(FusedOperation::Second, 3), Arrival::Pair(2, 3));
        assert_eq!(pairing.take_held(), None);
    }

    #[test]
    fn a_missing_half_is_found_in_every_order() {
        let mut pairing = Pairing::default();
        assert_eq!(pairing.arrive(FusedOperation::Second, 1), Arrival::Orphan(1));
        assert_eq!(pairing.arrive(FusedOperation::First, 2), Arrival::Held);
        assert_eq!(pairing.arrive(FusedOperation::First, 3), Arrival::Widowed { first: 2, then: None });
        assert_eq!(pairing.arrive(FusedOperation::Normal, 4), Arrival::Widowed { first: 3, then: Some(4) });
        assert_eq!(pairing.arrive(FusedOperation::Second, 5), Arrival::Orphan(5));
        assert_eq!(pairing.arrive(FusedOperation::First, 6), Arrival::Held);
        assert_eq!(pairing.take_held(), Some(6));
        assert_eq!(Pairing::<u8>::MISSING.code(), 0x0A);
    }
}
