//! Who may know whom: the crates of the workspace, as design.md section 4 layers them.

use super::source::Source;
use super::{Finding, Rule};

/// For each crate, the crates of ours that its code may use. A crate that is not here yet is a finding: its
/// place in the design is decided before it is built on.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("ashlar-nvme", &[]),
    ("ashlar-proto", &[]),
    ("ashlar-io", &[]),
    ("ashlar-reactor", &["ashlar-io"]),
    ("ashlar-store", &["ashlar-io"]),
    ("ashlar-replication", &["ashlar-io", "ashlar-store"]),
    // Its scenarios run the engine.
    ("ashlar-sim", &["ashlar-io", "ashlar-store", "ashlar-replication"]),
    ("ashlar-target", &["ashlar-nvme", "ashlar-reactor"]),
    ("ashlar-initiator", &["ashlar-nvme", "ashlar-reactor"]),
    ("ashlar-control", &["ashlar-proto"]),
    (
        "ashlar-node",
        &[
            "ashlar-nvme",
            "ashlar-proto",
            "ashlar-io",
            "ashlar-reactor",
            "ashlar-store",
            "ashlar-replication",
            "ashlar-target",
            "ashlar-control",
        ],
    ),
    ("ashlar-csi", &["ashlar-proto"]),
    // It looks at devices of a node that is not running.
    (
        "ashlar-cli",
        &["ashlar-nvme", "ashlar-proto", "ashlar-io", "ashlar-reactor", "ashlar-store", "ashlar-initiator"],
    ),
];

/// What only a crate's tests may use beside that: the other end of its protocol, the simulator.
const TESTS_MAY_KNOW: &[(&str, &[&str])] = &[
    ("ashlar-target", &["ashlar-initiator"]),
    ("ashlar-initiator", &["ashlar-target"]),
    ("ashlar-node", &["ashlar-initiator"]),
    ("ashlar-cli", &["ashlar-target"]),
    ("ashlar-store", &["ashlar-sim"]),
    ("ashlar-replication", &["ashlar-sim"]),
];

/// The crate of whole-system tests: it may know all others and nobody knows it.
const TESTS: &str = "ashlar-tests";

pub(super) fn findings(sources: &[Source]) -> Vec<Finding> {
    sources
        .iter()
        .filter(|source| source.path().ends_with("/Cargo.toml"))
        .flat_map(|source| manifest(source.path(), source.text()))
        .collect()
}

fn manifest(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |rule, line, message: String| {
        findings.push(Finding { rule, path: path.to_owned(), line, message });
    };
    let Some(name) = package_name(text) else { return findings };
    // Fuzz targets are crates outside the workspace, with lints and a layer of their own.
    if path.contains("/fuzz/") {
        return findings;
    }
    let keeps_lints =
        section_lines(text).any(|(section, _, line)| section == "lints" && line == "workspace = true");
    if !keeps_lints {
        found(Rule::Lints, 0, "lacks `[lints] workspace = true`".to_owned());
    }
    if name == TESTS {
        return findings;
    }
    let Some(may_know) = listed(MAY_KNOW, &name) else {
        found(Rule::Layering, 0, format!("say in the tidy test's table whom {name} may know"));
        return findings;
    };
    let tests_may_know = listed(TESTS_MAY_KNOW, &name).unwrap_or_default();
    for (section, number, line) in section_lines(text) {
        let Some(dependency) = dependency_of(&section, line) else { continue };
        if !dependency.starts_with("ashlar-") || may_know.contains(&dependency.as_str()) {
            continue;
        }
        if section.contains("dev-dependencies") && tests_may_know.contains(&dependency.as_str()) {
            continue;
        }
        found(Rule::Layering, number, format!("{name} may not know {dependency} (design, section 4)"));
    }
    findings
}

fn listed(table: &'static [(&str, &[&str])], name: &str) -> Option<&'static [&'static str]> {
    table.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, known)| *known)
}

fn package_name(text: &str) -> Option<String> {
    section_lines(text)
        .filter(|(section, _, _)| section == "package")
        .find_map(|(_, _, line)| line.strip_prefix("name = ").map(|name| name.trim_matches('"').to_owned()))
}

/// The dependency that a manifest's line names: `name = …` or `name.workspace = …` in a section of
/// dependencies, or the header of a section of its own.
fn dependency_of(section: &str, line: &str) -> Option<String> {
    if let Some((before, own)) = section.rsplit_once("dependencies.") {
        let is_first = line.starts_with('[');
        return (is_first && !before.contains("workspace")).then(|| own.to_owned());
    }
    if !section.ends_with("dependencies") || section.contains("workspace") {
        return None;
    }
    let key = line.split(['=', '.']).next()?.trim().trim_matches('"');
    (!key.is_empty() && !line.starts_with('[') && !line.starts_with('#')).then(|| key.to_owned())
}

/// Each line with its number and the section it stands in; a section's header stands in that section.
fn section_lines(text: &str) -> impl Iterator<Item = (String, usize, &str)> {
    let mut section = String::new();
    text.lines().enumerate().map(move |(number, line)| {
        let line = line.trim();
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
        }
        (section.clone(), number + 1, line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "[lints]\nworkspace = true\n";

    fn broken(text: &str) -> Vec<(Rule, usize)> {
        manifest("x/y/Cargo.toml", text).into_iter().map(|finding| (finding.rule, finding.line)).collect()
    }

    #[test]
    fn crate_that_knows_too_much_is_found() {
        for line in ["ashlar-target.workspace = true", "ashlar-target = { path = \"../target\" }"] {
            let text = format!("[package]\nname = \"ashlar-nvme\"\n[dependencies]\n{line}\n{LINTS}");
            assert_eq!(broken(&text), [(Rule::Layering, 4)]);
        }
        let text = format!(
            "[package]\nname = \"ashlar-nvme\"\n[dependencies.ashlar-target]\nworkspace = true\n{LINTS}"
        );
        assert_eq!(broken(&text), [(Rule::Layering, 3)]);
    }

    #[test]
    fn what_the_design_allows_is_not_found() {
        let text = format!(
            "[package]\nname = \"ashlar-target\"\n[dependencies]\nashlar-nvme.workspace = true\n{LINTS}"
        );
        assert_eq!(broken(&text), []);
    }

    #[test]
    fn tests_may_know_the_other_end_and_code_may_not() {
        let text = |section: &str| {
            format!(
                "[package]\nname = \"ashlar-target\"\n[{section}]\nashlar-initiator.workspace = true\n{LINTS}"
            )
        };
        assert_eq!(broken(&text("dev-dependencies")), []);
        assert_eq!(broken(&text("dependencies")), [(Rule::Layering, 4)]);
    }

    #[test]
    fn crate_without_a_place_in_the_design_is_found() {
        assert_eq!(broken(&format!("[package]\nname = \"ashlar-new\"\n{LINTS}")), [(Rule::Layering, 0)]);
    }

    #[test]
    fn crate_without_the_lints_is_found() {
        assert_eq!(broken("[package]\nname = \"ashlar-nvme\"\n"), [(Rule::Lints, 0)]);
    }
}
