//! The rules: from the document to what it means, or everything that is wrong with it.

use std::ops::{Range, RangeInclusive};

use toml::Spanned;

use super::document::{Document, MetricsTable};
use super::source::Source;
use super::{
    Config, LogSettings, METRICS_LISTEN, Machine, Problem, cores, pools, portals, scrub, subsystems, volumes,
};

/// Checks a file's text.
pub(super) fn config(text: &str, machine: &Machine) -> Result<Config, Vec<Problem>> {
    let source = Source::new(text);
    if let Some(problem) = source.repeated_table(&["cores", "buffers", "log", "metrics", "state", "scrub"]) {
        return Err(vec![problem]);
    }
    let document: Document = toml::from_str(text).map_err(|error| vec![source.parse_problem(&error)])?;
    let mut check = Check { source, problems: Vec::new() };
    let pools = pools::settings(&mut check, &document.pool, &document.device);
    let (volumes, exports) = volumes::settings(&mut check, &document.volume, &pools);
    let config = Config {
        cores: cores::settings(&mut check, &document.cores, &document.buffers, machine),
        log: LogSettings { level: document.log.level, format: document.log.format },
        metrics: metrics(&mut check, &document.metrics),
        portals: portals::settings(&mut check, &document.portal),
        subsystems: subsystems::settings(&mut check, &document.subsystem, exports),
        state_directory: pools::state_directory(&mut check, &document.state),
        pools,
        volumes,
        scrub: scrub::settings(&mut check, &document.scrub),
    };
    let mut problems = check.problems;
    if problems.is_empty() {
        return Ok(config);
    }
    problems.sort();
    Err(problems)
}

/// Collects what is wrong. Rules go on after a broken one, with any value in its place.
pub(super) struct Check<'a> {
    source: Source<'a>,
    problems: Vec<Problem>,
}

impl Check<'_> {
    /// Notes a broken rule at this place.
    pub(super) fn refuse(&mut self, place: Range<usize>, message: impl Into<String>) {
        self.problems.push(self.source.problem(place, message));
    }

    /// Notes a rule that the file as a whole breaks.
    pub(super) fn refuse_file(&mut self, message: impl Into<String>) {
        self.problems.push(Problem { line: 1, key: String::new(), message: message.into() });
    }

    /// How many rules are broken so far.
    pub(super) fn problems(&self) -> usize {
        self.problems.len()
    }

    /// The line of a place, for messages that name another one.
    pub(super) fn line(&self, place: Range<usize>) -> usize {
        self.source.line(place.start)
    }

    /// An optional integer that must be in a range.
    pub(super) fn integer(
        &mut self,
        value: Option<&Spanned<i64>>,
        allowed: RangeInclusive<u32>,
        default: u32,
    ) -> u32 {
        value.map_or(default, |value| self.required_integer(value, allowed))
    }

    /// An integer that must be in a range.
    pub(super) fn required_integer(&mut self, value: &Spanned<i64>, allowed: RangeInclusive<u32>) -> u32 {
        let any = *allowed.start();
        self.integer_in(value, allowed).unwrap_or(any)
    }

    /// An integer that must be in a range, and means nothing if it is not.
    pub(super) fn integer_in(&mut self, value: &Spanned<i64>, allowed: RangeInclusive<u32>) -> Option<u32> {
        let number = *value.get_ref();
        let fits = u32::try_from(number).ok().filter(|fits| allowed.contains(fits));
        if fits.is_none() {
            let (from, to) = (allowed.start(), allowed.end());
            self.refuse(value.span(), format!("{number} is not allowed; allowed are {from} to {to}"));
        }
        fits
    }

    /// Keeps what is good, notes what is wrong.
    pub(super) fn accept<T, E: ToString>(&mut self, place: Range<usize>, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.refuse(place, error.to_string())).ok()
    }
}

fn metrics(check: &mut Check<'_>, table: &MetricsTable) -> Option<std::net::SocketAddr> {
    let enabled = table.enabled.as_ref().is_none_or(|enabled| *enabled.get_ref());
    let (place, text) = match &table.listen {
        Some(listen) => (listen.span(), listen.get_ref().as_str()),
        None => (0..0, METRICS_LISTEN),
    };
    let listen = check.accept(place, portals::address(text, None));
    listen.filter(|_| enabled)
}
