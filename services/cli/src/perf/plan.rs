//! What a load consists of: groups of queues, dealt out to cores.

use std::str::FromStr;

use clap::ValueEnum;
use serde::Serialize;

use crate::units::{parse_count, parse_size};

/// Most queues of one run: the queue identifiers that one controller could offer to a large host.
pub(crate) const QUEUES_MAX: usize = 1024;

/// Deepest queue: the most entries that our host takes, less the one that stays empty.
pub(crate) const DEPTH_MAX: u16 = ashlar_initiator::config::QUEUE_ENTRIES_MAX - 1;

/// Largest single transfer: what the target takes at most (MDTS).
pub(crate) const SIZE_MAX: u32 = 1 << 20;

/// Which commands are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Rw {
    /// Read only.
    Read,
    /// Write only.
    Write,
    /// Both, by `--read-percent`.
    Mixed,
}

/// Order of the offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pattern {
    /// Each anywhere, evenly.
    Random,
    /// One after the other, each queue in a part of its own.
    Sequential,
}

/// What all queues of a group do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Load {
    /// Commands.
    pub(crate) rw: Rw,
    /// Share of reads in percent, when mixed.
    pub(crate) read_percent: u8,
    /// Order of offsets.
    pub(crate) pattern: Pattern,
    /// Bytes per command.
    pub(crate) size: u32,
    /// Commands in flight per queue.
    pub(crate) depth: u16,
    /// Queues.
    pub(crate) queues: u16,
    /// Commands per second of the whole group, if limited.
    pub(crate) rate: Option<u64>,
}

impl Load {
    /// Share of reads in percent, whatever `rw` is.
    pub(crate) fn reads(&self) -> u8 {
        match self.rw {
            Rw::Read => 100,
            Rw::Write => 0,
            Rw::Mixed => self.read_percent,
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.size == 0 || !self.size.is_multiple_of(512) || self.size > SIZE_MAX {
            return Err(format!("size {} is not a multiple of 512 from 512 to {SIZE_MAX}", self.size));
        }
        if self.depth == 0 || self.depth > DEPTH_MAX {
            return Err(format!("depth {} is not from 1 to {DEPTH_MAX}", self.depth));
        }
        if self.queues == 0 {
            return Err("no queues".to_owned());
        }
        if self.read_percent > 100 {
            return Err(format!("read-percent {} is above 100", self.read_percent));
        }
        if self.rate == Some(0) {
            return Err("a rate of 0 never sends anything; leave it out for no limit".to_owned());
        }
        Ok(())
    }
}

/// `NAME:key=value,…` of `--group`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupSpec {
    name: String,
    settings: Vec<(String, String)>,
}

impl FromStr for GroupSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        if name.is_empty() {
            return Err("a group needs a name: NAME:queues=6,depth=4".to_owned());
        }
        let settings = rest
            .split(',')
            .filter(|part| !part.is_empty())
            .map(|part| {
                let (key, value) =
                    part.split_once('=').ok_or_else(|| format!("{part:?} is not key=value"))?;
                Ok((key.trim().to_owned(), value.trim().to_owned()))
            })
            .collect::<Result<_, String>>()?;
        let spec = Self { name: name.to_owned(), settings };
        // Unknown keys and broken values are told when the command line is read.
        let any = Load {
            rw: Rw::Read,
            read_percent: 50,
            pattern: Pattern::Random,
            size: 4096,
            depth: 1,
            queues: 1,
            rate: None,
        };
        spec.over(&any)?;
        Ok(spec)
    }
}

impl GroupSpec {
    /// The group's load: its own settings, for the rest those of the command line.
    fn over(&self, base: &Load) -> Result<Load, String> {
        let mut load = base.clone();
        for (key, value) in &self.settings {
            let number = || format!("{value:?} is no valid {key}");
            match key.as_str() {
                "rw" => load.rw = Rw::from_str(value, true).map_err(|_| number())?,
                "read-percent" => load.read_percent = value.parse().map_err(|_| number())?,
                "pattern" => load.pattern = Pattern::from_str(value, true).map_err(|_| number())?,
                "size" => load.size = u32::try_from(parse_size(value)?).map_err(|_| number())?,
                "depth" => load.depth = value.parse().map_err(|_| number())?,
                "queues" => load.queues = value.parse().map_err(|_| number())?,
                "rate" => load.rate = Some(parse_count(value)?),
                _ => {
                    return Err(format!(
                        "{key:?} is no setting of a group; there are rw, read-percent, pattern, size, depth, \
                         queues, rate"
                    ));
                }
            }
        }
        load.check().map_err(|why| format!("group {:?}: {why}", self.name))?;
        Ok(load)
    }
}

/// A group with its settings complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Group {
    /// Name in the results.
    pub(crate) name: String,
    /// What its queues do.
    #[serde(flatten)]
    pub(crate) load: Load,
}

/// One queue of the run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueuePlan {
    /// Index of its group.
    pub(crate) group: usize,
    /// Queue identifier, from 1.
    pub(crate) qid: u16,
    /// Index of the core that drives it.
    pub(crate) core: usize,
    /// What it does.
    pub(crate) load: Load,
    /// Commands per second of this queue, if limited.
    pub(crate) rate: Option<f64>,
    /// Which part of the namespace it walks when sequential.
    pub(crate) part: Part,
}

/// The `index`-th of `of` equal parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// From zero.
    pub(crate) index: u64,
    /// Number of parts.
    pub(crate) of: u64,
}

/// The whole load.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// Groups in the order of the command line.
    pub(crate) groups: Vec<Group>,
    /// Queues of all groups; core and group are dealt out evenly.
    pub(crate) queues: Vec<QueuePlan>,
}

impl Plan {
    /// Groups over their base, dealt out to `cores` cores. Without groups the base is the only one, named
    /// `all`.
    pub(crate) fn new(base: &Load, specs: &[GroupSpec], cores: usize) -> Result<Self, String> {
        let groups = if specs.is_empty() {
            base.check()?;
            vec![Group { name: "all".to_owned(), load: base.clone() }]
        } else {
            specs
                .iter()
                .map(|spec| Ok(Group { name: spec.name.clone(), load: spec.over(base)? }))
                .collect::<Result<Vec<_>, String>>()?
        };
        for (index, group) in groups.iter().enumerate() {
            if groups.iter().take(index).any(|earlier| earlier.name == group.name) {
                return Err(format!("two groups have the name {:?}", group.name));
            }
        }
        let count: usize = groups.iter().map(|group| usize::from(group.load.queues)).sum();
        if count > QUEUES_MAX {
            return Err(format!("{count} queues are more than {QUEUES_MAX}"));
        }
        let mut queues = Vec::with_capacity(count);
        for (group_index, group) in groups.iter().enumerate() {
            let load = &group.load;
            for _ in 0..load.queues {
                let at = queues.len();
                queues.push(QueuePlan {
                    group: group_index,
                    // At most QUEUES_MAX, so it fits.
                    qid: at as u16 + 1,
                    core: at % cores.max(1),
                    load: load.clone(),
                    rate: load.rate.map(|rate| rate as f64 / f64::from(load.queues)),
                    part: Part { index: at as u64, of: count as u64 },
                });
            }
        }
        Ok(Self { groups, queues })
    }
}

/// CPUs as in `0,2-3`.
pub(crate) fn parse_cpus(text: &str) -> Result<Vec<usize>, String> {
    /// Far above any machine's number of CPUs; keeps `0-99999999` from being taken seriously.
    const CPU_MAX: usize = 8191;
    let number = |part: &str| {
        let cpu = part.trim().parse::<usize>().ok().filter(|cpu| *cpu <= CPU_MAX);
        cpu.ok_or_else(|| format!("{part:?} is no CPU number"))
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last {
            return Err(format!("{part:?} runs backwards"));
        }
        cpus.extend(first..=last);
    }
    let mut seen = cpus.clone();
    seen.sort_unstable();
    seen.dedup();
    if seen.len() != cpus.len() {
        return Err(format!("{text:?} names a CPU twice"));
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Load {
        Load {
            rw: Rw::Read,
            read_percent: 50,
            pattern: Pattern::Random,
            size: 4096,
            depth: 128,
            queues: 1,
            rate: None,
        }
    }

    fn spec(text: &str) -> GroupSpec {
        text.parse().expect("a valid group")
    }

    #[test]
    fn without_groups_the_options_are_the_load() {
        let plan = Plan::new(&Load { queues: 3, ..base() }, &[], 2).expect("a plan");
        assert_eq!(plan.groups.len(), 1);
        assert_eq!(plan.queues.iter().map(|queue| queue.qid).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(plan.queues.iter().map(|queue| queue.core).collect::<Vec<_>>(), [0, 1, 0]);
    }

    #[test]
    fn groups_take_what_they_do_not_set_from_the_options() {
        let specs = [spec("readers:queues=6,depth=4"), spec("hog:queues=1,depth=1024,rw=write,size=128k")];
        let plan = Plan::new(&Load { size: 8192, ..base() }, &specs, 1).expect("a plan");
        assert_eq!(plan.queues.len(), 7);
        let readers = &plan.groups[0].load;
        assert_eq!((readers.size, readers.depth, readers.rw), (8192, 4, Rw::Read));
        let hog = &plan.groups[1].load;
        assert_eq!((hog.size, hog.depth, hog.reads()), (128 << 10, 1024, 0));
        assert_eq!(plan.queues[6].group, 1);
    }

    #[test]
    fn a_groups_rate_is_shared_by_its_queues() {
        let plan = Plan::new(&base(), &[spec("a:queues=4,rate=10k")], 1).expect("a plan");
        assert!(plan.queues.iter().all(|queue| queue.rate == Some(2_500.0)));
    }

    #[test]
    fn each_queue_has_a_part_of_its_own() {
        let plan = Plan::new(&base(), &[spec("a:queues=2"), spec("b:queues=2")], 1).expect("a plan");
        let parts: Vec<_> = plan.queues.iter().map(|queue| (queue.part.index, queue.part.of)).collect();
        assert_eq!(parts, [(0, 4), (1, 4), (2, 4), (3, 4)]);
    }

    #[test]
    fn broken_groups_are_refused_by_name() {
        for text in
            ["", ":depth=1", "a:depth", "a:depth=x", "a:color=red", "a:depth=0", "a:size=100", "a:rate=0"]
        {
            assert!(text.parse::<GroupSpec>().is_err(), "{text}");
        }
        let twice = Plan::new(&base(), &[spec("a"), spec("a")], 1).expect_err("refused");
        assert!(twice.contains("\"a\""), "{twice}");
    }

    #[test]
    fn loads_beyond_the_limits_are_refused() {
        for load in [
            Load { queues: 0, ..base() },
            Load { queues: 2000, ..base() },
            Load { depth: 0, ..base() },
            Load { size: 0, ..base() },
            Load { size: 4097, ..base() },
            Load { size: SIZE_MAX + 512, ..base() },
            Load { read_percent: 101, ..base() },
        ] {
            assert!(Plan::new(&load, &[], 1).is_err(), "{load:?}");
        }
    }

    #[test]
    fn cpu_lists_may_have_ranges() {
        assert_eq!(parse_cpus("0"), Ok(vec![0]));
        assert_eq!(parse_cpus("4,0-2"), Ok(vec![4, 0, 1, 2]));
        for text in ["", "a", "3-1", "0,0", "0-2,1", "1-", "99999"] {
            assert!(parse_cpus(text).is_err(), "{text}");
        }
    }
}
