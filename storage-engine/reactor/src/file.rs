//! Files and block devices through the ring: direct I/O, registered files and buffers, syncs, holes.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use io_uring::{opcode, squeue, types};

use crate::buffer::IoBuf;
use crate::core;
use crate::frozen::{FrozenBuf, StableBytes};
use crate::ops::{Op, close_descriptor, no_cleanup};
use crate::sys;

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenOptions {
    /// Open for writing as well as reading.
    pub write: bool,
    /// Create the file if it is missing.
    pub create: bool,
    /// Bypass the page cache: buffers, offsets and lengths must be multiples of the logical block size.
    pub direct: bool,
    /// For block devices: fail if somebody else has it open exclusively or mounted.
    pub exclusive: bool,
}

/// What kind of thing was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    BlockDevice,
}

/// Size and alignment of what was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// File or block device.
    pub kind: FileKind,
    /// Size in bytes.
    pub bytes: u64,
    /// Smallest unit of direct I/O, in bytes. For a regular file what direct I/O is sure to take: 4096.
    pub logical_block_bytes: u32,
    /// Unit that the device writes without read-modify-write, in bytes.
    pub physical_block_bytes: u32,
    /// The device has a cache that a power loss empties. Files count as having one: theirs is the page
    /// cache's and the file system's journal.
    pub volatile_cache: bool,
    /// The device supports discard.
    pub discard: bool,
}

/// Whether a write must be durable when it completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Durable after the next successful [`File::sync_data`].
    Cached,
    /// Durable at completion (`RWF_DSYNC`).
    Through,
}

/// What becomes of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clear {
    /// Reads as zeroes and its space is given back.
    Deallocate,
    /// Reads as zeroes and stays allocated.
    Zero,
}

/// An open file or block device, on one core.
#[derive(Debug, Clone)]
pub struct File {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    fd: OwnedFd,
    /// Slot in the ring's file table.
    slot: Option<u32>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Some(slot) = self.slot else { return };
        core::with(|core| {
            // Once unregistered the kernel lets go of the file when the operations in flight have ended.
            if core.ring_operation(|ring| ring.submitter().register_files_update(slot, &[-1])).is_ok() {
                core.fixed_files.borrow_mut().push(slot);
            }
        });
    }
}

impl File {
    /// Opens `path`.
    pub async fn open(path: &Path, options: OpenOptions) -> io::Result<File> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mut flags = libc::O_CLOEXEC | if options.write { libc::O_RDWR } else { libc::O_RDONLY };
        for (wanted, flag) in [
            (options.create, libc::O_CREAT),
            (options.direct, libc::O_DIRECT),
            (options.exclusive, libc::O_EXCL),
        ] {
            if wanted {
                flags |= flag;
            }
        }
        // SAFETY: the path is on the heap and owned by the operation.
        let op = unsafe {
            Op::submit(path, close_descriptor, |path| {
                opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr()).flags(flags).mode(0o600).build()
            })
        };
        let (completion, _) = op.await;
        completion.value()?;
        Ok(File::adopt(sys::adopt(completion.result)))
    }

    /// Uses what is open already on the current core. Descriptors of one open file can be used by several cores at the
    /// same time: a lock or an exclusive opening that belongs to it then ends only with the last operation of all.
    pub fn adopt(fd: OwnedFd) -> File {
        let slot = core::with(|core| {
            let slot = core.fixed_files.borrow_mut().pop()?;
            let update =
                |ring: &io_uring::IoUring| ring.submitter().register_files_update(slot, &[fd.as_raw_fd()]);
            if core.ring_operation(update).is_ok() {
                return Some(slot);
            }
            core.fixed_files.borrow_mut().push(slot);
            None
        });
        File { shared: Rc::new(Shared { fd, slot }) }
    }

    /// Size and alignment. Reads sysfs for a block device: for set-up, not for the hot path.
    pub fn geometry(&self) -> io::Result<Geometry> {
        geometry(self.shared.fd.as_fd())
    }

    /// Sets a regular file's size.
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        std::fs::File::from(self.shared.fd.try_clone()?).set_len(bytes)
    }

    /// What `build` makes of the file's descriptor, or of its slot in the ring's table if it has one.
    fn entry(&self, build: impl FnOnce(types::Fd) -> squeue::Entry) -> squeue::Entry {
        match self.shared.slot {
            // A slot is named where a descriptor is, and told apart by the flag.
            Some(slot) => build(types::Fd(slot as i32)).flags(squeue::Flags::FIXED_FILE),
            None => build(types::Fd(self.shared.fd.as_raw_fd())),
        }
    }

    /// Reads `buffer.len()` bytes at `offset`. Fewer only at the end of the file. The buffer comes back.
    pub async fn read_at(&self, buffer: IoBuf, offset: u64) -> (io::Result<usize>, IoBuf) {
        let resource = (buffer, Rc::clone(&self.shared));
        // SAFETY: the bytes belong to the buffer, which the operation owns; moving an `IoBuf` does not move
        // them.
        let op = unsafe {
            Op::submit(resource, no_cleanup, |(buffer, _)| {
                let (at, len) = (buffer.pointer(), buffer.len() as u32);
                self.entry(|fd| match buffer.fixed_index() {
                    Some(index) => opcode::ReadFixed::new(fd, at, len, index).offset(offset).build(),
                    None => opcode::Read::new(fd, at, len).offset(offset).build(),
                })
            })
        };
        let (completion, (buffer, _)) = op.await;
        (completion.value().map(|read| read as usize), buffer)
    }

    /// Writes the buffer at `offset`; the number of bytes written can be smaller at the end of a device or on
    /// a full file system. The buffer comes back.
    pub async fn write_at(
        &self,
        buffer: IoBuf,
        offset: u64,
        durability: Durability,
    ) -> (io::Result<usize>, IoBuf) {
        self.write(buffer, offset, durability).await
    }

    /// As [`File::write_at`], for bytes that others may be writing elsewhere at the same time.
    pub async fn write_frozen_at(
        &self,
        buffer: FrozenBuf,
        offset: u64,
        durability: Durability,
    ) -> io::Result<usize> {
        self.write(buffer, offset, durability).await.0
    }

    async fn write<B: StableBytes>(
        &self,
        buffer: B,
        offset: u64,
        durability: Durability,
    ) -> (io::Result<usize>, B) {
        let flags = match durability {
            Durability::Cached => 0,
            Durability::Through => libc::RWF_DSYNC,
        };
        let resource = (buffer, Rc::clone(&self.shared));
        // SAFETY: the bytes stay where they are while the operation owns the buffer, by `StableBytes`.
        let op = unsafe {
            Op::submit(resource, no_cleanup, |(buffer, _)| {
                let (at, len) = buffer.stable_bytes();
                self.entry(|fd| match buffer.registered_part() {
                    Some(part) => {
                        opcode::WriteFixed::new(fd, at, len, part).offset(offset).rw_flags(flags).build()
                    }
                    None => opcode::Write::new(fd, at, len).offset(offset).rw_flags(flags).build(),
                })
            })
        };
        let (completion, (buffer, _)) = op.await;
        (completion.value().map(|written| written as usize), buffer)
    }

    /// Makes everything written before durable, as `fdatasync`.
    pub async fn sync_data(&self) -> io::Result<()> {
        // SAFETY: a sync names no memory.
        let op = unsafe {
            Op::submit(Rc::clone(&self.shared), no_cleanup, |_| {
                self.entry(|fd| opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build())
            })
        };
        op.await.0.value().map(drop)
    }

    /// Makes a range read as zeroes. On a block device both kinds are done by the device where it can.
    pub async fn clear(&self, offset: u64, len: u64, how: Clear) -> io::Result<()> {
        let mode = libc::FALLOC_FL_KEEP_SIZE
            | match how {
                Clear::Deallocate => libc::FALLOC_FL_PUNCH_HOLE,
                Clear::Zero => libc::FALLOC_FL_ZERO_RANGE,
            };
        // SAFETY: no memory is named.
        let op = unsafe {
            Op::submit(Rc::clone(&self.shared), no_cleanup, |_| {
                self.entry(|fd| opcode::Fallocate::new(fd, len).offset(offset).mode(mode).build())
            })
        };
        op.await.0.value().map(drop)
    }
}

/// Size and alignment of what `fd` names.
pub(crate) fn geometry(fd: BorrowedFd<'_>) -> io::Result<Geometry> {
    let Some(number) = sys::block_device_number(fd)? else {
        let bytes = std::fs::File::from(fd.try_clone_to_owned()?).metadata()?.len();
        return Ok(Geometry {
            kind: FileKind::Regular,
            bytes,
            logical_block_bytes: 4096,
            physical_block_bytes: 4096,
            volatile_cache: true,
            discard: true,
        });
    };
    let (bytes, logical_block_bytes, physical_block_bytes) = sys::block_device_geometry(fd)?;
    let attribute = |name| sys::queue_attribute(number, name);
    Ok(Geometry {
        kind: FileKind::BlockDevice,
        bytes,
        logical_block_bytes,
        physical_block_bytes,
        volatile_cache: attribute("write_cache").is_none_or(|mode| mode != "write through"),
        discard: attribute("discard_max_bytes").is_some_and(|most| most != "0"),
    })
}
