//! The repository keeps its own rules.

use std::path::Path;

use ashlar_tests::tidy;

#[test]
fn repository_is_tidy() -> Result<(), tidy::TidyError> {
    let sources = tidy::sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?;
    assert!(sources.len() > 10, "git lists the repository's files");
    let findings = tidy::findings(&sources);
    let text: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{} places break a rule:\n{}", findings.len(), text.join("\n"));
    Ok(())
}
