//! A file as the rules see it: its text, and its text with comments and literals blanked out.

/// A text file of the repository.
#[derive(Debug, Clone)]
pub struct Source {
    path: String,
    text: String,
    /// For Rust, the text in which comments are spaces and literals are quotes; line by line the same length.
    /// For anything else, the text.
    code: String,
}

impl Source {
    /// A file at a path relative to the repository.
    #[must_use]
    pub fn new(path: &str, text: String) -> Self {
        let code = if path.ends_with(".rs") { blank(&text) } else { text.clone() };
        Self { path: path.to_owned(), text, code }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn code(&self) -> &str {
        &self.code
    }

    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Rust, shell, make and manifests: what a machine runs, as opposed to pages for people.
    pub(super) fn is_code(&self) -> bool {
        let script = !self.path.ends_with(".md") && self.text.starts_with("#!");
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        script || name == "Makefile" || [".rs", ".sh", ".toml"].iter().any(|ending| name.ends_with(ending))
    }

    /// Whether the whole file is a test or a bench.
    pub(super) fn is_test_file(&self) -> bool {
        let mut folders: Vec<_> = self.path.split('/').collect();
        let name = folders.pop().unwrap_or_default();
        name == "tests.rs"
            || folders.iter().skip(1).any(|folder| ["tests", "benches", "fuzz"].contains(folder))
            || folders.first() == Some(&"tests")
    }

    /// The lines (from 1) of `#[cfg(test)]` modules.
    pub(super) fn test_lines(&self) -> Vec<(usize, usize)> {
        let mut regions = Vec::new();
        let mut from = 0;
        while let Some(found) = self.code[from..].find("#[cfg(test)]") {
            let start = from + found;
            let end = block_end(&self.code, start).unwrap_or(start);
            regions.push((line_of(&self.code, start), line_of(&self.code, end)));
            from = end.max(start + 1);
        }
        regions
    }
}

/// The line (from 1) of a byte.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// The byte of the closing brace of the first block after `from`; none if a `;` comes before the block.
pub(super) fn block_end(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    // A `;` within brackets belongs to an array type, not to the end of the item.
    let mut brackets = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets = brackets.saturating_sub(1),
            b';' if depth == 0 && brackets == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Where `word` stands on its own, not as a part of a longer name.
pub(super) fn words(code: &str, word: &str) -> Vec<usize> {
    let part_of_name = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(|at| {
            let bytes = code.as_bytes();
            let before = at.checked_sub(1).and_then(|i| bytes.get(i));
            !part_of_name(before) && !part_of_name(bytes.get(at + word.len()))
        })
        .collect()
}

/// What stands for each byte of a string or character.
pub(super) const QUOTED: u8 = b'"';

/// Replaces comments by spaces, and strings and characters by quotes.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_or_comment_end(bytes, at);
        let filler = if bytes[at] == b'/' { b' ' } else { QUOTED };
        for byte in out.get_mut(at..end).into_iter().flatten() {
            if *byte != b'\n' {
                *byte = filler;
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The end of the comment or literal that begins here; `at` itself if none does.
fn literal_or_comment_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let after_name = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| at + n),
        [b'/', b'*', ..] => at + block_comment_length(rest),
        [b'"', ..] => at + string_length(rest),
        [b'r', b'"' | b'#', ..] if !after_name => at + raw_string_length(&rest[1..]).map_or(0, |n| n + 1),
        [b'b', b'r', b'"' | b'#', ..] if !after_name => {
            at + raw_string_length(&rest[2..]).map_or(0, |n| n + 2)
        }
        [b'\'', ..] => at + character_length(rest),
        _ => at,
    }
}

fn block_comment_length(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of `#"…"#` after the `r`; none if it is a raw identifier.
fn raw_string_length(rest: &[u8]) -> Option<usize> {
    let hashes = rest.iter().take_while(|b| **b == b'#').count();
    if rest.get(hashes) != Some(&b'"') {
        return None;
    }
    let closing: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = hashes + 1;
    let end = rest[body..].windows(closing.len()).position(|window| window == closing);
    Some(end.map_or(rest.len(), |n| body + n + closing.len()))
}

/// The length of a character; 0 if the quote begins a lifetime.
fn character_length(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        let end = rest.iter().skip(3).position(|b| *b == b'\'');
        return end.map_or(0, |n| n + 4);
    }
    // A character has up to four bytes.
    let end = rest.iter().skip(2).take(4).position(|b| *b == b'\'');
    match end {
        Some(n) if std::str::from_utf8(&rest[1..n + 2]).is_ok_and(|s| s.chars().count() == 1) => n + 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_are_blanked_and_code_is_kept() {
        let cases = [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("x{\"y")g"#, r#"f(""""""")g"#),
            ("r#\"a\"b\"# c", r#""""""""" c"#),
            ("r#type c", "r#type c"),
            ("'{' x '\\'' y '\\u{7b}' z", r#"""" x """" y """""""" z"#),
            ("&'a str; 'b: loop {}", "&'a str; 'b: loop {}"),
        ];
        for (text, expected) in cases {
            assert_eq!(blank(text).trim_end(), expected.trim_end(), "{text}");
            assert_eq!(blank(text).len(), text.len());
        }
    }

    #[test]
    fn test_modules_are_found_whole() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        assert_eq!(Source::new("x/src/lib.rs", text.to_owned()).test_lines(), [(2, 5)]);
    }

    #[test]
    fn words_are_not_parts_of_names() {
        assert_eq!(words("unsafe_code unsafe {}", "unsafe"), [12]);
    }
}
