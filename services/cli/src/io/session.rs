//! A namespace on its core. The session cannot leave the core, so the main thread sends functions to it.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use ashlar_initiator::{HostError, Session};
use ashlar_nvme::Nsid;
use ashlar_reactor::{CoreId, Reply};
use clap::Args;

use crate::connect::{self, Doing, Host, HostArgs, NamespaceArgs};
use crate::exit::{Exit, Failure, Outcome};
use crate::units::{parse_duration, parse_size};

/// Deepest queue that copying and verifying use: deeper ones add memory, not speed.
const DEPTH_MAX: u16 = 1024;

/// Which namespace, which part of it, and how to move its data.
#[derive(Debug, Clone, Args)]
pub(crate) struct SessionArgs {
    #[command(flatten)]
    pub(crate) host: HostArgs,
    #[command(flatten)]
    pub(crate) namespace: NamespaceArgs,
    /// First byte of the namespace to use
    #[arg(long, default_value = "0", value_parser = parse_size)]
    pub(crate) offset: u64,
    /// Bytes to use; as many as there are if not given
    #[arg(long, value_parser = parse_size)]
    pub(crate) length: Option<u64>,
    /// Bytes per command, at most what the controller takes
    #[arg(short, long, default_value = "128k", value_parser = parse_size)]
    size: u64,
    /// Commands in flight
    #[arg(short, long, default_value_t = 32)]
    depth: u16,
    /// How long a lost connection is set up again before the command gives up
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    reconnect: Duration,
}

/// What the main thread knows of the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Bytes of a block.
    pub(crate) block_bytes: u64,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Most bytes of one command.
    pub(crate) transfer_max: u64,
    /// NGUID, by which it is known again.
    pub(crate) nguid: [u8; 16],
}

thread_local! {
    static SESSION: RefCell<Option<Rc<Session>>> = const { RefCell::new(None) };
}

/// The session of this core.
pub(crate) fn current() -> Outcome<Rc<Session>> {
    SESSION
        .with_borrow(Clone::clone)
        .ok_or_else(|| Failure::new(Exit::Failed, "using the namespace", "it is not connected"))
}

/// A namespace that is attached.
pub(crate) struct Attached {
    host: Host,
    /// What it is.
    pub(crate) seen: Seen,
    /// How it is called in messages.
    pub(crate) name: String,
    /// Bytes per command.
    pub(crate) size: u64,
    /// Commands in flight.
    pub(crate) depth: u16,
}

impl Attached {
    /// Connects and looks at the namespace.
    pub(crate) fn open(args: &SessionArgs) -> Outcome<Self> {
        if args.depth == 0 || args.depth > DEPTH_MAX {
            let why = format!("{} is not from 1 to {DEPTH_MAX}", args.depth);
            return Err(Failure::usage("reading --depth", why));
        }
        let address = connect::resolve(&args.host.address)?;
        let subsystem = connect::subsystem(&args.namespace.subsystem)?;
        let nsid = Nsid(args.namespace.nsid);
        let name = format!("namespace {nsid} of {subsystem}");
        let mut config = args.host.config()?;
        config.queue_entries = args.depth + 1;
        config.reconnect.give_up_after = args.reconnect;
        let (doing, deadline) = (Doing::new(format!("connecting to {name} at {address}")), args.reconnect);
        let host = Host::start(vec![None])?;
        let seen = host.run(move || async move {
            let session = Session::open(address, subsystem, nsid, config, deadline)
                .await
                .map_err(|error| doing.failed(&error))?;
            let namespace = session.namespace();
            let seen = Seen {
                block_bytes: u64::from(namespace.block_bytes),
                bytes: namespace.blocks.saturating_mul(u64::from(namespace.block_bytes)),
                transfer_max: u64::from(session.transfer_max()),
                nguid: namespace.identify.nguid,
            };
            SESSION.set(Some(Rc::new(session)));
            Ok(seen)
        });
        let seen = match seen {
            Ok(seen) => seen,
            Err(failure) => {
                host.stop();
                return Err(failure);
            }
        };
        let size = args.size.min(seen.transfer_max);
        let attached = Self { host, size, depth: args.depth, name, seen };
        if size == 0 || !size.is_multiple_of(attached.seen.block_bytes.max(1)) {
            let why = format!("{size} is not a multiple of the {}-byte blocks", attached.seen.block_bytes);
            attached.close();
            return Err(Failure::usage("reading --size", why));
        }
        Ok(attached)
    }

    /// Starts an async function on the core. The core's session is [`current`].
    pub(crate) fn start<T, F, Fut>(&self, work: F) -> Reply<Outcome<T>>
    where
        T: Send + 'static,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Outcome<T>> + 'static,
    {
        self.host.cores().handle().run_on(CoreId(0), work)
    }

    /// Runs an async function on the core and waits for it.
    pub(crate) fn run<T, F, Fut>(&self, work: F) -> Outcome<T>
    where
        T: Send + 'static,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Outcome<T>> + 'static,
    {
        self.host.run(work)
    }

    /// Reaches the core from another thread.
    pub(crate) fn cores(&self) -> ashlar_reactor::CoresHandle {
        self.host.cores().handle()
    }

    /// How often the connection was set up again.
    pub(crate) fn reconnects(&self) -> u64 {
        self.run(|| async { Ok(current()?.reconnects()) }).unwrap_or_default()
    }

    /// Makes what was written durable.
    pub(crate) fn flush(&self) -> Outcome {
        let doing = self.doing("flushing");
        self.run(|| async move { current()?.flush().await.map_err(|error| doing.failed(&error)) })
    }

    /// Disconnects and stops the core.
    pub(crate) fn close(self) {
        // The work is over; an untidy end of the association does not spoil it.
        let _ = self.run(|| async {
            if let Some(session) = SESSION.take().and_then(Rc::into_inner) {
                let _: Result<(), HostError> = session.close().await;
            }
            Ok(())
        });
        self.host.stop();
    }

    /// Something done to this namespace, for messages.
    pub(crate) fn doing(&self, gerund: &str) -> Doing {
        Doing::new(format!("{gerund} {}", self.name))
    }

    /// The bytes from `offset` on that are to be used, checked against the namespace.
    pub(crate) fn range(&self, args: &SessionArgs, length: Option<u64>) -> Outcome<(u64, u64)> {
        range(&self.seen, &self.name, args.offset, length)
    }
}

fn range(seen: &Seen, name: &str, offset: u64, length: Option<u64>) -> Outcome<(u64, u64)> {
    let doing = || format!("choosing the bytes of {name}");
    if !offset.is_multiple_of(seen.block_bytes.max(1)) {
        let why = format!("--offset {offset} is not a multiple of its {}-byte blocks", seen.block_bytes);
        return Err(Failure::usage(doing(), why));
    }
    let rest = seen.bytes.checked_sub(offset).ok_or_else(|| {
        Failure::usage(doing(), format!("--offset {offset} is beyond its {} bytes", seen.bytes))
    })?;
    let length = length.unwrap_or(rest);
    if length > rest {
        let why = format!("{length} bytes from {offset} do not fit into its {} bytes", seen.bytes);
        return Err(Failure::usage(doing(), why));
    }
    Ok((offset, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_stay_within_the_namespace() {
        let seen = Seen { block_bytes: 4096, bytes: 65536, transfer_max: 1 << 20, nguid: [0; 16] };
        let range = |offset, length| range(&seen, "namespace 1", offset, length).map_err(|f| f.exit());
        assert_eq!(range(0, None), Ok((0, 65536)));
        assert_eq!(range(4096, None), Ok((4096, 61440)));
        assert_eq!(range(4096, Some(100)), Ok((4096, 100)));
        assert_eq!(range(65536, None), Ok((65536, 0)));
        for (offset, length) in [(1, None), (69632, None), (4096, Some(61441)), (0, Some(u64::MAX))] {
            assert_eq!(range(offset, length), Err(Exit::Usage), "{offset} {length:?}");
        }
    }
}
