//! `ashlar io read` and `ashlar io write`: the main thread does the files, the core does the namespace, and a
//! window of commands is kept in flight between them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::Instant;

use ashlar_initiator::{Fua, Payload};
use ashlar_nvme::Lba;
use ashlar_reactor::{IoBuf, Reply};
use clap::Args;
use serde::Serialize;

use super::progress::Progress;
use super::session::{Attached, SessionArgs, current};
use crate::connect::core_gone;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Format};
use crate::units::{parse_size, show_bytes};

/// Options of `ashlar io read`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// File to write to, replaced if it exists; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    to: PathBuf,
}

/// Options of `ashlar io write`.
#[derive(Debug, Clone, Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    session: SessionArgs,
    /// File to read from; - is standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    from: PathBuf,
    /// Bytes of the file to skip
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    skip: u64,
    /// Force unit access: every write is on the medium when it completes
    #[arg(long)]
    fua: bool,
}

/// What was moved. This is the JSON document of both commands.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Moved {
    bytes: u64,
    offset: u64,
    seconds: f64,
    bytes_per_s: f64,
    reconnects: u64,
}

impl Moved {
    fn new(attached: &Attached, offset: u64, bytes: u64, since: Instant) -> Self {
        let seconds = since.elapsed().as_secs_f64().max(1e-9);
        Self {
            bytes,
            offset,
            seconds,
            bytes_per_s: bytes as f64 / seconds,
            reconnects: attached.reconnects(),
        }
    }

    fn line(&self, verb: &str, end: &str) -> String {
        let reconnects = match self.reconnects {
            0 => String::new(),
            n => format!(", {n} reconnects"),
        };
        format!(
            "{verb} {} at offset {} in {:.1} s, {}/s{reconnects}{end}\n",
            show_bytes(self.bytes),
            self.offset,
            self.seconds,
            show_bytes(self.bytes_per_s as u64)
        )
    }
}

fn is_standard(path: &std::path::Path) -> bool {
    path.as_os_str() == "-"
}

/// Runs `ashlar io read`.
pub(crate) fn read(args: &ReadArgs, format: Format) -> Outcome {
    let attached = Attached::open(&args.session)?;
    let moved = read_all(args, &attached);
    attached.close();
    let moved = moved?;
    let text = moved.line("read", "");
    match format {
        // Standard output is the data's.
        _ if is_standard(&args.to) => {
            eprint!("{text}");
            Ok(())
        }
        Format::Table => output::print(&text),
        Format::Json => output::print_json(&moved),
    }
}

fn read_all(args: &ReadArgs, attached: &Attached) -> Outcome<Moved> {
    let (offset, length) = attached.range(&args.session, args.session.length)?;
    let name =
        if is_standard(&args.to) { "standard output".to_owned() } else { args.to.display().to_string() };
    let failed = |error: io::Error| Failure::file(format!("writing to {name}"), &error);
    let mut out: Box<dyn Write> = match is_standard(&args.to) {
        true => Box::new(io::stdout().lock()),
        false => Box::new(File::create(&args.to).map_err(failed)?),
    };
    let since = Instant::now();
    let progress = Progress::new("reading", Some(length));
    let mut window = VecDeque::new();
    let (mut asked, mut written) = (0, 0);
    while written < length {
        while asked < length && window.len() < usize::from(attached.depth) {
            let wanted = attached.size.min(length - asked);
            window.push_back((wanted, start_read(attached, offset + asked, wanted)));
            asked += wanted;
        }
        let Some((wanted, reply)) = window.pop_front() else { break };
        let buffer = reply.wait().map_err(core_gone)??;
        out.write_all(buffer.get(..wanted as usize).unwrap_or(&buffer)).map_err(failed)?;
        written += wanted;
        progress.set(written);
    }
    out.flush().map_err(failed)?;
    drop(progress);
    Ok(Moved::new(attached, offset, written, since))
}

/// Reads the blocks that hold `wanted` bytes from `offset` on.
fn start_read(attached: &Attached, offset: u64, wanted: u64) -> Reply<Outcome<IoBuf>> {
    let block = attached.seen.block_bytes;
    let doing = attached.doing(&format!("reading {wanted} bytes at offset {offset} of"));
    // At most a transfer, which is below 4 GiB.
    let (slba, len) = (Lba(offset / block), wanted.next_multiple_of(block) as u32);
    attached
        .start(move || async move { current()?.read(slba, len).await.map_err(|error| doing.failed(&error)) })
}

/// Runs `ashlar io write`.
pub(crate) fn write(args: &WriteArgs, format: Format) -> Outcome {
    let attached = Attached::open(&args.session)?;
    let moved = write_all(args, &attached);
    attached.close();
    let moved = moved?;
    match format {
        Format::Table => output::print(&moved.line("wrote", ", flushed")),
        Format::Json => output::print_json(&moved),
    }
}

/// Where the bytes come from, and how many there are if that is known.
fn source(args: &WriteArgs) -> Outcome<(Box<dyn Read>, Option<u64>)> {
    if is_standard(&args.from) {
        let mut input = io::stdin().lock();
        let failed = |error: io::Error| Failure::file("skipping bytes of standard input", &error);
        io::copy(&mut input.by_ref().take(args.skip), &mut io::sink()).map_err(failed)?;
        return Ok((Box::new(input), None));
    }
    let failed = |error: io::Error| Failure::file(format!("opening {}", args.from.display()), &error);
    let mut file = File::open(&args.from).map_err(failed)?;
    // Of a block device the metadata knows no size, its end does.
    let bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
    file.seek(SeekFrom::Start(args.skip)).map_err(failed)?;
    Ok((Box::new(file), Some(bytes.saturating_sub(args.skip))))
}

fn write_all(args: &WriteArgs, attached: &Attached) -> Outcome<Moved> {
    let (source, available) = source(args)?;
    let wanted = match (args.session.length, available) {
        (Some(length), Some(available)) if available < length => {
            let why = format!("it has only {available} of the {length} bytes asked for");
            return Err(Failure::new(Exit::Precondition, format!("reading {}", args.from.display()), why));
        }
        (Some(length), _) => Some(length),
        (None, available) => available,
    };
    let (offset, room) = attached.range(&args.session, wanted)?;
    // Of a source without an end known before, one byte too many is what shows that it does not fit.
    let mut source = source.take(if wanted.is_some() { room } else { room.saturating_add(1) });
    let fua = if args.fua { Fua::Yes } else { Fua::No };
    let since = Instant::now();
    let progress = Progress::new("writing", wanted);
    let mut window: VecDeque<(u64, Reply<Outcome>)> = VecDeque::new();
    let (mut taken, mut written) = (0_u64, 0_u64);
    let mut ended = false;
    loop {
        while !ended && window.len() < usize::from(attached.depth) {
            let bytes = next_chunk(&mut source, attached.size as usize)?;
            ended = bytes.len() < attached.size as usize;
            if bytes.is_empty() {
                break;
            }
            if taken + bytes.len() as u64 > room {
                let why = format!("the input is longer than the {room} bytes that it has from {offset} on");
                return Err(Failure::new(Exit::Precondition, format!("writing to {}", attached.name), why));
            }
            window.push_back((bytes.len() as u64, start_write(attached, offset + taken, &bytes, fua)));
            taken += bytes.len() as u64;
        }
        let Some((bytes, reply)) = window.pop_front() else { break };
        reply.wait().map_err(core_gone)??;
        written += bytes;
        progress.set(written);
    }
    if let Some(length) = args.session.length
        && written < length
    {
        let why = format!("the input ended after {written} of the {length} bytes asked for");
        return Err(Failure::new(Exit::Precondition, format!("writing to {}", attached.name), why));
    }
    attached.flush()?;
    drop(progress);
    Ok(Moved::new(attached, offset, written, since))
}

/// The next `size` bytes; fewer only at the end.
fn next_chunk(source: &mut impl Read, size: usize) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::with_capacity(size);
    source
        .take(size as u64)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::file("reading the input", &error))?;
    Ok(bytes)
}

/// Writes `bytes` at `offset`. A part of a block at the end keeps the rest of that block as it was.
fn start_write(attached: &Attached, offset: u64, bytes: &[u8], fua: Fua) -> Reply<Outcome> {
    let block = attached.seen.block_bytes;
    let doing = attached.doing(&format!("writing {} bytes at offset {offset} of", bytes.len()));
    let whole = (bytes.len() as u64).next_multiple_of(block) as usize;
    let mut buffer = IoBuf::heap(whole);
    if let Some(to) = buffer.get_mut(..bytes.len()) {
        to.copy_from_slice(bytes);
    }
    let (used, slba) = (bytes.len(), offset / block);
    attached.start(move || async move {
        let session = current()?;
        if used < whole {
            let last = slba + (whole as u64 / block - 1);
            let old = session.read(Lba(last), block as u32).await.map_err(|error| doing.failed(&error))?;
            let kept = old.get((used as u64 % block) as usize..).unwrap_or_default();
            for (to, from) in buffer.iter_mut().skip(used).zip(kept) {
                *to = *from;
            }
        }
        session.write(Lba(slba), Payload::from(buffer), fua).await.map_err(|error| doing.failed(&error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte per call, as a slow pipe does.
    struct Trickle(Vec<u8>);

    impl Read for Trickle {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() || to.is_empty() {
                return Ok(0);
            }
            to[0] = self.0.remove(0);
            Ok(1)
        }
    }

    #[test]
    fn a_slow_pipe_still_gives_whole_chunks() {
        let mut source = Trickle((0..10).collect());
        assert_eq!(next_chunk(&mut source, 4).expect("reads"), [0, 1, 2, 3]);
        assert_eq!(next_chunk(&mut source, 4).expect("reads"), [4, 5, 6, 7]);
        assert_eq!(next_chunk(&mut source, 4).expect("reads"), [8, 9]);
        assert!(next_chunk(&mut source, 4).expect("reads").is_empty());
    }

    #[test]
    fn the_summary_is_one_line() {
        let moved =
            Moved { bytes: 1 << 30, offset: 4096, seconds: 2.0, bytes_per_s: 536_870_912.0, reconnects: 1 };
        assert_eq!(
            moved.line("wrote", ", flushed"),
            "wrote 1 GiB at offset 4096 in 2.0 s, 512 MiB/s, 1 reconnects, flushed\n"
        );
    }
}
