//! The architecture as a test: layers, pure files, confined crates, the shape of files, and clean text.
//!
//! Reads the tree as text and links nothing of the crate, so that it runs in a moment. The second half checks
//! the checker: each rule is shown something that breaks it.
#![allow(clippy::indexing_slicing, unreachable_pub, reason = "a test may fail loudly")]

#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use source::Source;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files git knows or would take; without git, every file outside the folders that hold no source.
fn files() -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output();
    match listed {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            let text = String::from_utf8_lossy(&output.stdout);
            let mut files: Vec<_> =
                text.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
            // One that was deleted and not yet committed is listed all the same.
            files.retain(|file| root().join(file).is_file());
            files
        }
        _ => walk(Path::new("")),
    }
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).expect("the tree can be read").flatten() {
        let path = folder.join(entry.file_name());
        let name = entry.file_name();
        if ["target", "node_modules", ".git", "leat-data"].iter().any(|skipped| name == *skipped) {
            continue;
        }
        if entry.path().is_dir() {
            found.extend(walk(&path));
        } else {
            found.push(path);
        }
    }
    found
}

fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    for path in walk(Path::new("src")) {
        if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(root().join(&path)).expect("sources are UTF-8");
            sources.push(Source::new(&path.to_string_lossy(), &text));
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    without_tests(sources)
}

/// Leaves out files that are compiled for tests only.
fn without_tests(sources: Vec<Source>) -> Vec<Source> {
    let tests: Vec<_> = sources.iter().flat_map(Source::test_files).collect();
    sources.into_iter().filter(|source| !tests.contains(&source.path)).collect()
}

#[test]
fn the_tree_keeps_the_rules() {
    let sources = sources();
    assert!(sources.len() > 10, "the sources were not found");
    let broken = rules::check(&sources);
    assert!(broken.is_empty(), "{} broken rules:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn tracked_text_names_no_machine_and_no_registry() {
    let mut broken = Vec::new();
    for path in files() {
        // What is not UTF-8 is not text.
        if let Ok(text) = fs::read_to_string(root().join(&path)) {
            broken.extend(rules::check_text(&path.to_string_lossy(), &text));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

// The checker itself.

fn source(path: &str, code: &str) -> Source {
    Source::new(path, &format!("//! A file.\n{code}"))
}

/// Asserts that exactly one rule breaks, at this place, with this word.
#[track_caller]
fn breaks(broken: &[String], place: &str, word: &str) {
    assert_eq!(broken.len(), 1, "{broken:#?}");
    assert!(broken[0].starts_with(place) && broken[0].contains(word), "{broken:?}");
}

#[test]
fn comments_strings_and_tests_are_not_code() {
    let text = r##"//! x
// crate::api::A
/* crate::api::B /* crate::api::C */ crate::api::D */
const A: &str = "crate::api::E \" crate::api::F";
const B: &str = r#"crate::api::G " "#;
const C: char = '"';
const D: char = '\'';
pub(in crate::engine) fn f<'a>(x: &'a str) -> crate::types::T { x }
#[cfg(test)]
mod tests { fn g() { crate::api::H; } }
fn h() { crate::store::S; }
#[cfg(test)]
use crate::api::I;
"##;
    let source = Source::new("src/engine/x.rs", text);
    let paths: Vec<_> =
        source.paths().into_iter().map(|named| (named.line, named.segments.join("::"))).collect();
    let expected = [(8, "crate::types::T".to_owned()), (11, "crate::store::S".to_owned())];
    assert_eq!(paths, expected);
}

#[test]
fn files_of_tests_are_left_out_and_no_others() {
    let kept = without_tests(vec![
        source("src/api/mod.rs", "mod s2;\n#[cfg(test)]\nmod tests;\n"),
        source("src/api/tests.rs", "fn f() { g().unwrap() }\n"),
        source(
            "src/api/s2.rs",
            "#[cfg(test)]\n#[path = \"s2_tests.rs\"]\nmod tests;\n#[cfg(test)]\nmod more;\n",
        ),
        source("src/api/s2_tests.rs", ""),
        source("src/api/s2/more.rs", ""),
        source("src/api/other_tests.rs", ""),
    ]);
    let kept: Vec<_> = kept.iter().map(|source| source.path.as_str()).collect();
    assert_eq!(kept, ["src/api/mod.rs", "src/api/s2.rs", "src/api/other_tests.rs"]);
}

#[test]
fn use_trees_and_relative_paths_are_resolved() {
    let code = "use crate::{a::{b, c::D as E}, f};\nuse super::{g, self as h};\nuse self::i::J;\nuse super::super::k;\n";
    let source = source("src/api/s2/wire.rs", code);
    let paths: Vec<_> =
        source.paths().into_iter().map(|named| (named.line, named.segments.join("::"))).collect();
    let expected = [
        (2, "crate::a::b"),
        (2, "crate::a::c::D"),
        (2, "crate::f"),
        (3, "crate::api::s2::g"),
        (3, "crate::api::s2::self"),
        (4, "crate::api::s2::wire::i::J"),
        (5, "crate::api::k"),
    ]
    .map(|(line, path)| (line, path.to_owned()));
    assert_eq!(paths, expected);
}

#[test]
fn an_import_upwards_or_sideways_is_found() {
    let up = source("src/store/mod.rs", "\nuse crate::engine::Engine;\n");
    breaks(&rules::check_layers(&up), "src/store/mod.rs:3", "strictly down");
    let sideways = source("src/types/x.rs", "fn f() { crate::telemetry::g(); }\n");
    breaks(&rules::check_layers(&sideways), "src/types/x.rs:2", "strictly down");
    let relative = source("src/store/s3.rs", "use super::super::service::Service;\n");
    breaks(&rules::check_layers(&relative), "src/store/s3.rs:2", "`store` to `service`");
    let down = source("src/engine/mod.rs", "use crate::{storage::key::Key, types::name::StreamName};\n");
    assert_eq!(rules::check_layers(&down), Vec::<String>::new());
}

#[test]
fn modules_that_must_not_meet_are_found() {
    let door = source("src/api/s2/records.rs", "use crate::storage::manifest::Manifest;\n");
    breaks(&rules::check_layers(&door), "src/api/s2/records.rs:2", "service only");
    let sweeper = source("src/sweeper/mod.rs", "use crate::engine::Engine;\n");
    breaks(&rules::check_layers(&sweeper), "src/sweeper/mod.rs:2", "meet only in the store");
    let store = source("src/store/mod.rs", "use crate::types::{limits, record::Record};\n");
    breaks(&rules::check_layers(&store), "src/store/mod.rs:2", "what a record is");
}

#[test]
fn a_module_without_a_layer_is_found() {
    breaks(&rules::check_layers(&source("src/helpers.rs", "")), "src/helpers.rs:1", "no layer");
}

#[test]
fn a_crate_out_of_its_place_is_found() {
    let service = source("src/service/mod.rs", "\nuse http::StatusCode;\n");
    breaks(&rules::check_confinement(&service), "src/service/mod.rs:3", "`http`");
    let engine = source("src/engine/mod.rs", "fn f() { let _ = object_store::path::Path::default(); }\n");
    breaks(&rules::check_confinement(&engine), "src/engine/mod.rs:2", "`object_store`");
    let env = source("src/store/mod.rs", "use std::{env, fmt};\n");
    breaks(&rules::check_confinement(&env), "src/store/mod.rs:2", "`std::env`");
    let clock = source("src/engine/mod.rs", "use std::time::{Duration, SystemTime};\n");
    breaks(&rules::check_confinement(&clock), "src/engine/mod.rs:2", "SystemTime");
    let fine = source("src/api/mod.rs", "use axum::Router;\nuse tokio::time::sleep;\n");
    assert_eq!(rules::check_confinement(&fine), Vec::<String>::new());
}

#[test]
fn an_impure_pure_file_is_found() {
    let tree = |code: &str| {
        [
            source("src/storage/manifest.rs", code),
            source("src/storage/mod.rs", ""),
            source("src/types/name.rs", ""),
        ]
    };
    breaks(
        &rules::check_purity(&tree("use crate::storage::load;\n")),
        "src/storage/manifest.rs:2",
        "pure files",
    );
    breaks(&rules::check_purity(&tree("use std::fs;\n")), "src/storage/manifest.rs:2", "std::fs");
    breaks(&rules::check_purity(&tree("async fn f() {}\n")), "src/storage/manifest.rs:2", "async");
    breaks(&rules::check_purity(&tree("use std::time::Instant;\n")), "src/storage/manifest.rs:2", "Instant");
    let fine = tree("use crate::types::name::StreamName;\nuse super::manifest::Manifest;\n");
    assert_eq!(rules::check_purity(&fine), Vec::<String>::new());
}

#[test]
fn import_cycles_are_found() {
    let siblings = [
        source("src/engine/a.rs", "use super::b::B;\n"),
        source("src/engine/b.rs", "use super::c::C;\n"),
        source("src/engine/c.rs", "use crate::engine::a::A;\n"),
    ];
    breaks(&rules::check_cycles(&siblings), "src/engine/a.rs:2", "a -> b -> c -> a");
    let modules = [
        source("src/engine/a.rs", "use crate::storage::K;\n"),
        source("src/storage/mod.rs", "use crate::engine::a::A;\n"),
    ];
    breaks(&rules::check_cycles(&modules), "src/engine/a.rs:2", "engine -> storage -> engine");
    let parent =
        [source("src/engine/mod.rs", "use self::a::A;\n"), source("src/engine/a.rs", "use super::E;\n")];
    assert_eq!(rules::check_cycles(&parent), Vec::<String>::new());
}

#[test]
fn a_badly_shaped_file_is_found() {
    let bare = Source::new("src/types/x.rs", "use std::fmt;\n");
    breaks(&rules::check_shape(&bare), "src/types/x.rs:1", "//!");
    let long = source("src/types/x.rs", &"const A: u8 = 0;\n// Why.\n\n".repeat(401));
    breaks(&rules::check_shape(&long), "src/types/x.rs:1", "this one has 401");
    let tested = source("src/types/x.rs", &format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(500)));
    assert_eq!(rules::check_shape(&tested), Vec::<String>::new());
    let mark = source("src/types/x.rs", &format!("// {}: later\n", concat!("TO", "DO")));
    breaks(&rules::check_shape(&mark), "src/types/x.rs:2", "unfinished");
    let macro_call = source("src/types/x.rs", "fn f() {\n    todo!()\n}\n");
    breaks(&rules::check_shape(&macro_call), "src/types/x.rs:3", "todo!");
    let unwrap = source("src/types/x.rs", "fn f(x: Option<u8>) -> u8 { x.unwrap() }\n");
    breaks(&rules::check_shape(&unwrap), "src/types/x.rs:2", "unwrap");
    let in_test =
        source("src/types/x.rs", "#[cfg(test)]\nmod tests { fn f(x: Option<u8>) { x.unwrap(); } }\n");
    assert_eq!(rules::check_shape(&in_test), Vec::<String>::new());
}

#[test]
fn text_that_names_a_machine_or_a_registry_is_found() {
    let path = format!("see {}{}", "/wo", "rk/x");
    breaks(&rules::check_text("README.md", &path), "README.md:1", "machine");
    let host = format!("a\nhttps://{}.{}/x\n", "py\u{70}i", "org");
    breaks(&rules::check_text("a.toml", &host), "a.toml:2", "registry");
    let relative = format!("a{}rk/b", "/wo");
    assert_eq!(rules::check_text("README.md", &relative), Vec::<String>::new());
    assert_eq!(rules::check_text("Cargo.lock", &host), Vec::<String>::new());
}
