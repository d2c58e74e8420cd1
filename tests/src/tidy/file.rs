//! Rules that look at one file at a time.

use super::source::{QUOTED, Source, block_end, line_of, words};
use super::{Finding, Rule};

/// Two files side by side on a wide screen. rustfmt keeps code within 110; comments and strings it cannot wrap.
const LINE_COLUMNS_MAX: usize = 120;
/// Past this, a file holds a second idea.
const FILE_LINES_MAX: usize = 800;
/// Two screens.
const FUNCTION_LINES_MAX: usize = 100;
/// Words that name nothing.
const EMPTY_NAMES: &[&str] =
    &["manager", "managers", "helper", "helpers", "util", "utils", "common", "misc", "handler2"];
/// The only crate with unsafe code.
const UNSAFE_HOME: &str = "storage-engine/reactor/";
/// Marks of unfinished work. Written apart, so that this file does not find itself.
const MARKERS: &[&str] =
    &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];
/// Macros of unfinished work.
const MACROS: &[&str] = &["todo!", "unimplemented!", "dbg!"];
/// Where people's and build machines' files lie.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// What a crate may not name in its code, because it would see or do something behind the simulator's back,
/// or because the design keeps it free of I/O.
const HIDDEN_INPUTS: &[(&[&str], &[&str])] = &[
    (
        &["storage-engine/store/src/", "storage-engine/replication/"],
        &[
            "tokio",
            "io_uring",
            "std::net",
            "std::thread",
            "std::fs",
            "Instant::now",
            "SystemTime::now",
            "thread_rng",
        ],
    ),
    (
        &["frontend/nvme/src/", "storage-engine/io/"],
        &["ashlar_reactor", "tokio", "io_uring", "std::net", "std::fs", "std::thread"],
    ),
];

pub(super) fn findings(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |rule, line, message: String| {
        findings.push(Finding { rule, path: source.path().to_owned(), line, message });
    };
    name(source, &mut found);
    for (number, line) in source.text().lines().enumerate() {
        machine_path(line, number + 1, &mut found);
    }
    if source.is_code() {
        length(source, &mut found);
        markers(source, &mut found);
    }
    if source.is_rust() {
        headline(source, &mut found);
        functions(source, &mut found);
        ignored_tests(source, &mut found);
        unsafe_code(source, &mut found);
        unwraps(source, &mut found);
        hidden_inputs(source, &mut found);
    }
    findings
}

fn name(source: &Source, found: &mut impl FnMut(Rule, usize, String)) {
    let stem = source.path().trim_end_matches(".rs");
    for word in stem.split(['/', '_', '-', '.']) {
        if EMPTY_NAMES.contains(&word) {
            found(Rule::EmptyName, 0, format!("'{word}' in a file's name says nothing: name the idea"));
        }
    }
    if !source.is_rust() {
        return;
    }
    for at in words(source.code(), "mod") {
        let module: String = source.code()[at + 3..]
            .trim_start()
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        if module.split('_').any(|word| EMPTY_NAMES.contains(&word)) {
            let line = line_of(source.code(), at);
            found(Rule::EmptyName, line, format!("module '{module}': name the idea that it holds"));
        }
    }
}

fn machine_path(line: &str, number: usize, found: &mut impl FnMut(Rule, usize, String)) {
    for path in MACHINE_PATHS {
        // Below another folder it is part of a longer, harmless path.
        let whole = line.match_indices(path).any(|(at, _)| {
            !line[..at]
                .ends_with(|c: char| c.is_ascii_alphanumeric() || ['_', '-', '.', '}', '~'].contains(&c))
        });
        if whole {
            found(Rule::MachinePath, number, format!("'{path}' exists on some machine only"));
        }
    }
}

fn length(source: &Source, found: &mut impl FnMut(Rule, usize, String)) {
    for (number, (line, code)) in source.text().lines().zip(source.code().lines()).enumerate() {
        let columns = if source.is_rust() { unquoted_columns(line, code) } else { line.chars().count() };
        if columns > LINE_COLUMNS_MAX {
            let message = format!("{columns} columns; {LINE_COLUMNS_MAX} at most");
            found(Rule::LongLine, number + 1, message);
        }
    }
    let lines = source.text().lines().count();
    if lines > FILE_LINES_MAX {
        let message = format!("{lines} lines; past {FILE_LINES_MAX} look for the second idea in it");
        found(Rule::LongFile, 0, message);
    }
}

/// The columns of a line outside its strings: a message is kept whole, so that it can be searched for.
fn unquoted_columns(line: &str, code: &str) -> usize {
    line.char_indices().filter(|(at, _)| code.as_bytes().get(*at) != Some(&QUOTED)).count()
}

fn markers(source: &Source, found: &mut impl FnMut(Rule, usize, String)) {
    for marker in MARKERS {
        for at in words(source.text(), marker) {
            let message = format!("'{marker}': finish it or file an issue");
            found(Rule::Marker, line_of(source.text(), at), message);
        }
    }
    if source.is_rust() {
        for name in MACROS {
            for at in words(source.code(), name) {
                found(Rule::Marker, line_of(source.code(), at), format!("'{name}' is unfinished work"));
            }
        }
    }
}

fn headline(source: &Source, found: &mut impl FnMut(Rule, usize, String)) {
    // A build script's or fuzz target's file begins with its attributes or with a headline, too.
    let first = source.text().lines().next().unwrap_or_default();
    if first.strip_prefix("//!").is_none_or(|headline| headline.trim().is_empty()) {
        found(Rule::NoHeadline, 1, "the first line is to say (//!) which idea the file holds".to_owned());
    }
}

fn functions(source: &Source, found: &mut impl FnMut(Rule, usize, String)) {
    let code = source.code();
    for at in words(code, "fn") {
        // A function pointer's type has no name.
        if !code[at + 2..].trim_start().starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            continue;
        }
        let Some(end) = block_end(code, at) else { continue };
        let (first, last) = (line_of(code, at), line_of(code, end));
        let lines = last - first + 1;
        if lines > FUNCTION_LINES_MAX {
            let message = format!("a function of {lines} lines; {FUNCTION_LINES_MAX} at most");
            found(Rule::LongFunction, first, message);
        }
    }
}

fn ignored_tests(source: &Source, found: &mut impl FnMut(Rule, usize, String)) {
    for (at, _) in source.code().match_indices("#[ignore]") {
        let message = "an ignored test says why: #[ignore = \"…\"]".to_owned();
        found(Rule::SilentIgnore, line_of(source.code(), at), message);
    }
}

fn unsafe_code(source: &Source, found: &mut impl FnMut(Rule, usize, String)) {
    if source.path().starts_with(UNSAFE_HOME) {
        return;
    }
    for at in words(source.code(), "unsafe") {
        let message = format!("unsafe code belongs into {UNSAFE_HOME}");
        found(Rule::Unsafe, line_of(source.code(), at), message);
    }
}

fn unwraps(source: &Source, found: &mut impl FnMut(Rule, usize, String)) {
    if source.is_test_file() {
        return;
    }
    let tests = source.test_lines();
    for (at, _) in source.code().match_indices(".unwrap()") {
        let line = line_of(source.code(), at);
        if !tests.iter().any(|(first, last)| (*first..=*last).contains(&line)) {
            found(Rule::Unwrap, line, "return an error, or say by expect why it cannot fail".to_owned());
        }
    }
}

fn hidden_inputs(source: &Source, found: &mut impl FnMut(Rule, usize, String)) {
    for (folders, names) in HIDDEN_INPUTS {
        if !folders.iter().any(|folder| source.path().starts_with(folder)) {
            continue;
        }
        for name in *names {
            for at in words(source.code(), name) {
                let message = format!("'{name}' is not for this crate (design, section 4)");
                found(Rule::HiddenInput, line_of(source.code(), at), message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "//! An idea.\n";

    /// The rules that a file with this text breaks, with the lines.
    fn broken(path: &str, text: &str) -> Vec<(Rule, usize)> {
        findings(&Source::new(path, text.to_owned())).into_iter().map(|f| (f.rule, f.line)).collect()
    }

    /// The same for Rust with a proper headline, somewhere in the target.
    fn broken_rust(text: &str) -> Vec<(Rule, usize)> {
        broken("frontend/target/src/queue.rs", &format!("{HEAD}{text}"))
    }

    #[test]
    fn good_file_breaks_nothing() {
        assert_eq!(broken_rust("fn f(x: &str) -> usize {\n    x.len()\n}\n"), []);
    }

    #[test]
    fn long_line_is_found_in_code_and_not_in_pages() {
        let line = format!("// {}\n", "x".repeat(LINE_COLUMNS_MAX));
        assert_eq!(broken_rust(&line), [(Rule::LongLine, 2)]);
        assert_eq!(broken("docs/page.md", &line), []);
        let widest = format!("// {}\n", "ü".repeat(LINE_COLUMNS_MAX - 3));
        assert_eq!(broken_rust(&widest), []);
        assert_eq!(broken_rust(&format!("fn f() {{ g({line:?}) }}\n")), []);
    }

    #[test]
    fn long_file_is_found() {
        assert_eq!(broken_rust(&"\n".repeat(FILE_LINES_MAX - 1)), []);
        assert_eq!(broken_rust(&"\n".repeat(FILE_LINES_MAX)), [(Rule::LongFile, 0)]);
    }

    #[test]
    fn long_function_is_found_and_braces_in_text_do_not_confuse() {
        let body = "    let x = \"{\"; // {\n".repeat(FUNCTION_LINES_MAX - 2);
        assert_eq!(broken_rust(&format!("fn f(a: [u8; 2]) {{\n{body}}}\n")), []);
        assert_eq!(broken_rust(&format!("fn f(a: [u8; 2]) {{\n{body}\n}}\n")), [(Rule::LongFunction, 2)]);
    }

    #[test]
    fn missing_headline_is_found() {
        assert_eq!(broken("frontend/target/src/queue.rs", "use x;\n"), [(Rule::NoHeadline, 1)]);
        assert_eq!(broken("frontend/target/src/queue.rs", "//!\n"), [(Rule::NoHeadline, 1)]);
    }

    #[test]
    fn markers_are_found_in_comments_and_code() {
        for marker in MARKERS {
            assert_eq!(broken_rust(&format!("// {marker}: later\n")), [(Rule::Marker, 2)]);
            assert_eq!(broken("ops/x.sh", &format!("# {marker}\n")), [(Rule::Marker, 1)]);
        }
        for name in MACROS {
            assert_eq!(broken_rust(&format!("fn f() {{ {name}() }}\n")), [(Rule::Marker, 2)]);
        }
    }

    #[test]
    fn ignored_test_without_a_reason_is_found() {
        assert_eq!(broken_rust("#[ignore]\nfn t() {}\n"), [(Rule::SilentIgnore, 2)]);
        assert_eq!(broken_rust("#[ignore = \"takes an hour\"]\nfn t() {}\n"), []);
    }

    #[test]
    fn unsafe_is_found_outside_the_reactor() {
        let text = format!("{HEAD}fn f() {{ unsafe {{ g() }} }}\n");
        assert_eq!(broken("frontend/target/src/queue.rs", &text), [(Rule::Unsafe, 2)]);
        assert_eq!(broken("storage-engine/reactor/src/ring.rs", &text), []);
        assert_eq!(broken_rust("#![forbid(unsafe_code)]\n"), []);
    }

    #[test]
    fn unwrap_is_found_outside_tests() {
        assert_eq!(broken_rust("fn f() { x.unwrap() }\n"), [(Rule::Unwrap, 2)]);
        assert_eq!(broken_rust("#[cfg(test)]\nmod tests {\n    fn f() { x.unwrap() }\n}\n"), []);
        let text = format!("{HEAD}fn f() {{ x.unwrap() }}\n");
        assert_eq!(broken("frontend/target/tests/queue.rs", &text), []);
    }

    #[test]
    fn empty_names_are_found_in_files_and_modules() {
        assert_eq!(broken("frontend/target/src/utils.rs", HEAD), [(Rule::EmptyName, 0)]);
        assert_eq!(broken("frontend/common/src/queue.rs", HEAD), [(Rule::EmptyName, 0)]);
        assert_eq!(broken_rust("pub mod queue_manager;\n"), [(Rule::EmptyName, 2)]);
        assert_eq!(broken_rust("pub mod commonly_used;\n"), []);
    }

    #[test]
    fn machine_paths_are_found() {
        for path in MACHINE_PATHS {
            assert_eq!(broken_rust(&format!("// see {path}x\n")), [(Rule::MachinePath, 2)]);
            assert_eq!(broken("docs/page.md", &format!("see {path}x\n")), [(Rule::MachinePath, 1)]);
            assert_eq!(broken_rust(&format!("// a relative one: frame{path}x\n")), []);
        }
    }

    #[test]
    fn hidden_inputs_of_the_engine_are_found() {
        for (path, text) in [
            ("storage-engine/store/src/lane.rs", "use tokio::sync;\n"),
            ("storage-engine/replication/src/shard.rs", "let t = Instant::now();\n"),
            ("frontend/nvme/src/pdu.rs", "use ashlar_reactor::File;\n"),
        ] {
            let text = format!("{HEAD}{text}");
            assert_eq!(broken(path, &text), [(Rule::HiddenInput, 2)], "{path}");
            assert_eq!(broken("services/node/src/x.rs", &text), []);
        }
    }
}
