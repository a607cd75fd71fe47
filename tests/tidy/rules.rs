//! The rules. Each takes sources and returns what breaks it, as `file:line: rule`.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Named, Source};

/// Longest file, in lines of code: neither blank, nor comment, nor test.
const FILE_LINES_MAX: usize = 400;

/// Modules by layer, top to bottom: imports go strictly down.
const LAYERS: [&[&str]; 11] = [
    &["main", "lib"],
    &["serve", "lambda", "setup", "inspect"],
    &["config"],
    &["secret"],
    &["api"],
    &["sweeper"],
    &["service"],
    &["engine"],
    &["storage"],
    &["store"],
    &["types", "telemetry"],
];

/// Modules that must not meet although one lies below the other: who, whom, why.
const APART: [(&str, &str, &str); 7] = [
    ("api", "engine", "the doors see the service only"),
    ("api", "storage", "the doors see the service only"),
    ("api", "store", "the doors see the service only"),
    ("sweeper", "engine", "sweeper and engine meet only in the store"),
    ("store", "types::stream", "a store does not know what a stream is"),
    ("store", "types::record", "a store does not know what a record is"),
    ("store", "types::config", "a store does not know how streams are configured"),
];

/// Files without I/O, clock or async. A name that ends in `*` is a prefix.
const PURE: [&str; 37] = [
    "src/storage/key.rs",
    "src/storage/chunk.rs",
    "src/storage/manifest.rs",
    "src/storage/index.rs",
    "src/storage/bucket.rs",
    "src/storage/ledger.rs",
    "src/storage/meta.rs",
    "src/storage/producers.rs",
    "src/storage/record.rs",
    "src/storage/frame.rs",
    "src/storage/head.rs",
    "src/storage/config.rs",
    "src/storage/identity.rs",
    "src/storage/tail.rs",
    "src/storage/upkeep.rs",
    "src/engine/admission.rs",
    "src/engine/entry.rs",
    "src/sweeper/plan.rs",
    "src/inspect/ledger.rs",
    "src/inspect/show.rs",
    "src/setup/plan.rs",
    "src/service/durable/messages.rs",
    "src/api/ds/error.rs",
    "src/api/ds/headers.rs",
    "src/api/ds/names.rs",
    "src/api/ds/place.rs",
    "src/api/ds/respond.rs",
    "src/api/ranges.rs",
    "src/api/uri.rs",
    "src/api/s2/respond.rs",
    "src/api/s2/position.rs",
    "src/api/s2/wire*",
    "src/api/s2/proto.rs",
    "src/api/s2/error.rs",
    "src/lambda/event.rs",
    "src/lambda/answer.rs",
    "src/types/*",
];

/// What a pure file may import beside `types` and pure files.
const PURE_EXCEPTIONS: [(&str, &str); 5] = [
    // It is the table from the errors below to answers.
    ("src/api/s2/error.rs", "service"),
    ("src/api/s2/error.rs", "api::body::BodyError"),
    ("src/api/ds/error.rs", "service"),
    ("src/api/ds/error.rs", "api::body::BodyError"),
    ("src/api/ds/respond.rs", "service::durable::Status"),
];

/// What no pure file may name, and the one file that may.
const IMPURE: [(&str, &str); 10] = [
    ("tokio", ""),
    ("futures", ""),
    ("std::fs", ""),
    ("std::net", ""),
    ("std::env", ""),
    ("std::thread", ""),
    ("std::process", ""),
    ("std::time::Instant", "src/types/time.rs"),
    ("std::time::SystemTime", "src/types/time.rs"),
    ("std::sync::Mutex", ""),
];

/// Third-party crates and parts of `std`, and the only places that may name them.
const CONFINED: [(&str, &[&str]); 29] = [
    ("axum", &["src/api/*", "src/serve.rs", "src/main.rs", "src/lambda*"]),
    ("http", &["src/api/*", "src/serve.rs", "src/main.rs", "src/lambda*", "src/store/*"]),
    ("http_body", &["src/api/*", "src/serve.rs", "src/lambda*"]),
    ("http_body_util", &["src/api/*", "src/serve.rs", "src/lambda*"]),
    ("tower", &["src/api/*", "src/serve.rs", "src/main.rs", "src/lambda*"]),
    ("tower_http", &["src/api/*"]),
    ("hyper", &["src/serve.rs"]),
    ("hyper_util", &["src/serve.rs"]),
    ("tokio_rustls", &["src/serve.rs"]),
    ("rustls", &["src/serve.rs", "src/store/*"]),
    ("reqwest", &["src/store/*"]),
    ("object_store", &["src/store/*"]),
    ("lambda_http", &["src/lambda*"]),
    ("aws_config", &["src/store/aws.rs"]),
    ("aws_credential_types", &["src/store/*"]),
    ("aws_smithy_http_client", &["src/store/aws.rs"]),
    ("aws_types", &["src/store/*"]),
    ("aws_sdk_s3", &["src/setup/*"]),
    ("subtle", &["src/api/auth.rs"]),
    ("aws_sdk_secretsmanager", &["src/secret.rs"]),
    ("prost", &["src/api/s2/proto.rs", "src/storage/*"]),
    ("clap", &["src/config.rs", "src/config/*"]),
    ("tracing_subscriber", &["src/telemetry.rs"]),
    ("metrics_exporter_prometheus", &["src/telemetry.rs", "src/main.rs", "src/api/*"]),
    // Below storage: the local folder needs fresh versions and stripes of its lock.
    ("blake3", &["src/storage/key.rs", "src/store/local/*"]),
    ("getrandom", &["src/storage/key.rs", "src/store/local/*"]),
    ("std::env", &["src/config.rs"]),
    ("std::time::SystemTime", &["src/types/time.rs"]),
    ("std::process", &["src/main.rs"]),
];

/// Whether a file is meant by a name that may end in `*`.
fn matches(path: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(path == pattern, |prefix| path.starts_with(prefix))
}

fn is_pure(path: &str) -> bool {
    PURE.iter().any(|pattern| matches(path, pattern))
}

/// Whether a path names `what` or something in it.
fn names(segments: &[String], what: &str) -> bool {
    let mut segments = segments.iter();
    what.split("::").all(|part| segments.next().is_some_and(|segment| segment == part))
}

fn layer(top: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&top))
}

/// The paths into this crate, without the leading `crate`.
fn own_paths(source: &Source) -> Vec<Named> {
    let inside = |mut named: Named| {
        (named.segments.first()? == "crate").then(|| {
            named.segments.remove(0);
            named
        })
    };
    source.paths().into_iter().filter_map(inside).collect()
}

/// Runs every rule.
pub fn check(sources: &[Source]) -> Vec<String> {
    let mut broken = Vec::new();
    for source in sources {
        broken.extend(check_shape(source));
        broken.extend(check_layers(source));
        broken.extend(check_confinement(source));
    }
    broken.extend(check_purity(sources));
    broken.extend(check_cycles(sources));
    broken
}

/// First line, length, unfinished marks.
pub fn check_shape(source: &Source) -> Vec<String> {
    let mut broken = Vec::new();
    let path = &source.path;
    if !source.text.starts_with("//! ") {
        broken.push(format!("{path}:1: a file begins with `//!` and says what lives there"));
    }
    let lines = source.code.lines().filter(|line| !line.trim().is_empty()).count();
    if lines > FILE_LINES_MAX {
        let rule = format!("a file has at most {FILE_LINES_MAX} lines of code, tests and comments aside");
        broken.push(format!("{path}:1: {rule}; this one has {lines}"));
    }
    for (index, line) in source.text.lines().enumerate() {
        for mark in ["TODO", "FIXME", "XXX"] {
            if line.contains(mark) {
                broken.push(format!("{path}:{}: no unfinished marks ({mark})", index + 1));
            }
        }
    }
    for (index, line) in source.code.lines().enumerate() {
        for call in ["todo!", "unimplemented!", ".unwrap()", "dbg!"] {
            if line.contains(call) {
                broken.push(format!("{path}:{}: no `{call}` outside tests", index + 1));
            }
        }
    }
    broken
}

/// Imports go strictly down, and some modules never meet.
pub fn check_layers(source: &Source) -> Vec<String> {
    let mut broken = Vec::new();
    let path = &source.path;
    let top = source.top();
    let Some(own) = layer(top) else {
        return vec![format!(
            "{path}:1: the module `{top}` has no layer; give it one in tests/tidy/rules.rs"
        )];
    };
    for named in own_paths(source) {
        let Some(target) = named.segments.first() else { continue };
        let line = named.line;
        match layer(target) {
            Some(layer) if target != top && layer <= own => {
                broken
                    .push(format!("{path}:{line}: imports go strictly down: not from `{top}` to `{target}`"));
            }
            _ => {}
        }
        for (who, whom, why) in APART {
            if who == top && names(&named.segments, whom) {
                broken.push(format!("{path}:{line}: `{who}` must not see `{whom}`: {why}"));
            }
        }
    }
    broken
}

/// Crates stay where they belong.
pub fn check_confinement(source: &Source) -> Vec<String> {
    let mut broken = Vec::new();
    for named in source.paths() {
        for (what, places) in CONFINED {
            if names(&named.segments, what) && !places.iter().any(|place| matches(&source.path, place)) {
                let places = places.join(", ");
                broken.push(format!("{}:{}: `{what}` belongs in {places}", source.path, named.line));
            }
        }
    }
    broken
}

/// Pure files see pure files only, and neither I/O nor clock nor async.
pub fn check_purity(sources: &[Source]) -> Vec<String> {
    let mut broken = Vec::new();
    for source in sources.iter().filter(|source| is_pure(&source.path)) {
        let path = &source.path;
        for named in own_paths(source) {
            let Some(target) = target(sources, &named.segments) else { continue };
            let allowed = target.path == *path
                || is_pure(&target.path)
                || PURE_EXCEPTIONS.iter().any(|(who, whom)| who == path && names(&named.segments, whom));
            if !allowed {
                let line = named.line;
                broken
                    .push(format!("{path}:{line}: a pure file imports pure files only, not {}", target.path));
            }
        }
        for named in source.paths() {
            for (what, exception) in IMPURE {
                if names(&named.segments, what) && path != exception {
                    broken.push(format!("{path}:{}: a pure file does not name `{what}`", named.line));
                }
            }
        }
        for (index, line) in source.code.lines().enumerate() {
            let mut words = line.split(|character: char| !character.is_alphanumeric() && character != '_');
            if words.any(|word| matches!(word, "async" | "await")) {
                broken.push(format!("{path}:{}: a pure file is not async", index + 1));
            }
        }
    }
    broken
}

/// The file that a path within the crate leads to: the longest part of it that is a module.
fn target<'a>(sources: &'a [Source], segments: &[String]) -> Option<&'a Source> {
    (1..=segments.len())
        .rev()
        .find_map(|length| sources.iter().find(|source| source.module == segments[..length]))
}

/// For each edge, where it was first seen.
type Graph = BTreeMap<String, BTreeMap<String, String>>;

/// No import cycle between top-level modules, nor between files of one folder.
pub fn check_cycles(sources: &[Source]) -> Vec<String> {
    let mut graphs: BTreeMap<String, Graph> = BTreeMap::new();
    for source in sources {
        for named in own_paths(source) {
            let Some(target) = target(sources, &named.segments) else { continue };
            let common = source.module.iter().zip(&target.module).take_while(|(a, b)| a == b).count();
            let (Some(from), Some(to)) = (source.module.get(common), target.module.get(common)) else {
                // One contains the other: a parent and its child.
                continue;
            };
            let place = format!("{}:{}", source.path, named.line);
            let folder = source.module[..common].join("::");
            let edges = graphs.entry(folder).or_default().entry(from.clone()).or_default();
            edges.entry(to.clone()).or_insert(place);
        }
    }
    let mut broken = Vec::new();
    for (folder, graph) in &graphs {
        if let Some(cycle) = find_cycle(graph) {
            let places: Vec<_> =
                cycle.windows(2).filter_map(|pair| graph.get(&pair[0])?.get(&pair[1]).cloned()).collect();
            let place = places.first().cloned().unwrap_or_default();
            let within = if folder.is_empty() { "the crate" } else { folder };
            let places = places.join(", ");
            broken.push(format!("{place}: import cycle in {within}: {} ({places})", cycle.join(" -> ")));
        }
    }
    broken
}

fn find_cycle(graph: &Graph) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    graph.keys().find_map(|start| visit(graph, start, &mut Vec::new(), &mut done))
}

fn visit(
    graph: &Graph,
    node: &str,
    trail: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(start) = trail.iter().position(|seen| seen == node) {
        let mut cycle = trail[start..].to_vec();
        cycle.push(node.to_owned());
        return Some(cycle);
    }
    if !done.insert(node.to_owned()) {
        return None;
    }
    trail.push(node.to_owned());
    let found =
        graph.get(node).and_then(|edges| edges.keys().find_map(|next| visit(graph, next, trail, done)));
    trail.pop();
    found
}

/// What no tracked text may hold. In pieces, so that this file may be tracked too.
fn unwanted() -> Vec<(String, &'static str)> {
    let mut unwanted = Vec::new();
    for folder in ["work", "root", "tmp", "home"] {
        unwanted.push((format!("/{folder}/"), "no paths of one machine"));
    }
    for (host, end) in [
        ("crates", "io"),
        ("registry.npmjs", "org"),
        ("npmjs", "com"),
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("deb.debian", "org"),
    ] {
        unwanted.push((format!("{host}.{end}"), "no names of registry hosts"));
    }
    unwanted
}

/// Looks for machine paths and registry hosts in any text file.
pub fn check_text(path: &str, text: &str) -> Vec<String> {
    if path.rsplit('/').next() == Some("Cargo.lock") {
        // Cargo writes the address of its index into it.
        return Vec::new();
    }
    let unwanted = unwanted();
    let mut broken = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (what, rule) in &unwanted {
            if line.match_indices(what.as_str()).any(|(at, _)| !what.starts_with('/') || begins(line, at)) {
                broken.push(format!("{path}:{}: {rule}", index + 1));
            }
        }
    }
    broken
}

/// Whether the path at `at` is absolute: what stands before it is not part of a longer one.
fn begins(line: &str, at: usize) -> bool {
    let before = line[..at].chars().next_back().unwrap_or(' ');
    !before.is_alphanumeric() && !matches!(before, '_' | '-' | '.' | '}')
}
