//! Wireshark's NVMe/TCP dissector as an independent reader of captured connections (NVME N15).

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::process::Command;

/// A capture could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DissectError {
    /// tshark could not be run.
    #[error("running tshark (`ops/setup test` installs it): {0}")]
    Run(#[source] io::Error),
    /// tshark failed.
    #[error("tshark failed: {0}")]
    Failed(String),
}

/// What the dissector made of a capture.
#[derive(Debug)]
pub struct Dissection {
    /// Types of PDUs that were seen (NVMe-TCP 1.0 §3.6.2.1).
    pub pdu_types: BTreeSet<u8>,
    /// Header digests that were right.
    pub good_header_digests: usize,
    /// Data digests that were right.
    pub good_data_digests: usize,
    /// Frames with something malformed, unknown or with a wrong digest, as tshark describes them.
    pub complaints: Vec<String>,
}

/// The dissector's word for a digest that is right.
const GOOD: &str = "1";

/// Reads a capture with NVMe/TCP on the given port.
///
/// # Errors
/// If tshark is missing or fails.
pub fn dissect(capture: &Path, port: u16) -> Result<Dissection, DissectError> {
    let complaints = tshark(
        capture,
        port,
        &[
            "-Y",
            "_ws.malformed or nvme-tcp.unknown_data or nvme-tcp.hdgst.status == 0 or nvme-tcp.ddgst.status == 0 \
             or nvme-tcp.c2htermreq or nvme-tcp.h2ctermreq",
        ],
    )?;
    let fields = ["nvme-tcp.type", "nvme-tcp.hdgst.status", "nvme-tcp.ddgst.status"];
    let mut arguments = vec!["-Y", "nvme-tcp", "-T", "fields", "-E", "occurrence=a"];
    for field in &fields {
        arguments.extend(["-e", field]);
    }
    let mut dissection = Dissection {
        pdu_types: BTreeSet::new(),
        good_header_digests: 0,
        good_data_digests: 0,
        complaints: complaints.lines().map(str::to_owned).collect(),
    };
    for frame in tshark(capture, port, &arguments)?.lines() {
        let mut columns = frame.split('\t').map(|column| column.split(','));
        let types = columns.next().into_iter().flatten();
        dissection.pdu_types.extend(types.filter_map(|value| value.parse::<u8>().ok()));
        let mut good = || columns.next().into_iter().flatten().filter(|status| *status == GOOD).count();
        dissection.good_header_digests += good();
        dissection.good_data_digests += good();
    }
    Ok(dissection)
}

fn tshark(capture: &Path, port: u16, arguments: &[&str]) -> Result<String, DissectError> {
    let output = Command::new("tshark")
        .arg("-r")
        .arg(capture)
        .args(["-d", &format!("tcp.port=={port},nvme-tcp")])
        // Not checked unless asked for.
        .args(["-o", "nvme-tcp.check_hdgst:TRUE", "-o", "nvme-tcp.check_ddgst:TRUE"])
        .args(arguments)
        .output()
        .map_err(DissectError::Run)?;
    if !output.status.success() {
        return Err(DissectError::Failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
