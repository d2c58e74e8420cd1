//! Packs the guests' root file system: busybox, the tools of a storage host, and kernel modules.
//!
//! The large part depends only on the kernel and on the tools installed here: it is made once and kept. A
//! test's own part (its script, its files) is packed anew and put behind it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::GuestError;
use super::cpio::Archive;
use super::kernel::KernelFiles;

const INIT: &str = include_str!("init.sh");
const PRELUDE: &str = include_str!("prelude.sh");
/// The end of every script: it failed if a check failed.
const VERDICT: &str = "[ $failures = 0 ]";

/// Programs taken from this machine, with the libraries they need. What busybox has and a test does not
/// judge is left to busybox.
const PROGRAMS: &[&str] = &[
    "dash",
    "cmp",
    "modprobe",
    "nvme",
    "fio",
    "mkfs.xfs",
    "xfs_repair",
    "mkfs.ext4",
    "e2fsck",
    "blkdiscard",
    "fstrim",
    "lsblk",
];

/// The modules that a guest can load. What they depend on comes along.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_net",
    "nvme-tcp",
    "nvmet",
    "nvmet-tcp",
    "null_blk",
    "loop",
    "brd",
    "xfs",
    "ext4",
    "crc32c-intel",
    "libcrc32c",
];

/// Raised when the way of packing changes, so that kept archives of the old way are not used.
const RECIPE: u32 = 1;
/// Archives of other recipes are removed when they have not been made for this long: another working tree
/// may still use them.
const KEPT_UNUSED: Duration = Duration::from_hours(48);

/// The kept archive for this kernel, made if it is not there.
pub(super) fn base(kernel: &KernelFiles) -> Result<PathBuf, GuestError> {
    let busybox = find_program("busybox")?;
    let programs = PROGRAMS
        .iter()
        .map(|name| Ok((*name, find_program(name)?)))
        .collect::<Result<Vec<_>, GuestError>>()?;

    let mut hasher = DefaultHasher::new();
    (RECIPE, INIT, kernel.release(), MODULES).hash(&mut hasher);
    for path in programs.iter().map(|(_, path)| path).chain([&busybox]) {
        let metadata =
            fs::metadata(path).map_err(GuestError::io(format!("looking at {}", path.display())))?;
        (path, metadata.len(), metadata.modified().ok()).hash(&mut hasher);
    }
    let prefix = format!("initramfs-{}-", kernel.release());
    let kept = kernel.cache().join(format!("{prefix}{:016x}.cpio", hasher.finish()));
    if kept.exists() {
        return Ok(kept);
    }

    remove_stale(kernel.cache(), &prefix);
    let doing = || GuestError::io(format!("packing {}", kept.display()));
    let part = tempfile::NamedTempFile::new_in(kernel.cache()).map_err(doing())?;
    let file = part.reopen().map_err(doing())?;
    let mut archive = Archive::new(BufWriter::new(file));
    pack_base(&mut archive, kernel, &busybox, &programs)?;
    archive.finish().map_err(doing())?;
    // Two test processes may pack at once; both archives are the same, and the rename is atomic.
    part.persist(&kept).map_err(|error| doing()(error.error))?;
    Ok(kept)
}

/// The kept archive and a test's own files, in one new temporary file.
pub(super) fn with_test(base: &Path, test: &TestFiles) -> Result<tempfile::NamedTempFile, GuestError> {
    let doing = || GuestError::io("packing the test's part of the guest's root file system");
    let mut whole = tempfile::NamedTempFile::new().map_err(doing())?;
    let mut kept = File::open(base).map_err(doing())?;
    io::copy(&mut kept, whole.as_file_mut()).map_err(doing())?;

    let mut archive = Archive::new(BufWriter::new(whole.as_file_mut()));
    let mut libraries = BTreeSet::new();
    archive.file("test.sh", format!("{PRELUDE}\n{}\n{VERDICT}\n", test.script).as_bytes()).map_err(doing())?;
    for (at, content) in &test.files {
        archive.file(at, content).map_err(doing())?;
    }
    for program in &test.programs {
        let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        pack_program(&mut archive, &name, program, &mut libraries)?;
    }
    archive.finish().map_err(doing())?;
    Ok(whole)
}

/// What one test adds to the guest.
#[derive(Debug, Default)]
pub(super) struct TestFiles {
    /// The shell script that the guest runs.
    pub(super) script: String,
    /// Path in the guest and content.
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// Programs of this machine, put into the guest's /usr/bin with their libraries.
    pub(super) programs: Vec<PathBuf>,
}

fn pack_base<W: Write>(
    archive: &mut Archive<W>,
    kernel: &KernelFiles,
    busybox: &Path,
    programs: &[(&str, PathBuf)],
) -> Result<(), GuestError> {
    let doing = || GuestError::io("packing the guest's root file system");
    for folder in ["dev", "proc", "sys", "etc", "bin", "sbin", "usr/bin"] {
        archive.folder(folder).map_err(doing())?;
    }
    archive.character_device("dev/console", (5, 1)).map_err(doing())?;
    archive.file("init", INIT.as_bytes()).map_err(doing())?;

    let mut libraries = BTreeSet::new();
    pack_program(archive, "busybox", busybox, &mut libraries)?;
    for applet in run(Command::new(busybox).arg("--list"))?.split_whitespace() {
        // dash is the shell: busybox's may prefer its own applets to the real tools.
        if !["busybox", "sh", "ash", "modprobe"].contains(&applet) {
            archive.symlink(&format!("bin/{applet}"), "/usr/bin/busybox").map_err(doing())?;
        }
    }
    for (name, path) in programs {
        pack_program(archive, name, path, &mut libraries)?;
    }
    archive.symlink("bin/sh", "/usr/bin/dash").map_err(doing())?;
    // The kernel calls modprobe by this path.
    archive.symlink("sbin/modprobe", "/usr/bin/modprobe").map_err(doing())?;
    // Without its settings mkfs.ext4 refuses to work.
    if let Ok(settings) = fs::read("/etc/mke2fs.conf") {
        archive.file("etc/mke2fs.conf", &settings).map_err(doing())?;
    }
    pack_modules(archive, kernel)
}

/// A program and those of its libraries that are not packed yet.
fn pack_program<W: Write>(
    archive: &mut Archive<W>,
    name: &str,
    path: &Path,
    packed: &mut BTreeSet<String>,
) -> Result<(), GuestError> {
    let mut add = |at: &str, from: &Path| {
        let doing = || GuestError::io(format!("packing {} into the guest", from.display()));
        let content = fs::read(from).map_err(doing())?;
        archive.file(at, &content).map_err(doing())
    };
    add(&format!("usr/bin/{name}"), path)?;
    for library in libraries_of(path)? {
        if packed.insert(library.clone()) {
            add(&library, Path::new(&library))?;
        }
    }
    Ok(())
}

/// The libraries of a program, by the paths at which its loader looks for them.
fn libraries_of(program: &Path) -> Result<Vec<String>, GuestError> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .map_err(GuestError::io(format!("asking ldd about {}", program.display())))?;
    // ldd fails on a static program: it needs none.
    Ok(parse_ldd(&String::from_utf8_lossy(&output.stdout)))
}

fn parse_ldd(output: &str) -> Vec<String> {
    output
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(|path| path.trim_end_matches(':').to_owned())
        .collect()
}

fn pack_modules<W: Write>(archive: &mut Archive<W>, kernel: &KernelFiles) -> Result<(), GuestError> {
    let folder = kernel.modules_folder();
    let source = kernel.modules_root().join(&folder);
    let doing = || GuestError::io(format!("packing kernel modules of {}", source.display()));
    let mut files = BTreeSet::new();
    for module in MODULES {
        files.extend(kernel.module_files(module)?);
    }
    for entry in fs::read_dir(&source).map_err(doing())? {
        let name = entry.map_err(doing())?.file_name().to_string_lossy().into_owned();
        if name.starts_with("modules.") {
            files.insert(name);
        }
    }
    for file in files {
        let content = fs::read(source.join(&file)).map_err(doing())?;
        archive.file(&folder.join(&file).to_string_lossy(), &content).map_err(doing())?;
    }
    Ok(())
}

/// Looks where root's PATH would: the sbin folders too.
pub(super) fn find_program(name: &str) -> Result<PathBuf, GuestError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| GuestError::MissingProgram { program: name.to_owned() })
}

fn run(command: &mut Command) -> Result<String, GuestError> {
    let program = format!("{command:?}");
    let output = command.output().map_err(GuestError::io(format!("running {program}")))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(GuestError::Program { program, message });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn remove_stale(cache: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(cache) else { return };
    for entry in entries.flatten() {
        let stale = entry.file_name().to_string_lossy().starts_with(prefix)
            && entry
                .metadata()
                .and_then(|metadata| metadata.modified())
                .is_ok_and(|made| SystemTime::now().duration_since(made).is_ok_and(|age| age > KEPT_UNUSED));
        if stale {
            // A leftover costs disk space and nothing else.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_output_gives_the_paths_of_libraries_and_loader() {
        let output = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(parse_ldd(output), ["/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert!(parse_ldd("\tstatically linked\n").is_empty());
    }

    #[test]
    fn missing_program_is_named_with_the_way_to_get_it() {
        let error = find_program("no-such-program-here").expect_err("it does not exist");
        assert!(error.to_string().contains("no-such-program-here"), "{error}");
        assert!(error.to_string().contains("ops/setup"), "{error}");
    }
}
