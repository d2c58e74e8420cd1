//! Where the bytes of a volume are: volume → segment → extent → shard (design §2).

use ashlar_io::BLOCK_BYTES;
use ashlar_store::{Blocks, EXTENT_BLOCKS};

use crate::shard::Part;

/// Bytes of an extent.
pub(crate) const EXTENT_BYTES: u64 = EXTENT_BLOCKS as u64 * BLOCK_BYTES as u64;

/// Bytes of a segment, unless a volume was created with another size.
pub const SEGMENT_BYTES: u64 = 32 << 30;

/// Shards of a segment of that size: 1 GiB each, many enough to spread over the devices and cores of a node.
pub const SHARDS_PER_SEGMENT: u32 = 32;

/// How a volume is cut up. Fixed at its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    bytes: u64,
    segment_bytes: u64,
    shards: u32,
}

/// The layout of a volume makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Segments are made of whole extents.
    #[error("a segment of {segment_bytes} bytes is not made of whole extents of {EXTENT_BYTES} bytes")]
    SegmentBytes {
        /// What was asked for.
        segment_bytes: u64,
    },
    /// Every segment has at least one shard, and not more than extents.
    #[error("{shards} shards do not fit a segment of {segment_bytes} bytes")]
    Shards {
        /// What was asked for.
        shards: u32,
        /// Bytes of the segment.
        segment_bytes: u64,
    },
    /// Volumes are made of whole blocks, and have at least one.
    #[error("a volume of {bytes} bytes is not made of whole blocks of {BLOCK_BYTES} bytes")]
    Bytes {
        /// What was asked for.
        bytes: u64,
    },
}

/// A part of a request that lies in one extent, and so in one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Index of the segment in the volume.
    pub segment: u32,
    /// Index of the shard in the segment.
    pub shard: u32,
    /// Index of the extent in the segment.
    pub extent: u32,
    /// Which bytes of the extent.
    pub part: Part,
    /// Where it begins in the request, in bytes.
    pub at: u64,
}

impl Piece {
    /// It consists of whole blocks.
    pub fn is_aligned(&self) -> bool {
        self.part.skip == 0 && self.part.len.is_multiple_of(BLOCK_BYTES)
    }
}

impl Layout {
    /// A volume of `bytes`, in segments of `segment_bytes` with `shards` shards each.
    pub fn new(bytes: u64, segment_bytes: u64, shards: u32) -> Result<Self, LayoutError> {
        if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(LayoutError::Bytes { bytes });
        }
        if segment_bytes == 0 || !segment_bytes.is_multiple_of(EXTENT_BYTES) {
            return Err(LayoutError::SegmentBytes { segment_bytes });
        }
        let extents = segment_bytes / EXTENT_BYTES;
        if shards == 0 || u64::from(shards) > extents || extents > u64::from(u32::MAX) {
            return Err(LayoutError::Shards { shards, segment_bytes });
        }
        Ok(Self { bytes, segment_bytes, shards })
    }

    /// Size of the volume in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Segments of the volume; the last one can be cut short.
    pub fn segments(&self) -> u32 {
        u32::try_from(self.bytes.div_ceil(self.segment_bytes)).unwrap_or(u32::MAX)
    }

    /// Shards of each segment.
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// Extents of a segment, as far as the volume reaches.
    pub fn extents(&self, segment: u32) -> u32 {
        let begin = u64::from(segment).saturating_mul(self.segment_bytes);
        let bytes = self.bytes.saturating_sub(begin).min(self.segment_bytes);
        u32::try_from(bytes.div_ceil(EXTENT_BYTES)).unwrap_or(u32::MAX)
    }

    /// Where an extent begins in the volume, in bytes; at most the end of the volume.
    pub fn offset(&self, segment: u32, extent: u32) -> u64 {
        let begin = u64::from(segment).saturating_mul(self.segment_bytes);
        begin.saturating_add(u64::from(extent) * EXTENT_BYTES).min(self.bytes)
    }

    /// The pieces of a request, in order. What lies behind the end of the volume is left out.
    pub fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + use<> {
        let layout = *self;
        let end = offset.saturating_add(len).min(layout.bytes);
        let mut next = offset;
        std::iter::from_fn(move || {
            let piece = layout.piece(offset, next, end)?;
            next += piece.part.len as u64;
            Some(piece)
        })
    }

    fn piece(&self, request: u64, from: u64, end: u64) -> Option<Piece> {
        if from >= end {
            return None;
        }
        let segment = from / self.segment_bytes;
        let within = from % self.segment_bytes;
        let extent = within / EXTENT_BYTES;
        let first_byte = within % EXTENT_BYTES;
        let len = (end - from).min(EXTENT_BYTES - first_byte);
        let block = BLOCK_BYTES as u64;
        let first = first_byte / block;
        let last = (first_byte + len).div_ceil(block);
        let blocks = Blocks::new(u32::try_from(first).ok()?, u32::try_from(last - first).ok()?)?;
        let extent = u32::try_from(extent).ok()?;
        Some(Piece {
            segment: u32::try_from(segment).ok()?,
            shard: extent % self.shards,
            extent,
            part: Part {
                blocks,
                skip: usize::try_from(first_byte % block).ok()?,
                len: usize::try_from(len).ok()?,
            },
            at: from - request,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_cut_at_extents_and_segments() {
        let layout = Layout::new(64 << 20, 16 << 20, 2).expect("a sound layout");
        let pieces: Vec<_> = layout.pieces((16 << 20) - 4096, 8192).collect();
        let places: Vec<_> =
            pieces.iter().map(|piece| (piece.segment, piece.shard, piece.extent, piece.at)).collect();
        assert_eq!(places, [(0, 1, 3, 0), (1, 0, 0, 4096)]);
        assert!(pieces.iter().all(|piece| piece.part.blocks.count() == 1 && piece.is_aligned()));
        assert_eq!(layout.segments(), 4);
    }

    #[test]
    fn the_last_segment_has_fewer_extents() {
        let layout = Layout::new((36 << 20) + 4096, 16 << 20, 2).expect("a sound layout");
        assert_eq!([0, 1, 2, 3].map(|segment| layout.extents(segment)), [4, 4, 2, 0]);
        assert_eq!([layout.offset(1, 2), layout.offset(2, 2)], [24 << 20, (36 << 20) + 4096]);
    }

    #[test]
    fn parts_of_blocks_are_found() {
        let layout = Layout::new(8 << 20, 8 << 20, 2).expect("a sound layout");
        let pieces: Vec<_> = layout.pieces(4096 + 512, 4096).collect();
        let part = pieces[0].part;
        assert_eq!((part.blocks.first(), part.blocks.count(), part.skip, part.len), (1, 2, 512, 4096));
        assert!(!pieces[0].is_aligned());
        assert_eq!(layout.pieces(8 << 20, 1).count(), 0);
    }

    #[test]
    fn senseless_layouts_are_refused() {
        assert!(matches!(Layout::new(100, 4 << 20, 1), Err(LayoutError::Bytes { .. })));
        assert!(matches!(Layout::new(4096, 4096, 1), Err(LayoutError::SegmentBytes { .. })));
        assert!(matches!(Layout::new(4096, 4 << 20, 2), Err(LayoutError::Shards { .. })));
    }
}
