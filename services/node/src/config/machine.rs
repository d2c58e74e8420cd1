//! What the configuration is checked against beside itself: the CPUs that this process may use.

use std::fs;

/// The machine that a configuration is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Numbers of the CPUs that may be used, ascending. Not empty.
    pub cpus: Vec<usize>,
}

impl Machine {
    /// This one, as far as the process is allowed to use it (cgroups and taskset count).
    pub fn this() -> Machine {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let cpus = list.map(|list| parse_list(list.trim())).unwrap_or_default();
        if cpus.is_empty() {
            // Without /proc there is still a number of CPUs; their names are a guess.
            let count = std::thread::available_parallelism().map_or(1, usize::from);
            return Machine { cpus: (0..count).collect() };
        }
        Machine { cpus }
    }

    /// The CPUs as the kernel writes them: `0-3,8`.
    pub fn cpu_list(&self) -> String {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for &cpu in &self.cpus {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let texts = ranges.iter().map(|&(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        });
        texts.collect::<Vec<_>>().join(",")
    }
}

/// The kernel's list format (`0-3,8`). What does not fit it is left out.
fn parse_list(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_lists_are_read_and_written() {
        let machine = Machine { cpus: parse_list("0-3,8,10-11") };
        assert_eq!(machine.cpus, [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(machine.cpu_list(), "0-3,8,10-11");
    }

    #[test]
    fn this_machine_has_a_cpu() {
        assert!(!Machine::this().cpus.is_empty());
    }
}
