//! `ashlar volume`: volumes of a running node, as it tells them on its metrics address.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Column, Format, lines, table};
use crate::units::{parse_duration, show_bytes};

/// Volumes of a running node
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Show health, replicas and space of one volume, or of all
    Show(ShowArgs),
}

/// Options of `ashlar volume show`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ShowArgs {
    /// The volume; all of the node if not given
    name: Option<String>,
    /// Metrics address of the node
    #[arg(long, value_name = "HOST:PORT", env = "ASHLAR_ADMIN", default_value = "127.0.0.1:9420")]
    admin: String,
    /// Longest time to wait for it
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
}

/// Runs `ashlar volume`.
pub(crate) fn run(command: &VolumeCommand, format: Format) -> Outcome {
    let VolumeCommand::Show(args) = command;
    show(args, format)
}

/// Largest answer that is read: a node with thousands of volumes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The answer to a GET.
fn get(args: &ShowArgs, path: &str) -> io::Result<(u16, String)> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in args.admin.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, args.timeout) {
            Ok(stream) => return ask(stream, args, path),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn ask(mut stream: TcpStream, args: &ShowArgs, path: &str) -> io::Result<(u16, String)> {
    stream.set_read_timeout(Some(args.timeout))?;
    stream.set_write_timeout(Some(args.timeout))?;
    // HTTP 1.0: the answer ends with the connection, without chunks.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", args.admin).as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "the answer is no HTTP");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(broken)?;
    Ok((status, body.to_owned()))
}

fn show(args: &ShowArgs, format: Format) -> Outcome {
    let doing = format!("asking the node at {} for its volumes", args.admin);
    let (status, body) = get(args, "/volumes").map_err(|error| {
        Failure::new(Exit::Unavailable, &*doing, error)
            .next("check that ashlard runs there and serves metrics, or give another address with --admin")
    })?;
    if status != 200 {
        return Err(Failure::new(Exit::Failed, doing, format!("HTTP status {status}: {}", body.trim())));
    }
    let mut answer: Value =
        serde_json::from_str(&body).map_err(|error| Failure::new(Exit::Failed, &*doing, error))?;
    if let Some(name) = &args.name {
        let volumes = answer.get_mut("volumes").and_then(Value::as_array_mut);
        let Some(volumes) = volumes else {
            return Err(Failure::new(Exit::Failed, doing, "the answer lists no volumes"));
        };
        volumes.retain(|volume| text(volume, "name") == *name || text(volume, "id") == *name);
        if volumes.is_empty() {
            let why = format!("it has no volume {name}");
            return Err(Failure::new(Exit::NotFound, doing, why).next("`ashlar volume show` lists them"));
        }
    }
    match format {
        Format::Json => output::print_json(&answer),
        Format::Table => output::print(&tables(&answer)),
    }
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Volumes, their replicas and scrubs, and the devices.
fn tables(answer: &Value) -> String {
    let mut volumes = table(&[
        Column::Text("volume"),
        Column::Text("health"),
        Column::Number("size"),
        Column::Number("corrupted"),
        Column::Number("repaired"),
        Column::Number("lost"),
    ]);
    let mut replicas = table(&[
        Column::Text("volume"),
        Column::Text("pool"),
        Column::Text("state"),
        Column::Number("done"),
        Column::Number("rate"),
        Column::Number("left"),
    ]);
    for volume in list(answer, "volumes") {
        volumes.add_row([
            text(volume, "name"),
            text(volume, "health").replace('_', " "),
            show_bytes(number(volume, "provisioned_bytes")),
            number(volume, "corrupted_blocks").to_string(),
            number(volume, "repaired_blocks").to_string(),
            number(volume, "lost_blocks").to_string(),
        ]);
        for replica in list(volume, "replicas") {
            replicas.add_row(replica_row(&text(volume, "name"), replica));
        }
    }
    let mut scrubs = table(&[
        Column::Text("volume"),
        Column::Text("scrub"),
        Column::Number("done"),
        Column::Number("verified"),
        Column::Number("bad"),
        Column::Number("lost"),
        Column::Number("unread"),
        Column::Number("last ended"),
    ]);
    for volume in list(answer, "volumes") {
        scrubs.add_row(scrub_row(volume));
    }
    let mut devices = table(&[
        Column::Text("device"),
        Column::Text("pool"),
        Column::Number("used"),
        Column::Number("free"),
        Column::Text("place"),
    ]);
    for device in list(answer, "devices") {
        let place = match device.get("failure").and_then(Value::as_str) {
            Some(failure) => format!("{} ({failure})", text(device, "place")),
            None => text(device, "place"),
        };
        devices.add_row([
            text(device, "id"),
            text(device, "pool"),
            show_bytes(number(device, "used_bytes")),
            show_bytes(number(device, "free_bytes")),
            place,
        ]);
    }
    format!("{}\n{}\n{}\n{}", lines(&volumes), lines(&replicas), lines(&scrubs), lines(&devices))
}

fn scrub_row(volume: &Value) -> [String; 8] {
    let scrub = volume.get("scrub").unwrap_or(&Value::Null);
    let (done, total) = (number(scrub, "done_bytes"), number(volume, "provisioned_bytes"));
    let stage = text(scrub, "stage");
    let percent = match stage.as_str() {
        "running" | "interrupted" if total > 0 => format!("{:.1} %", done as f64 * 100.0 / total as f64),
        _ => String::new(),
    };
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let ended = match scrub.get("ended_s").and_then(Value::as_u64) {
        Some(ended_s) => format!("{} ago", show_age(now_s.saturating_sub(ended_s))),
        None => "never".to_owned(),
    };
    let count = |key| number(scrub, key).to_string();
    let verified = show_bytes(number(scrub, "verified_bytes"));
    let name = text(volume, "name");
    [name, stage, percent, verified, count("bad_blocks"), count("lost_blocks"), count("unread_blocks"), ended]
}

/// Seconds in the largest unit of which there is one.
fn show_age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn replica_row(volume: &str, replica: &Value) -> [String; 6] {
    let (away, catching_up) = (number(replica, "away"), number(replica, "catching_up"));
    let state = match (away, catching_up) {
        (0, 0) => "in sync".to_owned(),
        (0, _) => "catching up".to_owned(),
        _ => match replica.get("why").and_then(Value::as_str) {
            Some(why) => format!("away: {why}"),
            None => "away".to_owned(),
        },
    };
    let (done, total) = (number(replica, "done_bytes"), number(replica, "total_bytes"));
    let (mut percent, mut rate, mut left) = (String::new(), String::new(), String::new());
    if catching_up > 0 && total > 0 {
        percent = format!("{:.1} %", done as f64 * 100.0 / total as f64);
        let per_s = replica.get("bytes_per_s").and_then(Value::as_f64).unwrap_or_default();
        rate = format!("{}/s", show_bytes(per_s as u64));
        left = replica.get("eta_s").and_then(Value::as_f64).map_or_else(String::new, |s| format!("{s:.0} s"));
    }
    [volume.to_owned(), text(replica, "pool"), state, percent, rate, left]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_show_what_is_wrong() {
        let answer = serde_json::json!({
            "volumes": [{
                "name": "db", "health": "catching_up", "provisioned_bytes": 1u64 << 30, "corrupted_blocks": 3,
                "replicas": [
                    { "pool": "a", "in_sync": 1, "catching_up": 0, "away": 0 },
                    { "pool": "b", "catching_up": 1, "away": 0, "done_bytes": 50, "total_bytes": 200,
                      "bytes_per_s": 2048.0, "eta_s": 7.2 },
                    { "pool": "c", "catching_up": 0, "away": 1, "why": "it hangs" },
                ],
                "scrub": { "stage": "running", "done_bytes": 1u64 << 28, "verified_bytes": 5u64 << 20,
                           "bad_blocks": 17, "ended_s": 1000 },
            }],
            "devices": [{ "id": "d1", "pool": "a", "used_bytes": 4096, "free_bytes": 8192, "place": "/dev/x" }],
        });
        let text = tables(&answer);
        for expected in
            ["catching up", "1 GiB", "in sync", "25.0 %", "2 KiB/s", "7 s", "away: it hangs", "/dev/x"]
                .into_iter()
                .chain(["running", "5 MiB", "17", " d ago"])
        {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }

    #[test]
    fn a_strange_answer_makes_empty_tables() {
        let text = tables(&serde_json::json!({ "volumes": 7, "devices": [null] }));
        assert!(text.contains("volume"), "{text}");
    }
}
