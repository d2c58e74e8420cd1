//! Finds Rust files that no crate includes, and the files that the repository must have.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, words};
use super::{Finding, Rule};

/// What the entry page must name.
const README_COMMANDS: &[&str] = &["make demo", "make test"];

pub(super) fn findings(sources: &[Source]) -> Vec<Finding> {
    let mut findings = dead_files(sources);
    findings.extend(readme(sources));
    findings
}

fn dead_files(sources: &[Source]) -> Vec<Finding> {
    let rust: BTreeMap<&str, &Source> =
        sources.iter().filter(|source| source.is_rust()).map(|source| (source.path(), source)).collect();
    let manifests: Vec<_> = sources.iter().filter(|source| source.path().ends_with("Cargo.toml")).collect();

    let mut reached = BTreeSet::new();
    let mut open: Vec<String> =
        rust.keys().filter(|path| is_crate_root(path, &manifests)).map(|path| (*path).to_owned()).collect();
    while let Some(path) = open.pop() {
        let Some(source) = rust.get(path.as_str()) else { continue };
        if reached.insert(path.clone()) {
            let is_root = is_crate_root(&path, &manifests);
            open.extend(modules(source).flat_map(|module| module_paths(&path, is_root, &module)));
        }
    }
    rust.keys()
        .filter(|path| !reached.contains(**path))
        .map(|path| Finding {
            rule: Rule::DeadFile,
            path: (*path).to_owned(),
            line: 0,
            message: "no crate includes this file".to_owned(),
        })
        .collect()
}

/// Whether cargo compiles this file as the root of a library, program, test, bench or example.
fn is_crate_root(path: &str, manifests: &[&Source]) -> bool {
    let package = manifests
        .iter()
        .map(|manifest| (manifest.path().trim_end_matches("Cargo.toml"), *manifest))
        .filter(|(folder, _)| path.starts_with(folder))
        .max_by_key(|(folder, _)| folder.len());
    let Some((folder, manifest)) = package else { return false };
    let inside = &path[folder.len()..];
    if ["src/lib.rs", "src/main.rs", "build.rs"].contains(&inside) {
        return true;
    }
    let by_place = ["src/bin/", "tests/", "benches/", "examples/"].iter().any(|place| {
        inside.strip_prefix(place).is_some_and(|rest| !rest.contains('/') || rest.ends_with("/main.rs"))
    });
    // Fuzz targets and the like are named in the manifest.
    let by_manifest = manifest.text().lines().any(|line| {
        line.split_once('=')
            .is_some_and(|(key, value)| key.trim() == "path" && value.trim().trim_matches('"') == inside)
    });
    by_place || by_manifest
}

/// A `mod name;` of a file.
struct Module {
    name: String,
    /// The path of a `#[path = "…"]` before it.
    at: Option<String>,
}

fn modules(source: &Source) -> impl Iterator<Item = Module> + '_ {
    words(source.code(), "mod").into_iter().filter_map(|at| {
        let rest = source.code()[at + 3..].trim_start();
        let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        if !rest[name.len()..].trim_start().starts_with(';') {
            return None;
        }
        let attribute = source.text()[..at]
            .rsplit('\n')
            .take(2)
            .find_map(|line| line.trim().strip_prefix("#[path = \"")?.split('"').next().map(str::to_owned));
        Some(Module { name, at: attribute })
    })
}

/// Where a module of the file at `path` may lie.
fn module_paths(path: &str, is_root: bool, module: &Module) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    if let Some(at) = &module.at {
        return vec![resolve(folder, at)];
    }
    let below = if is_root || file == "mod.rs" {
        folder.to_owned()
    } else {
        format!("{folder}/{}", file.trim_end_matches(".rs"))
    };
    vec![format!("{below}/{}.rs", module.name), format!("{below}/{}/mod.rs", module.name)]
}

/// A path relative to a folder, without `..`.
fn resolve(folder: &str, path: &str) -> String {
    let mut parts: Vec<_> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            name => parts.push(name),
        }
    }
    parts.join("/")
}

fn readme(sources: &[Source]) -> Vec<Finding> {
    let text = sources.iter().find(|source| source.path() == "README.md").map_or("", Source::text);
    README_COMMANDS
        .iter()
        .filter(|command| !text.contains(*command))
        .map(|command| Finding {
            rule: Rule::Readme,
            path: "README.md".to_owned(),
            line: 0,
            message: format!("does not mention `{command}`"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|(path, text)| Source::new(path, (*text).to_owned())).collect()
    }

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        dead_files(&tree(files)).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn file_that_no_module_names_is_dead() {
        let files = [
            ("x/Cargo.toml", ""),
            ("x/src/lib.rs", "mod a;\n// mod d;\n"),
            ("x/src/a.rs", "pub mod b;\n#[cfg(test)]\nmod tests;\n"),
            ("x/src/a/b.rs", ""),
            ("x/src/a/tests.rs", ""),
            ("x/src/b.rs", ""),
            ("x/src/d.rs", ""),
        ];
        assert_eq!(dead(&files), ["x/src/b.rs", "x/src/d.rs"]);
    }

    #[test]
    fn tests_benches_programs_and_named_targets_are_roots() {
        let files = [
            ("x/Cargo.toml", "[[bin]]\npath = \"fuzz_targets/pdu.rs\"\n"),
            ("x/tests/t.rs", "mod shared;\n"),
            ("x/tests/shared/mod.rs", ""),
            ("x/benches/b.rs", ""),
            ("x/src/bin/p.rs", ""),
            ("x/fuzz_targets/pdu.rs", ""),
            ("x/fuzz_targets/other.rs", ""),
        ];
        assert_eq!(dead(&files), ["x/fuzz_targets/other.rs"]);
    }

    #[test]
    fn module_with_a_path_of_its_own_is_followed() {
        let files = [
            ("x/Cargo.toml", ""),
            ("x/src/main.rs", "#[path = \"elsewhere.rs\"]\nmod a;\n#[path = \"../fuzz/b.rs\"]\nmod b;\n"),
            ("x/src/elsewhere.rs", ""),
            ("x/fuzz/b.rs", ""),
        ];
        assert_eq!(dead(&files), Vec::<String>::new());
    }

    #[test]
    fn readme_without_the_commands_is_found() {
        assert_eq!(readme(&tree(&[("README.md", "Run `make demo` first.")])).len(), 1);
        assert_eq!(readme(&tree(&[])).len(), 2);
        assert_eq!(readme(&tree(&[("README.md", "make demo, make test")])), []);
    }
}
