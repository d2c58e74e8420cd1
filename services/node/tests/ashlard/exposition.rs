//! A strict reader of the OpenMetrics text format, so that what is served is judged by its rules.

use std::collections::{BTreeMap, BTreeSet};

/// A metric family.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) help: String,
    pub(crate) unit: String,
    pub(crate) samples: Vec<Sample>,
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// All families by name.
pub(crate) type Page = BTreeMap<String, Family>;

/// The value of the sample with this name and at least these labels.
pub(crate) fn value(page: &Page, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let fits = |sample: &&Sample| {
        let has = |(key, value): &(&str, &str)| sample.labels.get(*key).is_some_and(|has| has == value);
        sample.name == name && labels.iter().all(has)
    };
    page.values().flat_map(|family| &family.samples).find(fits).map(|sample| sample.value)
}

/// Reads a page; says what breaks the format.
pub(crate) fn parse(text: &str) -> Result<Page, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("the page does not end with # EOF")?;
    let mut page = Page::new();
    let mut current = String::new();
    let mut seen = BTreeSet::new();
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut parts = comment.splitn(3, ' ');
            let (word, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let rest = parts.next().unwrap_or_default().to_owned();
            if name != current {
                if page.contains_key(name) {
                    return Err(format!("{name} stands in two places"));
                }
                name.clone_into(&mut current);
            }
            let family = page.entry(current.clone()).or_default();
            match word {
                "HELP" => family.help = rest,
                "TYPE" => family.kind = rest,
                "UNIT" => family.unit = rest,
                _ => return Err(format!("unknown comment: {line}")),
            }
            continue;
        }
        let sample = sample(line).ok_or_else(|| format!("no sample: {line}"))?;
        let family = page.get_mut(&current).ok_or_else(|| format!("a sample before any family: {line}"))?;
        if !seen.insert((sample.name.clone(), sample.labels.clone())) {
            return Err(format!("there twice: {line}"));
        }
        family.samples.push(sample);
    }
    for (name, family) in &page {
        judge(name, family)?;
    }
    Ok(page)
}

/// `name{label="value",…} number`
fn sample(line: &str) -> Option<Sample> {
    let name_end = line.find(['{', ' '])?;
    let name = line.get(..name_end)?.to_owned();
    let mut rest = line.get(name_end..)?;
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        if rest.starts_with('}') {
            return None;
        }
        while !rest.starts_with('}') {
            let (key, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            if !is_name(key) || labels.insert(key.to_owned(), value).is_some() {
                return None;
            }
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    is_name(&name).then_some(Sample { name, labels, value })
}

/// A label's value up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// The rules of one family.
fn judge(name: &str, family: &Family) -> Result<(), String> {
    if family.help.is_empty() || family.kind.is_empty() {
        return Err(format!("{name} lacks help or type"));
    }
    if !family.unit.is_empty() && !name.ends_with(&format!("_{}", family.unit)) {
        return Err(format!("{name} does not end in its unit, {}", family.unit));
    }
    let suffixes: &[&str] = match family.kind.as_str() {
        "counter" => &["_total"],
        "gauge" => &[""],
        "info" => &["_info"],
        "histogram" => &["_bucket", "_count", "_sum"],
        kind => return Err(format!("{name} is of the unknown type {kind}")),
    };
    for sample in &family.samples {
        let suffix = sample.name.strip_prefix(name).unwrap_or("?");
        if !suffixes.contains(&suffix) {
            return Err(format!("{} does not belong to the {} {name}", sample.name, family.kind));
        }
        if family.kind != "gauge" && (sample.value.is_nan() || sample.value < 0.0) {
            return Err(format!("{} is {}", sample.name, sample.value));
        }
    }
    if family.kind == "histogram" { histogram(name, family) } else { Ok(()) }
}

/// Buckets rise and end at +Inf with the count.
fn histogram(name: &str, family: &Family) -> Result<(), String> {
    let mut series: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
    for sample in family.samples.iter().filter(|sample| sample.name.ends_with("_bucket")) {
        let mut labels = sample.labels.clone();
        let le = labels.remove("le").ok_or_else(|| format!("a bucket of {name} has no le"))?;
        let le = le.parse().map_err(|_| format!("le {le:?} of {name} is no number"))?;
        series.entry(labels).or_default().push((le, sample.value));
    }
    for (labels, buckets) in series {
        if buckets.windows(2).any(|pair| pair[0].0 >= pair[1].0 || pair[0].1 > pair[1].1) {
            return Err(format!("buckets of {name} {labels:?} do not rise"));
        }
        let count = family
            .samples
            .iter()
            .find(|sample| sample.name.ends_with("_count") && sample.labels == labels)
            .map(|sample| sample.value);
        let last = buckets.last().copied();
        if last.map(|(le, _)| le) != Some(f64::INFINITY) || last.map(|(_, value)| value) != count {
            return Err(format!("{name} {labels:?} does not end at +Inf with its count"));
        }
    }
    Ok(())
}
