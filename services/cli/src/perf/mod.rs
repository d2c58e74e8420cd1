//! `ashlar perf`: a load generator for namespaces.
//!
//! - [`plan`]: what is asked for: groups, queues, cores
//! - [`offsets`]: which block next, and when
//! - [`worker`]: the loop on each core
//! - [`measure`], [`report`]: figures and how they are shown
//! - [`progress`]: the live line

mod measure;
mod offsets;
mod plan;
mod progress;
mod report;
mod worker;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ashlar_initiator::{Controller, FlowControl, IoQueue, Namespace, Ticket};
use ashlar_nvme::{Nsid, Qid};
use ashlar_reactor::{CoreCounters, CoreId, spawn_join};
use clap::Args;

use self::plan::{GroupSpec, Load, Pattern, Plan, Rw};
use self::progress::{Live, Progress};
use self::report::{Attached, CoreReport, QueueTally, Report, Run};
use self::worker::{Area, Broken, Ran, Ready, Stop, Window};
use crate::connect::{self, Doing, Host, HostArgs, NamespaceArgs, Switch};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Format};
use crate::units::{parse_count, parse_duration, parse_size};

/// Time between the decision to start and the first command: enough for every core to have its tasks.
const LEAD: Duration = Duration::from_millis(20);

/// Measure what a namespace can do
#[derive(Debug, Clone, Args)]
pub(crate) struct PerfArgs {
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// Commands to send; write and mixed destroy what is in the namespace
    #[arg(long, value_enum, default_value = "read")]
    rw: Rw,
    /// Share of reads in percent for --rw mixed
    #[arg(long, value_name = "PERCENT", default_value_t = 50)]
    read_percent: u8,
    /// Order of offsets
    #[arg(long, value_enum, default_value = "random")]
    pattern: Pattern,
    /// Bytes per command
    #[arg(short, long, default_value = "4k", value_parser = parse_size)]
    size: u64,
    /// Commands in flight per queue
    #[arg(short, long, default_value_t = 128)]
    depth: u16,
    /// Queues, each a TCP connection, dealt out to the cores
    #[arg(short, long, default_value_t = 1)]
    queues: u16,
    /// Cores to drive the load with, left to the scheduler
    #[arg(long, default_value_t = 1, conflicts_with = "cpus")]
    cores: u16,
    /// CPUs to drive the load with, one pinned thread each, like 1 or 0,2-3
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Measured time
    #[arg(short, long, default_value = "10s", value_parser = parse_duration)]
    time: Duration,
    /// Time before that, which does not count
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    warmup: Duration,
    /// Commands per second of the whole load (of each group, with --group); as many as possible if not given
    #[arg(long, value_name = "IOPS", value_parser = parse_count)]
    rate: Option<u64>,
    /// First byte of the namespace to use
    #[arg(long, default_value = "0", value_parser = parse_size)]
    offset: u64,
    /// Bytes of the namespace to use; all to its end if not given
    #[arg(long, value_parser = parse_size)]
    length: Option<u64>,
    /// Submission queue flow control; off saves a response per read if the target grants it
    #[arg(long, value_enum, default_value = "off")]
    sq_flow_control: Switch,
    /// A group of queues with its own settings, like hog:queues=1,depth=1024; can be given several times.
    /// Keys: rw, read-percent, pattern, size, depth, queues, rate; the options above are the defaults
    #[arg(long, value_name = "NAME:KEY=VALUE,...")]
    group: Vec<GroupSpec>,
}

thread_local! {
    /// What this core keeps between the steps of a run.
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept { controller: None, queues: Vec::new() }) };
}

struct Kept {
    controller: Option<Controller>,
    queues: Vec<Ready>,
}

impl PerfArgs {
    fn plan(&self, cores: usize) -> Outcome<Plan> {
        let size = u32::try_from(self.size).unwrap_or(u32::MAX);
        let base = Load {
            rw: self.rw,
            read_percent: self.read_percent,
            pattern: self.pattern,
            size,
            depth: self.depth,
            queues: self.queues,
            rate: self.rate,
        };
        Plan::new(&base, &self.group, cores).map_err(|why| Failure::usage("planning the load", why))
    }

    fn cpus(&self) -> Outcome<Vec<Option<usize>>> {
        match &self.cpus {
            Some(list) => {
                let cpus = plan::parse_cpus(list).map_err(|why| Failure::usage("reading --cpus", why))?;
                Ok(cpus.into_iter().map(Some).collect())
            }
            None if self.cores == 0 => Err(Failure::usage("reading --cores", "at least one is needed")),
            None => Ok(vec![None; usize::from(self.cores)]),
        }
    }

    /// The part of the namespace to use, checked against the sizes of the plan.
    fn area(&self, namespace: &Namespace, transfer_max: u32, plan: &Plan) -> Outcome<Area> {
        let doing = format!("laying out the load on namespace {}", namespace.nsid);
        let fail = |why: String| Failure::new(Exit::Usage, &*doing, why);
        let block = u64::from(namespace.block_bytes.max(1));
        let bytes = namespace.blocks.saturating_mul(block);
        let aligned = |bytes: u64| bytes.is_multiple_of(block);
        if !aligned(self.offset) || !self.length.is_none_or(aligned) {
            return Err(fail(format!("--offset and --length must be multiples of its {block}-byte blocks")));
        }
        let length = self.length.unwrap_or(bytes.saturating_sub(self.offset));
        if self.offset.checked_add(length).is_none_or(|end| end > bytes) {
            return Err(fail(format!(
                "{length} bytes from {} are not within its {bytes} bytes",
                self.offset
            )));
        }
        for group in &plan.groups {
            let size = group.load.size;
            if !aligned(u64::from(size)) {
                return Err(fail(format!("size {size} is not a multiple of its {block}-byte blocks")));
            }
            if size > transfer_max {
                return Err(fail(format!("size {size} is above the controller's limit of {transfer_max}")));
            }
            if u64::from(size) > length {
                return Err(fail(format!("size {size} is above the {length} bytes to be used")));
            }
        }
        Ok(Area {
            nsid: namespace.nsid,
            block_bytes: namespace.block_bytes,
            first: self.offset / block,
            blocks: length / block,
        })
    }
}

/// Runs `ashlar perf`.
pub(crate) fn run(args: &PerfArgs, format: Format) -> Outcome {
    let cpus = args.cpus()?;
    let plan = args.plan(cpus.len())?;
    let host = Host::start(cpus.clone())?;
    let result = measure(args, &host, &plan, &cpus);
    for core in 0..cpus.len() as u16 {
        // The queues first, then the controller that they belong to; what is kept must not outlive its core.
        let _ = host.run_on(core, || async {
            let (controller, queues) =
                KEPT.with_borrow_mut(|kept| (kept.controller.take(), std::mem::take(&mut kept.queues)));
            drop(queues);
            if let Some(controller) = controller {
                // The measurement is over; an untidy end of the association does not spoil it.
                let _ = controller.shut_down().await;
            }
            Ok(())
        });
    }
    host.stop();
    let report = result?;
    match format {
        Format::Table => output::print(&report.tables()),
        Format::Json => output::print_json(&report),
    }
}

struct Seen {
    ticket: Ticket,
    namespace: Namespace,
    transfer_max: u32,
    io_queues: u16,
    queue_entries: u16,
}

fn measure(args: &PerfArgs, host: &Host, plan: &Plan, cpus: &[Option<usize>]) -> Outcome<Report> {
    let seen = attach(args, host, plan)?;
    let area = args.area(&seen.namespace, seen.transfer_max, plan)?;
    let deepest = plan.groups.iter().map(|group| group.load.depth).max().unwrap_or(1);
    if usize::from(seen.io_queues) < plan.queues.len() || seen.queue_entries <= deepest {
        let why = format!(
            "the target grants {} queues of depth {}, the load needs {} of up to {deepest}",
            seen.io_queues,
            seen.queue_entries.saturating_sub(1),
            plan.queues.len()
        );
        return Err(Failure::new(Exit::Precondition, "connecting the I/O queues", why)
            .next("lower --queues or --depth, or raise the target's limits"));
    }
    let flow_control = connect_queues(host, plan, &seen.ticket, cpus.len())?;

    let start = ashlar_reactor::clock::read() + LEAD;
    let window = Window { start, measure: start + args.warmup, end: start + args.warmup + args.time };
    let live: Vec<Arc<Live>> = cpus.iter().map(|_| Arc::default()).collect();
    let (tallies, counters) = drive(host, plan, area, window, &live)?;
    let (header_digest, data_digest) = args.host.digests();
    let target = Attached {
        address: args.host.address.clone(),
        subsystem: args.namespace.subsystem.clone(),
        nsid: args.namespace.nsid,
        block_bytes: u64::from(area.block_bytes),
        namespace_bytes: seen.namespace.blocks * u64::from(area.block_bytes),
        header_digest,
        data_digest,
        sq_flow_control: flow_control == Switch::On,
    };
    let run = Run {
        target,
        seconds: args.time.as_secs_f64(),
        warmup_seconds: args.warmup.as_secs_f64(),
        cores: core_reports(cpus, &counters),
    };
    Ok(Report::new(run, plan, &tallies))
}

/// Connects the controller on the first core and looks at the namespace.
fn attach(args: &PerfArgs, host: &Host, plan: &Plan) -> Outcome<Seen> {
    let address = connect::resolve(&args.host.address)?;
    let subsystem = connect::subsystem(&args.namespace.subsystem)?;
    let mut config = args.host.config()?;
    let deepest = plan.groups.iter().map(|group| group.load.depth).max().unwrap_or(1);
    // One entry of a queue always stays empty.
    config.queue_entries = deepest.saturating_add(1);
    config.io_queues = plan.queues.len() as u16;
    config.flow_control = match args.sq_flow_control {
        Switch::On => FlowControl::Enabled,
        Switch::Off => FlowControl::Disabled,
    };
    let nsid = Nsid(args.namespace.nsid);
    host.run(move || async move {
        let connecting = Doing::new(format!("connecting to {subsystem} at {address}"));
        let controller = Controller::connect(address, &subsystem, &config)
            .await
            .map_err(|error| connecting.failed(&error))?;
        let looking = Doing::new(format!("looking at namespace {nsid} of {subsystem}"));
        let namespace = controller.namespace(nsid).await.map_err(|error| looking.failed(&error))?;
        let info = controller.info();
        let seen = Seen {
            ticket: controller.ticket(),
            namespace,
            transfer_max: info.transfer_max,
            io_queues: info.io_queues,
            queue_entries: info.queue_entries,
        };
        KEPT.with_borrow_mut(|kept| kept.controller = Some(controller));
        Ok(seen)
    })
}

/// Connects each queue on its core. Says whether flow control is on, which the target decides.
fn connect_queues(host: &Host, plan: &Plan, ticket: &Ticket, cores: usize) -> Outcome<Switch> {
    let mut flow_control = Switch::Off;
    for core in 0..cores {
        let plans: Vec<_> =
            plan.queues.iter().cloned().enumerate().filter(|(_, queue)| queue.core == core).collect();
        let ticket = ticket.clone();
        let disabled = host.run_on(core as u16, move || async move {
            let mut disabled = true;
            for (index, plan) in plans {
                let doing = Doing::new(format!("connecting I/O queue {}", plan.qid));
                let queue =
                    IoQueue::connect(&ticket, Qid(plan.qid)).await.map_err(|error| doing.failed(&error))?;
                disabled &= queue.flow_control_is_disabled();
                KEPT.with_borrow_mut(|kept| kept.queues.push(Ready { queue, index, plan }));
            }
            Ok(disabled)
        })?;
        if !disabled {
            flow_control = Switch::On;
        }
    }
    Ok(flow_control)
}

/// Counters of the cores over the measured time, and how long that was.
struct Counted {
    before: Vec<CoreCounters>,
    after: Vec<CoreCounters>,
    seconds: f64,
}

/// Sets all cores to work and waits, drawing the live line meanwhile.
fn drive(
    host: &Host,
    plan: &Plan,
    area: Area,
    window: Window,
    live: &[Arc<Live>],
) -> Outcome<(Vec<QueueTally>, Counted)> {
    let handle = host.cores().handle();
    let stop = Arc::new(Stop::default());
    let ended = Arc::new(AtomicBool::new(false));
    let replies: Vec<_> = live
        .iter()
        .enumerate()
        .map(|(core, live)| {
            let (live, stop) = (Arc::clone(live), Arc::clone(&stop));
            handle.run_on(CoreId(core as u16), move || async move {
                let queues = KEPT.with_borrow_mut(|kept| std::mem::take(&mut kept.queues));
                // A task of its own: the closure's future is polled in the middle of the inbox's work.
                let work = spawn_join(worker::drive_all(queues, area, window, live, stop));
                work.await.unwrap_or_default()
            })
        })
        .collect();

    let counters = || (0..live.len() as u16).map(|core| handle.counters(CoreId(core))).collect::<Vec<_>>();
    let mut counted = Counted { before: counters(), after: Vec::new(), seconds: 1.0 };
    let watcher = {
        let (ended, live) = (Arc::clone(&ended), live.to_vec());
        let length = window.end.since(window.start);
        std::thread::spawn(move || {
            let mut progress = Progress::new(live, length);
            while !ended.load(Ordering::Relaxed) {
                progress.draw();
                std::thread::park_timeout(progress::REDRAW);
            }
        })
    };
    std::thread::sleep(window.measure.since(ashlar_reactor::clock::read()));
    let measured_from = ashlar_reactor::clock::read();
    counted.before = counters();

    let mut ran: Vec<Ran> = Vec::new();
    let mut gone = None;
    for reply in replies {
        match reply.wait() {
            Ok(queues) => ran.extend(queues),
            Err(error) => gone = Some(connect::core_gone(error)),
        }
    }
    counted.after = counters();
    counted.seconds = ashlar_reactor::clock::read().since(measured_from).as_secs_f64();
    ended.store(true, Ordering::Relaxed);
    watcher.thread().unpark();
    // It only draws.
    let _ = watcher.join();
    if let Some(failure) = gone {
        return Err(failure);
    }
    let mut tallies = vec![QueueTally::default(); plan.queues.len()];
    for Ran { index, tally, broken } in ran {
        let doing = || {
            let qid = plan.queues.get(index).map_or(0, |queue| queue.qid);
            format!("running the load on I/O queue {qid}")
        };
        match broken {
            Some(Broken::Queue(error)) => return Err(Doing::new(doing()).failed(&error)),
            Some(Broken::Command(why)) => return Err(Failure::new(Exit::Failed, doing(), why)),
            None => {}
        }
        if let Some(place) = tallies.get_mut(index) {
            *place = tally;
        }
    }
    Ok((tallies, counted))
}

fn core_reports(cpus: &[Option<usize>], counted: &Counted) -> Vec<CoreReport> {
    cpus.iter()
        .zip(counted.before.iter().zip(&counted.after))
        .map(|(cpu, (before, after))| {
            let idle_ns = (after.sleep_ns - before.sleep_ns) + (after.spin_ns - before.spin_ns);
            CoreReport {
                cpu: *cpu,
                busy_share: (1.0 - idle_ns as f64 / 1e9 / counted.seconds).clamp(0.0, 1.0),
                enters: after.enters - before.enters,
                turns: after.turns - before.turns,
            }
        })
        .collect()
}
