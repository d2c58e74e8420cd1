//! A volume behind a namespace: each request is cut at extents, and each piece goes to the core that owns its shard.
//!
//! A piece of a shard of this core is a call. One of another core crosses once, with its data in an I/O buffer that
//! both cores' devices write without a copy.

use std::fmt;
use std::rc::Rc;

use ashlar_io::BLOCK_BYTES;
use ashlar_reactor::{CoreId, Error as ReactorError, FrozenBuf, IoBuf, next_turn, peers};
use ashlar_replication::layout::Piece;
use ashlar_replication::{ShardError, VolumeError};
use ashlar_store::lane::ReadData as LaneData;
use ashlar_target::backend::{
    Backend, BackendError, BackendInfo, ByteRange, Clear, Deallocated, Durability, OpenBackend, ReadData,
    WriteData,
};

use super::engine::OpenVolume;
use super::part::{self, Opened, VolumePart};

impl OpenBackend for OpenVolume {
    type Backend = VolumeBackend;

    fn info(&self) -> BackendInfo {
        BackendInfo {
            bytes: self.layout.bytes(),
            // What is less than a block is read, changed and written at the shard.
            access_bytes: 512,
            volatile_cache: self.volatile,
            deallocated: Deallocated::Zeroes,
        }
    }

    async fn open(&self, core: CoreId) -> Result<VolumeBackend, BackendError> {
        Ok(VolumeBackend { core, own: part::volume(self.id), volume: self.clone() })
    }
}

/// One core's handle on a volume.
pub struct VolumeBackend {
    core: CoreId,
    volume: OpenVolume,
    /// Shards of this core, if it has any.
    own: Option<Rc<Opened>>,
}

impl fmt::Debug for VolumeBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeBackend").field("core", &self.core).field("id", &self.volume.id).finish()
    }
}

/// What is asked of a volume, of one piece.
#[derive(Clone)]
enum Work {
    Read,
    /// Whole blocks.
    Write(FrozenBuf, Durability),
    /// Parts of blocks.
    WritePart(FrozenBuf, Durability),
    Clear(Durability),
}

/// What it brings.
enum Answer {
    Done,
    Zeroes,
    Blocks(IoBuf),
}

fn failed(error: &VolumeError, piece: &Piece, read: bool) -> BackendError {
    match error {
        VolumeError::Shard(ShardError::NoSpace { .. }) => BackendError::CapacityExceeded,
        VolumeError::Shard(ShardError::Unrecovered { .. }) => {
            // The host asked for bytes from here on.
            BackendError::Unrecovered { offset: piece.at }
        }
        VolumeError::NotHere { .. } => BackendError::NotReady,
        other if read => BackendError::ReadFault(std::io::Error::other(other.to_string())),
        other => BackendError::WriteFault(std::io::Error::other(other.to_string())),
    }
}

/// Does a piece's work on the core that owns its shard.
async fn work(volume: &VolumePart, piece: &Piece, work: Work) -> Result<Answer, BackendError> {
    let durability = match &work {
        Work::Read => {
            let read = volume.read(piece).await.map_err(|error| failed(&error, piece, true))?;
            return Ok(match read {
                LaneData::Zeroes => Answer::Zeroes,
                LaneData::Buffer(buffer) => Answer::Blocks(buffer),
            });
        }
        Work::Write(_, durability) | Work::WritePart(_, durability) | Work::Clear(durability) => *durability,
    };
    let written = match work {
        Work::Write(data, _) => volume.write(piece, data).await,
        Work::WritePart(data, _) => volume.write_part(piece, &data).await,
        Work::Clear(_) | Work::Read => volume.clear(piece).await,
    };
    written.map_err(|error| failed(&error, piece, false))?;
    if durability == Durability::Durable
        && let Some(shard) = volume.shard(piece.segment, piece.shard)
    {
        let flushed = shard.flush().await.map_err(VolumeError::from);
        flushed.map_err(|error| failed(&error, piece, false))?;
    }
    Ok(Answer::Done)
}

impl VolumeBackend {
    fn home(&self, piece: &Piece) -> CoreId {
        let index = piece.segment as usize * self.volume.layout.shards() as usize + piece.shard as usize;
        // Pieces are within the volume, all of whose shards have a core.
        self.volume.homes.get(index).copied().unwrap_or(self.core)
    }

    /// Has a piece's work done where its shard is.
    async fn ask(&self, piece: Piece, asked: Work) -> Result<Answer, BackendError> {
        let home = self.home(&piece);
        if home == self.core {
            let own = self.own.as_ref().ok_or(BackendError::NotReady)?;
            return work(&own.volume, &piece, asked).await;
        }
        let id = self.volume.id;
        self.cross(home, move || {
            let asked = asked.clone();
            move || async move {
                let there = part::volume(id).ok_or(BackendError::NotReady)?;
                work(&there.volume, &piece, asked).await
            }
        })
        .await
    }

    /// Runs something on another core; waits its turn if that has too much to do.
    async fn cross<T, F, Fut>(&self, core: CoreId, again: impl Fn() -> F) -> Result<T, BackendError>
    where
        T: Send + 'static,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, BackendError>> + 'static,
    {
        let cores = peers().ok_or(BackendError::NotReady)?;
        loop {
            match cores.run_on(core, again()).await {
                Ok(answer) => return answer,
                Err(ReactorError::InboxFull { .. }) => next_turn().await,
                Err(_) => return Err(BackendError::NotReady),
            }
        }
    }
}

/// The bytes that were asked for, out of whole blocks.
fn cut(mut blocks: IoBuf, piece: &Piece) -> IoBuf {
    let (skip, len) = (piece.part.skip, piece.part.len);
    if skip > 0 {
        blocks.copy_within(skip..skip + len, 0);
    }
    blocks.truncate(len);
    blocks
}

impl Backend for VolumeBackend {
    async fn read(&self, range: ByteRange) -> Result<ReadData, BackendError> {
        let mut pieces = self.volume.layout.pieces(range.offset, range.len);
        let Some(first) = pieces.next() else { return Ok(ReadData::Zeroes) };
        if first.part.len as u64 == range.len {
            let answer = self.ask(first, Work::Read).await.map_err(|error| place(error, range))?;
            return Ok(match answer {
                Answer::Blocks(blocks) => ReadData::Buffer(cut(blocks, &first)),
                Answer::Zeroes | Answer::Done => ReadData::Zeroes,
            });
        }
        // A slice fits the largest buffer.
        let mut whole = IoBuf::wait(range.len as usize).await.ok_or(BackendError::NotReady)?;
        let mut any = false;
        for piece in std::iter::once(first).chain(pieces) {
            let into = piece.at as usize..piece.at as usize + piece.part.len;
            match self.ask(piece, Work::Read).await.map_err(|error| place(error, range))? {
                Answer::Blocks(blocks) => {
                    any = true;
                    whole[into].copy_from_slice(&blocks[piece.part.skip..][..piece.part.len]);
                }
                Answer::Zeroes | Answer::Done => whole[into].fill(0),
            }
        }
        Ok(if any { ReadData::Buffer(whole) } else { ReadData::Zeroes })
    }

    async fn write(
        &self,
        range: ByteRange,
        data: WriteData,
        durability: Durability,
    ) -> Result<(), BackendError> {
        let data = data.into_buffer().await.ok_or(BackendError::NotReady)?.freeze();
        for piece in self.volume.layout.pieces(range.offset, range.len) {
            let part = data.part(piece.at as usize..piece.at as usize + piece.part.len);
            // The data of a whole piece is at a block's boundary only if the request began at one.
            let aligned = piece.is_aligned() && (piece.at as usize).is_multiple_of(BLOCK_BYTES);
            let asked =
                if aligned { Work::Write(part, durability) } else { Work::WritePart(part, durability) };
            self.ask(piece, asked).await?;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), BackendError> {
        let id = self.volume.id;
        let others = peers().into_iter().flat_map(|cores| cores.ids()).filter(|core| *core != self.core);
        let others = others.map(|core| {
            self.cross(core, move || {
                move || async move {
                    match part::volume(id) {
                        Some(there) => flush(&there.volume).await,
                        // No shard of the volume is there.
                        None => Ok(()),
                    }
                }
            })
        });
        let here = async {
            match &self.own {
                Some(own) => flush(&own.volume).await,
                None => Ok(()),
            }
        };
        let (here, others) = futures_util::future::join(here, futures_util::future::join_all(others)).await;
        others.into_iter().fold(here, Result::and)
    }

    async fn clear(&self, range: ByteRange, _: Clear, durability: Durability) -> Result<(), BackendError> {
        for piece in self.volume.layout.pieces(range.offset, range.len) {
            self.ask(piece, Work::Clear(durability)).await?;
            next_turn().await;
        }
        Ok(())
    }
}

async fn flush(volume: &VolumePart) -> Result<(), BackendError> {
    volume.flush().await.map_err(|error| BackendError::WriteFault(std::io::Error::other(error.to_string())))
}

/// The offset of an error in the namespace.
fn place(error: BackendError, range: ByteRange) -> BackendError {
    match error {
        BackendError::Unrecovered { offset } => BackendError::Unrecovered { offset: range.offset + offset },
        other => other,
    }
}
