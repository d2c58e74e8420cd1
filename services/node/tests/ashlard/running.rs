//! The real program, run by a test: its log, its exit, its metrics page.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::exposition::{Page, parse};

/// What takes milliseconds may take long on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Settings that let tests run side by side: one small core that is not pinned, free ports.
pub(crate) const SETTINGS: &str = "[cores]\ncount = 2\npin = false\n[buffers]\nblocks = 64\ncapsules = 32\n\
    slices = 16\n[metrics]\nlisten = \"127.0.0.1:0\"\n[[portal]]\nlisten = \"127.0.0.1:0\"\n";

/// A subsystem that everybody may use, with namespaces of these keys.
pub(crate) fn subsystem(name: &str, namespaces: &[(u32, &str)]) -> String {
    let mut text = format!("[[subsystem]]\nnqn = \"nqn.2026-01.io.x:{name}\"\nallow_any_host = true\n");
    for (nsid, backend) in namespaces {
        text += &format!("[[subsystem.namespace]]\nnsid = {nsid}\nbackend = {backend}\n");
    }
    text
}

/// Runs the program until it ends.
pub(crate) fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ashlard")).args(arguments).output().expect("the program runs")
}

/// Writes a configuration into a folder and returns its path.
pub(crate) fn write(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("ashlard.toml");
    fs::write(&path, text).expect("the folder takes a file");
    path
}

/// A running daemon; dropped, its process ends.
pub(crate) struct Daemon {
    pub(crate) folder: tempfile::TempDir,
    process: Child,
    lines: Receiver<Value>,
    seen: Vec<Value>,
    ready: Value,
}

impl Daemon {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(text: &str) -> Daemon {
        Daemon::start_with(text, &[])
    }

    /// Starts it with these environment variables and waits until it is ready.
    pub(crate) fn start_with(text: &str, environment: &[(&str, &Path)]) -> Daemon {
        let folder = tempfile::tempdir().expect("a folder");
        let path = write(folder.path(), text);
        let mut process = Command::new(env!("CARGO_BIN_EXE_ashlard"))
            .arg("--config")
            .arg(path)
            .args(["-o", "json"])
            .envs(environment.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let stderr = process.stderr.take().expect("it was asked for");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // What is no JSON, such as a panic's message, must be seen too.
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let mut daemon = Daemon { folder, process, lines, seen: Vec::new(), ready: Value::Null };
        daemon.ready = daemon.log_line("ready");
        daemon
    }

    /// Waits for a line of the log whose message begins so.
    pub(crate) fn log_line(&mut self, message: &str) -> Value {
        let begin = Instant::now();
        loop {
            match self.lines.recv_timeout(LIMIT.saturating_sub(begin.elapsed())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if text(&line, "message").starts_with(message) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("no {message:?} in the log: {:#?}", self.seen),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("it ended before {message:?}: {:#?}", self.seen)
                }
            }
        }
    }

    /// The lines of the log so far.
    pub(crate) fn seen(&self) -> &[Value] {
        &self.seen
    }

    /// As [`Daemon::log_line`], unless such a line was there already.
    pub(crate) fn log_line_ever(&mut self, message: &str) -> Value {
        let before = self.seen.iter().find(|line| text(line, "message").starts_with(message)).cloned();
        before.unwrap_or_else(|| self.log_line(message))
    }

    /// Portals that are listened on.
    pub(crate) fn portals(&self) -> Vec<SocketAddr> {
        let portals = text(&self.ready, "portals");
        portals.split(',').map(|portal| portal.parse().expect("an address")).collect()
    }

    /// The answer to a GET of the metrics server: its head and its body.
    pub(crate) fn get(&self, path: &str) -> (String, String) {
        let address = text(&self.ready, "metrics");
        let mut stream = TcpStream::connect(&address).expect("metrics are served");
        stream.set_read_timeout(Some(LIMIT)).expect("a socket takes a timeout");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("the server listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the server answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        (head.to_owned(), body.to_owned())
    }

    /// The metrics page.
    pub(crate) fn metrics(&self) -> Page {
        let (_, body) = self.get("/metrics");
        parse(&body).expect("a page by the rules of the format")
    }

    /// A value of the metrics page.
    pub(crate) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        crate::exposition::value(&self.metrics(), name, labels)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, signal).expect("the process is there until it is waited for");
    }

    /// Puts another configuration in place, lets it be read, and returns how many steps worked and failed.
    pub(crate) fn reload(&mut self, text: &str) -> (u64, u64) {
        write(self.folder.path(), text);
        self.signal(Signal::HUP);
        let line = self.log_line("configuration read again");
        let number = |key| line.get(key).and_then(Value::as_u64).expect("a number");
        (number("applied"), number("failed"))
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("it is our child") {
                return status;
            }
            assert!(begin.elapsed() < LIMIT, "it does not end; its log: {:#?}", self.seen);
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks it to stop, and waits for its end.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.end()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A field of a log line, as text.
pub(crate) fn text(line: &Value, field: &str) -> String {
    line.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}
