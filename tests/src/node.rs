//! A running `ashlard`: started with a configuration, told to read it again, stopped, started again.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::built::{self, BuildError};

/// Starting and stopping take well under a second; a busy machine may need longer.
const LIMIT: Duration = Duration::from_secs(60);
/// What a daemon logs once it serves everything (docs/configuration.md).
const READY: &str = "ready portals=";
/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// The daemon did not do what the test wants of it.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// It could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A file or process operation failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// It ended where it should run, or did not end where it should.
    #[error("ashlard {what}; it said:\n{log}")]
    Misbehaved {
        /// What it did.
        what: String,
        /// All that it wrote to its standard streams.
        log: String,
    },
}

/// A daemon that serves on the loopback. Dropping it ends its process.
#[derive(Debug)]
pub struct Node {
    folder: tempfile::TempDir,
    /// Cargo is asked for it once: that takes a while.
    program: PathBuf,
    process: Child,
    /// How long the log was when the process was started.
    log_before: usize,
    portals: Vec<SocketAddr>,
}

impl Node {
    /// Starts a daemon and waits until it takes connections on all of `portals`, which the configuration
    /// names too. The configuration is made by a function that is given the folder for the daemon's files.
    ///
    /// # Errors
    /// If it cannot be built or started, or ends by itself.
    pub fn start(
        portals: &[SocketAddr],
        configuration: impl FnOnce(&Path) -> String,
    ) -> Result<Self, NodeError> {
        let folder = tempfile::tempdir_in(scratch_folder()?).map_err(io_error("making a folder"))?;
        write_configuration(folder.path(), &configuration(folder.path()))?;
        let program = built::program("ashlard")?;
        let process = spawn(&program, folder.path())?;
        let mut node = Self { folder, program, process, log_before: 0, portals: portals.to_vec() };
        node.wait_until_ready()?;
        Ok(node)
    }

    /// The folder for the daemon's files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The daemon's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Puts a new configuration in place and tells the daemon to read it (SIGHUP).
    ///
    /// # Errors
    /// If the daemon has ended.
    pub fn reload(&mut self, configuration: &str) -> Result<(), NodeError> {
        self.expect_running()?;
        write_configuration(self.folder.path(), configuration)?;
        self.signal("HUP")
    }

    /// Stops the daemon as an administrator would (SIGTERM), and waits for its end.
    ///
    /// # Errors
    /// If it does not end, or not well.
    pub fn stop(&mut self) -> Result<(), NodeError> {
        self.expect_running()?;
        self.signal("TERM")?;
        match self.wait_for_end()? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.misbehaved(format!("ended with {status}"))),
            None => Err(self.misbehaved("did not end after SIGTERM".to_owned())),
        }
    }

    /// Ends the daemon as a power failure would, and starts it again with the same configuration.
    ///
    /// # Errors
    /// If it cannot be started, or ends by itself.
    pub fn crash_and_start_again(&mut self) -> Result<(), NodeError> {
        self.process.kill().map_err(io_error("killing ashlard"))?;
        self.process.wait().map_err(io_error("waiting for ashlard's end"))?;
        self.start_again()
    }

    /// Starts the daemon after its end, with the same configuration.
    ///
    /// # Errors
    /// If it cannot be started, or ends by itself.
    pub fn start_again(&mut self) -> Result<(), NodeError> {
        self.log_before = self.log().len();
        self.process = spawn(&self.program, self.folder.path())?;
        self.wait_until_ready()
    }

    /// Everything that the daemon has written to its standard streams.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(log_path(self.folder.path())).unwrap_or_default()).into_owned()
    }

    fn wait_until_ready(&mut self) -> Result<(), NodeError> {
        let started = Instant::now();
        // After a kill the kernel may keep the old process's sockets for a moment, and accept on them: a connection
        // alone does not tell that the new one is there.
        while !self.log().get(self.log_before..).is_some_and(|log| log.contains(READY)) {
            self.expect_running()?;
            if started.elapsed() > LIMIT {
                return Err(self.misbehaved("does not say that it is ready".to_owned()));
            }
            thread::sleep(LOOK);
        }
        for portal in self.portals.clone() {
            while TcpStream::connect(portal).is_err() {
                self.expect_running()?;
                if started.elapsed() > LIMIT {
                    return Err(self.misbehaved(format!("does not listen on {portal}")));
                }
                thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    fn expect_running(&mut self) -> Result<(), NodeError> {
        match self.process.try_wait().map_err(io_error("looking at ashlard"))? {
            Some(status) => Err(self.misbehaved(format!("ended by itself with {status}"))),
            None => Ok(()),
        }
    }

    fn wait_for_end(&mut self) -> Result<Option<ExitStatus>, NodeError> {
        let started = Instant::now();
        while started.elapsed() < LIMIT {
            if let Some(status) = self.process.try_wait().map_err(io_error("looking at ashlard"))? {
                return Ok(Some(status));
            }
            thread::sleep(LOOK);
        }
        Ok(None)
    }

    fn signal(&self, signal: &str) -> Result<(), NodeError> {
        // The process has not been waited for: its id is still its own.
        let status = Command::new("sh")
            .args(["-c", "kill -s \"$1\" \"$2\"", "sh", signal, &self.process.id().to_string()])
            .status()
            .map_err(io_error("sending a signal to ashlard"))?;
        if status.success() { Ok(()) } else { Err(self.misbehaved(format!("took no SIG{signal}"))) }
    }

    fn misbehaved(&self, what: String) -> NodeError {
        NodeError::Misbehaved { what, log: self.log() }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended by itself; either way it must be waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("ashlard said:\n{}", self.log());
        }
    }
}

/// Ports of 127.0.0.1 that nobody listens on now.
///
/// # Errors
/// If the kernel has none.
pub fn free_ports(count: usize) -> io::Result<Vec<SocketAddr>> {
    // All at once, so that no port is given twice.
    let listeners =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<io::Result<Vec<_>>>()?;
    listeners.iter().map(TcpListener::local_addr).collect()
}

fn spawn(program: &Path, folder: &Path) -> Result<Child, NodeError> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(log_path(folder))
        .map_err(io_error("opening ashlard's log"))?;
    let errors = log.try_clone().map_err(io_error("opening ashlard's log"))?;
    Command::new(program)
        .arg("--config")
        .arg(configuration_path(folder))
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(io_error("starting ashlard"))
}

fn write_configuration(folder: &Path, text: &str) -> Result<(), NodeError> {
    fs::write(configuration_path(folder), text).map_err(io_error("writing ashlard's configuration"))
}

fn configuration_path(folder: &Path) -> PathBuf {
    folder.join("ashlar.toml")
}

fn log_path(folder: &Path) -> PathBuf {
    folder.join("ashlard.log")
}

/// Where direct I/O works: beside the build, on a real file system.
fn scratch_folder() -> Result<PathBuf, NodeError> {
    let folder = crate::target_folder().join("nodes");
    fs::create_dir_all(&folder).map_err(io_error("making the folder for daemons' files"))?;
    Ok(folder)
}

fn io_error(doing: &'static str) -> impl FnOnce(io::Error) -> NodeError {
    move |source| NodeError::Io { doing, source }
}
