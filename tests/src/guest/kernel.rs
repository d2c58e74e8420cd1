//! The kernels that guests boot: fetched once by `ops/guest-kernel`, kept in the cache folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::GuestError;

/// A line of Debian kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Debian 12's own, the oldest that Ashlar supports, as host and as server.
    V6_1,
    /// Debian 12's backport.
    V6_12,
}

impl Kernel {
    /// The line as it stands in package names.
    #[must_use]
    pub fn line(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }

    /// Fetches the kernel if it is not in the cache yet.
    pub(super) fn fetch(self) -> Result<KernelFiles, GuestError> {
        let script = repository_root().join("ops/guest-kernel");
        let output = Command::new(&script)
            .arg(self.line())
            .output()
            .map_err(GuestError::io(format!("running {}", script.display())))?;
        if !output.status.success() {
            return Err(GuestError::Program {
                program: format!("ops/guest-kernel {}", self.line()),
                message: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let release_file = folder.join("release");
        let release = fs::read_to_string(&release_file)
            .map_err(GuestError::io(format!("reading {}", release_file.display())))?;
        Ok(KernelFiles { folder, release: release.trim().to_owned() })
    }
}

/// An unpacked kernel package.
#[derive(Debug)]
pub(super) struct KernelFiles {
    folder: PathBuf,
    release: String,
}

impl KernelFiles {
    pub(super) fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    pub(super) fn release(&self) -> &str {
        &self.release
    }

    /// The cache that holds this kernel and what is made from it.
    pub(super) fn cache(&self) -> &Path {
        self.folder.parent().unwrap_or(&self.folder)
    }

    /// Where the modules lie, here and in the guest: the path below the returned root is the same.
    pub(super) fn modules_root(&self) -> &Path {
        &self.folder
    }

    /// The module folder, relative to the root.
    pub(super) fn modules_folder(&self) -> PathBuf {
        Path::new("lib/modules").join(&self.release)
    }

    /// The files of a module and of all that it depends on, relative to the module folder; none if it is
    /// built into the kernel.
    pub(super) fn module_files(&self, module: &str) -> Result<Vec<String>, GuestError> {
        let index = self.read_index("modules.dep")?;
        for line in index.lines() {
            let Some((file, needed)) = line.split_once(':') else { continue };
            if module_name(file) == module.replace('-', "_") {
                let mut files = vec![file.to_owned()];
                files.extend(needed.split_whitespace().map(str::to_owned));
                return Ok(files);
            }
        }
        let built_in = self.read_index("modules.builtin")?;
        if built_in.lines().any(|file| module_name(file) == module.replace('-', "_")) {
            return Ok(Vec::new());
        }
        Err(GuestError::MissingModule { kernel: self.folder.clone(), module: module.to_owned() })
    }

    fn read_index(&self, name: &str) -> Result<String, GuestError> {
        let path = self.folder.join(self.modules_folder()).join(name);
        fs::read_to_string(&path).map_err(GuestError::io(format!("reading {}", path.display())))
    }
}

/// A module's name: its file's, without folders and ending, with `_` for `-` as the kernel has it.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split('.').next().unwrap_or(name).replace('-', "_")
}

/// The folder of the repository that this crate was built from.
fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_name_ignores_folder_ending_and_dashes() {
        assert_eq!(module_name("kernel/drivers/nvme/host/nvme-tcp.ko.xz"), "nvme_tcp");
        assert_eq!(module_name("loop.ko"), "loop");
    }
}
