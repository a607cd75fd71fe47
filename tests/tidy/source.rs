//! A Rust file as the rules see it: code without comments, strings and tests, and the paths it names.

/// A file and what was found in it. Lines count from 1.
#[derive(Clone, Debug)]
pub struct Source {
    /// Relative to the crate, such as `src/api/s2/wire.rs`.
    pub path: String,
    /// As it is.
    pub text: String,
    /// Comments, strings and test items blanked; as many lines as `text`.
    pub code: String,
    /// The module: `["api", "s2", "wire"]`; empty for `lib.rs` and `main.rs`.
    pub module: Vec<String>,
}

/// A path in the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Where.
    pub line: usize,
    /// Its segments; `crate`, `self` and `super` are resolved to `crate` and the module.
    pub segments: Vec<String>,
}

impl Source {
    /// Reads a file's text.
    pub fn new(path: &str, text: &str) -> Self {
        let module = path
            .trim_start_matches("src/")
            .trim_end_matches(".rs")
            .split('/')
            .filter(|part| !matches!(*part, "mod" | "lib" | "main"))
            .map(str::to_owned)
            .collect();
        let code = without_tests(&without_text(text));
        Self { path: path.to_owned(), text: text.to_owned(), code, module }
    }

    /// The top-level module, or `lib`/`main` for the roots.
    pub fn top(&self) -> &str {
        match self.module.first() {
            Some(top) => top,
            None => self.path.trim_start_matches("src/").trim_end_matches(".rs"),
        }
    }

    /// The files this one declares as tests: `#[cfg(test)] mod name;`, perhaps with a `#[path]`.
    pub fn test_files(&self) -> Vec<String> {
        const MARK: &str = "#[cfg(test)]";
        let folder = self.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        // A file that is a folder's root has its children beside it, any other below its own name.
        let root = ["mod.rs", "lib.rs", "main.rs"].iter().any(|name| self.path.ends_with(name));
        let children = if root { folder.to_owned() } else { self.path.trim_end_matches(".rs").to_owned() };
        let mut found = Vec::new();
        for (at, _) in self.text.match_indices(MARK) {
            let mut item = self.text[at + MARK.len()..].trim_start();
            let mut path = None;
            if let Some((file, rest)) =
                item.strip_prefix("#[path = \"").and_then(|rest| rest.split_once("\"]"))
            {
                path = Some(format!("{folder}/{file}"));
                item = rest.trim_start();
            }
            if let Some((name, _)) = item.strip_prefix("mod ").and_then(|rest| rest.split_once(';'))
                && name.bytes().all(is_word)
            {
                found.push(path.unwrap_or_else(|| format!("{children}/{name}.rs")));
            }
        }
        found
    }

    /// Every path of two segments or more, and every use.
    pub fn paths(&self) -> Vec<Named> {
        let mut found = Vec::new();
        let bytes = self.code.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            if !is_start(bytes, at) {
                at += 1;
                continue;
            }
            let word = word_at(&self.code, at);
            let end;
            if word == "in" && self.code[..at].ends_with("pub(") {
                // `pub(in path)` says who may see, and imports nothing.
                end = self.code[at..].find(')').map_or(bytes.len(), |length| at + length);
            } else if word == "use" {
                end = self.code[at..].find(';').map_or(bytes.len(), |length| at + length);
                self.expand(&self.code[at + 3..end], at + 3, &[], &mut found);
            } else {
                end = path_end(&self.code, at);
                let segments = split(&self.code[at..end]);
                if segments.len() > 1 {
                    found.push(self.named(at, segments));
                }
            }
            at = end.max(at + 1);
        }
        found
    }

    /// Expands a use tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
    fn expand(&self, tree: &str, at: usize, prefix: &[String], found: &mut Vec<Named>) {
        let Some(open) = tree.find('{') else {
            let path = tree.split(" as ").next().unwrap_or_default();
            let mut segments = prefix.to_vec();
            segments.extend(split(path));
            if !segments.is_empty() && !path.trim().is_empty() {
                let skipped = tree.len() - tree.trim_start().len();
                found.push(self.named(at + skipped, segments));
            }
            return;
        };
        let mut inner_prefix = prefix.to_vec();
        inner_prefix.extend(split(&tree[..open]));
        let close = tree.rfind('}').unwrap_or(tree.len());
        let mut depth = 0;
        let mut start = open + 1;
        for (index, character) in tree[..close].char_indices().skip_while(|(index, _)| *index <= open) {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    self.expand(&tree[start..index], at + start, &inner_prefix, found);
                    start = index + 1;
                }
                _ => {}
            }
        }
        self.expand(&tree[start..close], at + start, &inner_prefix, found);
    }

    fn named(&self, at: usize, segments: Vec<String>) -> Named {
        Named { line: line_of(&self.code, at), segments: self.resolve(segments) }
    }

    /// Makes `self`, `super` and, in `main.rs`, `leat` absolute.
    fn resolve(&self, segments: Vec<String>) -> Vec<String> {
        let mut base = self.module.clone();
        let mut rest = segments.as_slice();
        match rest.first().map(String::as_str) {
            Some("leat") if self.path == "src/main.rs" => base.clear(),
            Some("self") => {}
            Some("super") => {
                base.pop();
            }
            _ => return segments,
        }
        rest = &rest[1..];
        while rest.first().is_some_and(|segment| segment == "super") {
            base.pop();
            rest = &rest[1..];
        }
        std::iter::once("crate".to_owned()).chain(base).chain(rest.iter().cloned()).collect()
    }
}

/// The line of a byte, from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether a path may begin here: a word that continues neither another word nor another path.
fn is_start(bytes: &[u8], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map_or(b' ', |index| bytes[index]);
    is_word(bytes[at])
        && !bytes[at].is_ascii_digit()
        && !is_word(before(1))
        && before(1) != b'.'
        && !(before(1) == b':' && before(2) == b':')
}

fn word_at(code: &str, at: usize) -> &str {
    let length = code.as_bytes()[at..].iter().take_while(|byte| is_word(**byte)).count();
    &code[at..at + length]
}

fn path_end(code: &str, at: usize) -> usize {
    let mut end = at + word_at(code, at).len();
    while code[end..].starts_with("::") {
        let word = word_at(code, end + 2);
        if word.is_empty() {
            break;
        }
        end += 2 + word.len();
    }
    end
}

fn split(path: &str) -> Vec<String> {
    path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Blanks comments, strings and characters, and keeps every line break.
fn without_text(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = text_end(text, at);
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8_lossy(&out).replace('\u{FFFD}', "?")
}

/// Where the comment or literal that begins at `at` ends; `at` if none begins there.
fn text_end(text: &str, at: usize) -> usize {
    let rest = &text.as_bytes()[at..];
    let before = at.checked_sub(1).map_or(b' ', |index| text.as_bytes()[index]);
    let length = if rest.starts_with(b"//") {
        rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())
    } else if rest.starts_with(b"/*") {
        block_length(rest)
    } else if rest[0] == b'"' {
        string_length(rest)
    } else if rest[0] == b'r' && (!is_word(before) || before == b'b') {
        raw_length(rest)
    } else if rest[0] == b'\'' {
        character_length(rest)
    } else {
        0
    };
    at + length
}

fn block_length(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
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

fn raw_length(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let start = 2 + hashes;
    rest[start..]
        .windows(close.len())
        .position(|window| window == close)
        .map_or(rest.len(), |index| start + index + close.len())
}

/// A character literal, and not a lifetime.
fn character_length(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return rest[3..].iter().position(|byte| *byte == b'\'').map_or(rest.len(), |index| index + 4);
    }
    let width = match rest.get(1) {
        Some(byte) if *byte >= 0xF0 => 4,
        Some(byte) if *byte >= 0xE0 => 3,
        Some(byte) if *byte >= 0xC0 => 2,
        _ => 1,
    };
    if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
}

/// Blanks every item under `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = code.to_owned();
    while let Some(start) = out.find(MARK) {
        let end = item_end(&out, start + MARK.len());
        let blank: String =
            out[start..end].chars().map(|character| if character == '\n' { '\n' } else { ' ' }).collect();
        out.replace_range(start..end, &blank);
    }
    out
}

/// The end of the item that begins at `at`: its closing brace, or a `;` outside braces.
fn item_end(code: &str, at: usize) -> usize {
    let mut depth = 0;
    for (index, character) in code[at..].char_indices() {
        match character {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return at + index + 1;
                }
            }
            ';' if depth == 0 => return at + index + 1,
            _ => {}
        }
    }
    code.len()
}
