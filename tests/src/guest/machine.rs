//! One guest: the QEMU process, from start to the last line of its script.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::console::{Ask, Line, Report};
use super::error::GuestError;
use super::initramfs::{self, TestFiles};
use super::kernel::{Kernel, KernelFiles};

/// Enough for the root file system (twice, while it is unpacked) and a test's data.
const MEMORY_MIB_DEFAULT: u32 = 1024;
/// Emulated processors: with one, a kernel hides races that two show.
const PROCESSORS: &str = "2";
/// A boot takes ten seconds; a busy machine may need many times that.
const BOOT_LIMIT: Duration = Duration::from_mins(3);
/// Boots that are tried.
const BOOTS_MAX: u32 = 3;
/// How much of the output an error message repeats.
const TAIL_LINES: usize = 60;

/// How a guest is to be.
#[derive(Debug)]
pub struct Builder {
    name: String,
    kernel: Kernel,
    memory_mib: u32,
    variables: BTreeMap<String, String>,
    forwarded: Vec<u16>,
    capture: bool,
    show: bool,
    test: TestFiles,
}

/// A running guest. Dropping it ends its process.
///
/// It ends, too, when the thread that started it ends, so that a killed test run leaves nothing behind.
#[derive(Debug)]
pub struct Guest {
    name: String,
    process: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    forwarded: BTreeMap<u16, SocketAddr>,
    log_path: PathBuf,
    show: bool,
    started: Instant,
    report: Report,
    /// Holds the root file system's temporary file until QEMU has ended.
    _root: tempfile::NamedTempFile,
}

impl Guest {
    /// Begins the description of a guest. The name is for logs and must be unique among the tests.
    #[must_use]
    pub fn builder(kernel: Kernel, name: &str) -> Builder {
        Builder {
            name: format!("{name}-{}", kernel.line()),
            kernel,
            memory_mib: MEMORY_MIB_DEFAULT,
            variables: BTreeMap::new(),
            forwarded: Vec::new(),
            capture: false,
            show: false,
            test: TestFiles::default(),
        }
    }

    /// The address on this machine that leads to a forwarded port of the guest.
    #[must_use]
    pub fn address_of(&self, guest_port: u16) -> Option<SocketAddr> {
        self.forwarded.get(&guest_port).copied()
    }

    /// Where the guest's traffic is written to, if it is captured ([`Builder::capture`]).
    #[must_use]
    pub fn capture_path(&self) -> PathBuf {
        capture_path(&self.log_path)
    }

    /// Waits for the script's next `ask`. An end of the script before that is an error.
    ///
    /// # Errors
    /// If the script fails or ends, or asks nothing within `limit`, counted from the guest's start.
    pub fn next_ask(&mut self, limit: Duration) -> Result<Ask, GuestError> {
        match self.advance(limit)? {
            Some(ask) => Ok(ask),
            None => Err(self.failed("the script ended where the test expected it to ask")),
        }
    }

    /// Lets the script go on after an `ask`; the reply is what its `ask` prints.
    ///
    /// # Errors
    /// If the guest is gone.
    pub fn reply(&mut self, reply: &str) -> Result<(), GuestError> {
        writeln!(self.stdin, "{reply}")
            .and_then(|()| self.stdin.flush())
            .map_err(|error| self.failed(&format!("replying '{reply}': {error}")))
    }

    /// Runs the script to its end, answering each `ask` with what `answer` returns.
    ///
    /// # Errors
    /// If the script fails, the guest dies, or it is not done within `limit`, counted from its start.
    pub fn finish(
        mut self,
        limit: Duration,
        mut answer: impl FnMut(&[&str]) -> String,
    ) -> Result<Report, GuestError> {
        while let Some(ask) = self.advance(limit)? {
            let reply = answer(&ask.words());
            self.reply(&reply)?;
        }
        Ok(std::mem::replace(
            &mut self.report,
            Report { release: String::new(), checks: Vec::new(), lines: Vec::new() },
        ))
    }

    /// Waits for the line that says that the script begins.
    fn wait_for_boot(&mut self) -> Result<(), GuestError> {
        while self.report.release.is_empty() {
            let line = self.next_line(BOOT_LIMIT)?;
            self.note(Line::parse(&line))?;
        }
        Ok(())
    }

    /// Reads on to the next `ask`, or to the script's good end.
    fn advance(&mut self, limit: Duration) -> Result<Option<Ask>, GuestError> {
        loop {
            let line = self.next_line(limit)?;
            match Line::parse(&line) {
                Line::Ask(ask) => return Ok(Some(ask)),
                Line::Done => return Ok(None),
                other => self.note(other)?,
            }
        }
    }

    fn next_line(&mut self, limit: Duration) -> Result<String, GuestError> {
        let left = limit.saturating_sub(self.started.elapsed());
        let line = match self.lines.recv_timeout(left) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                return Err(GuestError::TimedOut {
                    name: self.name.clone(),
                    limit,
                    tail: self.tail(),
                    log: self.log_path.clone(),
                });
            }
            Err(RecvTimeoutError::Disconnected) => return Err(self.failed(&self.why_gone())),
        };
        if self.show && !line.starts_with('@') {
            println!("{line}");
        }
        Ok(line)
    }

    /// Takes down a line that needs no answer.
    fn note(&mut self, line: Line) -> Result<(), GuestError> {
        match line {
            Line::Booted { release } => self.report.release = release,
            Line::Ok { check } => self.report.checks.push(check),
            Line::NotOk { what } => self.report.lines.push(format!("NOT OK: {what}")),
            Line::Failed { status } => {
                return Err(self.failed(&format!("the script ended with status {status}")));
            }
            Line::Output(output) => self.report.lines.push(output),
            Line::Ask(_) | Line::Done => {}
        }
        Ok(())
    }

    /// Says what is known when the guest's port closed without a last line.
    fn why_gone(&self) -> String {
        let kernel_log = kernel_log_path(&self.log_path);
        let kernel = fs::read(&kernel_log).unwrap_or_default();
        let kernel = String::from_utf8_lossy(&kernel);
        let lines: Vec<_> = kernel.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
        format!(
            "it ended without a last line; the kernel's log ends with\n{tail}\n({})",
            kernel_log.display()
        )
    }

    fn failed(&self, what: &str) -> GuestError {
        GuestError::Failed {
            name: self.name.clone(),
            what: what.to_owned(),
            tail: self.tail(),
            log: self.log_path.clone(),
        }
    }

    fn tail(&self) -> String {
        let lines = &self.report.lines;
        let mut tail = format!("(checks that held: {})\n", self.report.checks.join("; "));
        tail.push_str(&lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"));
        tail
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself; either way it must be waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Builder {
    /// The shell script that the guest runs, with the functions of `prelude.sh` before it.
    #[must_use]
    pub fn script(mut self, script: &str) -> Self {
        self.test.script.push_str(script);
        self.test.script.push('\n');
        self
    }

    /// A variable that the script sees.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl ToString) -> Self {
        self.variables.insert(name.to_owned(), value.to_string());
        self
    }

    /// A file in the guest.
    #[must_use]
    pub fn file(mut self, at: &str, content: &[u8]) -> Self {
        self.test.files.push((at.to_owned(), content.to_vec()));
        self
    }

    /// A program of this machine, with its libraries, put into the guest's PATH under its own name.
    #[must_use]
    pub fn program(mut self, path: &Path) -> Self {
        self.test.programs.push(path.to_owned());
        self
    }

    /// Makes a TCP port of the guest reachable from here ([`Guest::address_of`]).
    #[must_use]
    pub fn forward(mut self, guest_port: u16) -> Self {
        self.forwarded.push(guest_port);
        self
    }

    /// Writes all that the guest sends and receives to a file that tshark reads ([`Guest::capture_path`]).
    #[must_use]
    pub fn capture(mut self) -> Self {
        self.capture = true;
        self
    }

    /// Shows what the script's commands print, while they print it.
    #[must_use]
    pub fn show(mut self) -> Self {
        self.show = true;
        self
    }

    /// The guest's memory.
    #[must_use]
    pub fn memory_mib(mut self, memory_mib: u32) -> Self {
        self.memory_mib = memory_mib;
        self
    }

    /// Boots the guest and waits until its script begins. The first time, this fetches the kernel and packs the
    /// root file system.
    ///
    /// A boot that fails is tried again: QEMU's emulation of several processors is not always right while a
    /// young kernel patches its own code, which says nothing about what is to be tested.
    ///
    /// # Errors
    /// If a program or the kernel is missing, or no boot succeeds.
    pub fn start(mut self) -> Result<Guest, GuestError> {
        let kernel = self.kernel.fetch()?;
        let base = initramfs::base(&kernel)?;
        let variables: String =
            self.variables.iter().map(|(name, value)| format!("{name}='{value}'\n")).collect();
        self.test.script.insert_str(0, &variables);
        let mut boots = 1;
        loop {
            let mut guest = self.boot(&kernel, &base)?;
            match guest.wait_for_boot() {
                Ok(()) => return Ok(guest),
                Err(_) if boots < BOOTS_MAX => boots += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn boot(&self, kernel: &KernelFiles, base: &Path) -> Result<Guest, GuestError> {
        let root = initramfs::with_test(base, &self.test)?;
        let log_path = log_folder()?.join(format!("{}.log", self.name));
        let doing = || GuestError::io(format!("starting guest {}", self.name));
        let log = File::create(&log_path).map_err(doing())?;
        let forwarded = self.choose_ports().map_err(doing())?;

        let mut command = self.qemu(&kernel.image(), root.path(), &log_path, &forwarded)?;
        let mut process = command.spawn().map_err(doing())?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (process.stdin.take(), process.stdout.take(), process.stderr.take())
        else {
            return Err(GuestError::Program {
                program: "qemu".to_owned(),
                message: "it has no standard streams".to_owned(),
            });
        };
        let lines = read_lines(stdout, stderr, log).map_err(doing())?;
        Ok(Guest {
            name: self.name.clone(),
            process,
            stdin,
            lines,
            forwarded,
            log_path,
            show: self.show,
            // The limits of waiting count from here.
            started: Instant::now(),
            report: Report { release: String::new(), checks: Vec::new(), lines: Vec::new() },
            _root: root,
        })
    }

    fn choose_ports(&self) -> io::Result<BTreeMap<u16, SocketAddr>> {
        // Freed again for QEMU to take: should another process be faster, QEMU says so and the test fails.
        let listeners = self
            .forwarded
            .iter()
            .map(|port| Ok((*port, TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?)))
            .collect::<io::Result<Vec<_>>>()?;
        listeners.iter().map(|(port, listener)| Ok((*port, listener.local_addr()?))).collect()
    }

    fn qemu(
        &self,
        image: &Path,
        root: &Path,
        log_path: &Path,
        forwarded: &BTreeMap<u16, SocketAddr>,
    ) -> Result<Command, GuestError> {
        // setpriv has the kernel end QEMU with the thread that started it.
        let mut command = Command::new(initramfs::find_program("setpriv")?);
        command.args(["--pdeathsig", "KILL"]).arg(initramfs::find_program("qemu-system-x86_64")?);
        command.args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-monitor",
            "none",
        ]);
        // Emulation, not KVM: nested virtualization does not boot stock kernels everywhere. QEMU 7.2's cx16
        // breaks 6.12 kernels.
        command.args(["-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max,-cx16"]);
        command.args(["-smp", PROCESSORS, "-m", &self.memory_mib.to_string()]);
        command.args(["-serial", &format!("file:{}", kernel_log_path(log_path).display())]);
        command.args(["-chardev", "stdio,id=script,signal=off", "-serial", "chardev:script"]);
        command.arg("-kernel").arg(image).arg("-initrd").arg(root);
        // Without tsc=reliable the 6.1 kernel takes the hpet and is several times slower.
        command.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable"]);
        let forwards: String = forwarded
            .iter()
            .map(|(guest, here)| format!(",hostfwd=tcp:{}:{}-:{guest}", here.ip(), here.port()))
            .collect();
        command.args(["-netdev", &format!("user,id=net{forwards}")]);
        command.args(["-device", "virtio-net-pci,netdev=net,romfile="]);
        if self.capture {
            let file = capture_path(log_path);
            let filter = format!("filter-dump,id=capture,netdev=net,maxlen=262144,file={}", file.display());
            command.args(["-object", &filter]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }
}

/// Both streams' lines in the order in which they come; the channel closes when both have ended. They are
/// logged when they come, not when the test gets around to them.
fn read_lines(
    stdout: impl Read + Send + 'static,
    stderr: impl Read + Send + 'static,
    log: File,
) -> io::Result<Receiver<String>> {
    let (sender, receiver) = mpsc::channel();
    let (for_errors, errors_log) = (sender.clone(), log.try_clone()?);
    thread::spawn(move || send_lines(stdout, "", log, &sender));
    thread::spawn(move || send_lines(stderr, "qemu: ", errors_log, &for_errors));
    Ok(receiver)
}

fn send_lines(stream: impl Read, prefix: &str, mut log: File, to: &mpsc::Sender<String>) {
    let started = Instant::now();
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    while stream.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        let text = format!("{prefix}{}", text.trim_end_matches(['\r', '\n']));
        // The log is for people; a full disk must not fail the test.
        let _ = log.write_all(format!("{:8.3} {text}\n", started.elapsed().as_secs_f64()).as_bytes());
        // The test may have ended; what the guest still says is logged all the same.
        let _ = to.send(text);
        line.clear();
    }
}

/// The kernel's own console beside the script's output.
fn kernel_log_path(log_path: &Path) -> PathBuf {
    log_path.with_extension("kernel.log")
}

fn capture_path(log_path: &Path) -> PathBuf {
    log_path.with_extension("pcap")
}

/// Logs are kept beside the build, whether the test passed or not.
fn log_folder() -> Result<PathBuf, GuestError> {
    let folder = crate::target_folder().join("guests");
    fs::create_dir_all(&folder).map_err(GuestError::io(format!("making {}", folder.display())))?;
    Ok(folder)
}
