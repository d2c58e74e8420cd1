//! Writes the archive format that the kernel unpacks as its first root file system ("newc" cpio).
//!
//! Several archives may follow each other in one file, which lets a small one with a test's own files be
//! put behind a large one that is kept. The format is in the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst`.

use std::collections::BTreeSet;
use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
/// QEMU and boot loaders pad archives to this; the kernel skips the zeroes in between.
const ARCHIVE_ALIGNMENT: usize = 512;

/// An archive being written.
pub(super) struct Archive<W> {
    out: W,
    written: usize,
    next_inode: u32,
    folders: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, written: 0, next_inode: 1, folders: BTreeSet::new() }
    }

    /// A folder and those above it, each once.
    pub(super) fn folder(&mut self, path: &str) -> io::Result<()> {
        let path = path.trim_matches('/');
        if path.is_empty() || self.folders.contains(path) {
            return Ok(());
        }
        self.parents(path)?;
        self.folders.insert(path.to_owned());
        self.entry(path, DIRECTORY | 0o755, (0, 0), &[])
    }

    /// A file that its owner may also execute.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        let path = path.trim_matches('/');
        self.parents(path)?;
        self.entry(path, REGULAR | 0o755, (0, 0), content)
    }

    pub(super) fn symlink(&mut self, path: &str, to: &str) -> io::Result<()> {
        let path = path.trim_matches('/');
        self.parents(path)?;
        self.entry(path, SYMLINK | 0o777, (0, 0), to.as_bytes())
    }

    pub(super) fn character_device(&mut self, path: &str, number: (u32, u32)) -> io::Result<()> {
        let path = path.trim_matches('/');
        self.parents(path)?;
        self.entry(path, CHARACTER_DEVICE | 0o600, number, &[])
    }

    /// Ends the archive and hands back what it was written to.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        self.pad(ARCHIVE_ALIGNMENT)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn parents(&mut self, path: &str) -> io::Result<()> {
        match path.rsplit_once('/') {
            Some((parent, _)) => self.folder(parent),
            None => Ok(()),
        }
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) -> io::Result<()> {
        let size = u32::try_from(content.len()).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is larger than 4 GiB"))
        })?;
        let name_size = u32::try_from(name.len() + 1)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a name is larger than 4 GiB"))?;
        let inode = self.next_inode;
        self.next_inode += 1;
        // Inode, mode, uid, gid, links, mtime, size, the file system's device, own device, name's size, sum.
        let fields = [inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0]
            .map(|f| format!("{f:08x}"));
        self.put(b"070701")?;
        self.put(fields.concat().as_bytes())?;
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.pad(4)?;
        self.put(content)?;
        self.pad(4)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len();
        self.out.write_all(bytes)
    }

    fn pad(&mut self, alignment: usize) -> io::Result<()> {
        let padding = self.written.next_multiple_of(alignment) - self.written;
        self.put(&[0; ARCHIVE_ALIGNMENT][..padding])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_parents_come_first_and_once() {
        let mut archive = Archive::new(Vec::new());
        archive.file("/a/b/one", b"12345").expect("writing to memory");
        archive.file("a/b/two", b"").expect("writing to memory");
        let bytes = archive.finish().expect("writing to memory");
        assert_eq!(bytes.len() % ARCHIVE_ALIGNMENT, 0);
        let text = String::from_utf8_lossy(&bytes);
        let names: Vec<_> = text
            .match_indices("070701")
            .map(|(at, _)| {
                assert_eq!(at % 4, 0, "an entry starts at {at}");
                let name = &text[at + 110..];
                &name[..name.find('\0').expect("names end with a zero byte")]
            })
            .collect();
        assert_eq!(names, ["a", "a/b", "a/b/one", "a/b/two", "TRAILER!!!"]);
    }
}
