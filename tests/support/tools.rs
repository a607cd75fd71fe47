//! Tools the tests need from the package registries, installed on first use under the target folder.
//!
//! One lock file per tool holds between processes, so that test binaries that run side by side install once.
//! A stamp file holds the pins that were installed: change a pin, and the next run installs anew.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

const MINISTACK_PINS: &str = include_str!("ministack.txt");
const LOCALSTACK_PINS: &str = include_str!("localstack.txt");
const CARELESS_PINS: &str = include_str!("careless.txt");
const TS_PACKAGE: &str = include_str!("../conformance/ts/package.json");
const TS_LOCK: &str = include_str!("../conformance/ts/package-lock.json");
const TS_NPMRC: &str = include_str!("../conformance/ts/.npmrc");
const TS_SCRIPTS: [(&str, &str); 3] = [
    ("session.mjs", include_str!("../conformance/ts/session.mjs")),
    ("sessions.mjs", include_str!("../conformance/ts/sessions.mjs")),
    ("steps.mjs", include_str!("../conformance/ts/steps.mjs")),
];
const DS_PACKAGE: &str = include_str!("../conformance/ds/package.json");
const DS_LOCK: &str = include_str!("../conformance/ds/package-lock.json");
const DS_SCRIPTS: [(&str, &str); 4] = [
    ("conformance.test.mjs", include_str!("../conformance/ds/conformance.test.mjs")),
    ("proxy.mjs", include_str!("../conformance/ds/proxy.mjs")),
    ("clients.mjs", include_str!("../conformance/ds/clients.mjs")),
    ("steps.mjs", include_str!("../conformance/ds/steps.mjs")),
];
const DRIVER_PACKAGE: &str = include_str!("../conformance/browser/package.json");
const DRIVER_LOCK: &str = include_str!("../conformance/browser/package-lock.json");
const DRIVER_SCRIPTS: [(&str, &str); 2] = [
    ("page.mjs", include_str!("../conformance/browser/page.mjs")),
    ("steps.mjs", include_str!("../conformance/ds/steps.mjs")),
];
const PAGE_PACKAGE: &str = include_str!("../../examples/browser/package.json");
const PAGE_LOCK: &str = include_str!("../../examples/browser/package-lock.json");
const PAGE_NPMRC: &str = include_str!("../../examples/browser/.npmrc");
const PAGE_FILES: [(&str, &str); 6] = [
    ("index.html", include_str!("../../examples/browser/index.html")),
    ("style.css", include_str!("../../examples/browser/style.css")),
    ("page.js", include_str!("../../examples/browser/page.js")),
    ("stream.js", include_str!("../../examples/browser/stream.js")),
    ("eventsource.js", include_str!("../../examples/browser/eventsource.js")),
    ("client.js", include_str!("../../examples/browser/client.js")),
];
/// Names it, if it has none of the usual ones.
const CHROMIUM_VARIABLE: &str = "LEAT_TEST_CHROMIUM";
const CHROMIUM_NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const PYTHON_DS_PINS: &str = include_str!("../conformance/ds/requirements.txt");
const PYTHON_DS_CLIENT: &str = "tests/conformance/ds/client.py";
const PYTHON_SDK_PINS: &str = include_str!("../conformance/python/requirements.txt");
const PYTHON_SESSIONS: &str = "tests/conformance/python/sessions.py";
const RUST_SDK_PINS: &str = "tests/conformance/rust/Cargo.toml";

/// Where the tools are, below the target folder.
pub fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tools");
    fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

/// A Python environment with MiniStack; its path.
pub fn ministack() -> PathBuf {
    python_environment("ministack", MINISTACK_PINS, 11)
}

/// A Python environment with LocalStack; its path.
pub fn localstack() -> PathBuf {
    // It says that it runs with less, and imports what came with 3.13.
    python_environment("localstack", LOCALSTACK_PINS, 13)
}

/// A Python environment with S3 servers that are known to ignore conditions; its path.
pub fn careless() -> PathBuf {
    python_environment("careless", CARELESS_PINS, 11)
}

/// A command that runs `sessions.py` with the official Python SDK.
pub fn python_sessions() -> Command {
    python_script(&python_environment("python-sdk", PYTHON_SDK_PINS, 11), PYTHON_SESSIONS)
}

/// A command that runs `client.py` with the Python client of Durable Streams.
pub fn python_durable_streams() -> Command {
    python_script(&python_environment("python-durable-streams", PYTHON_DS_PINS, 11), PYTHON_DS_CLIENT)
}

fn python_script(environment: &Path, script: &str) -> Command {
    let mut python = Command::new(environment.join("bin").join("python"));
    python.arg("-B").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script));
    python
}

/// A Python environment with these packages, made by a Python 3 of at least this minor version; its path.
fn python_environment(name: &str, pins: &str, minor: u32) -> PathBuf {
    let made_of = format!("# Python 3.{minor} or newer\n{pins}");
    install(name, &made_of, |home| {
        let hint = format!("cannot make a Python environment for {name}");
        run(Command::new(python(name, minor)).args(["-m", "venv", "--clear"]).arg(home), &hint);
        let requirements = home.join("requirements.txt");
        fs::write(&requirements, pins).expect("the environment can be written");
        let mut pip = Command::new(home.join("bin").join("python"));
        // The pins are complete: nothing to resolve.
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r"]);
        pip.arg(&requirements);
        run(&mut pip, &format!("pip could not install {name}; is a Python package index reachable?"));
    })
}

/// A Python 3 of at least this minor version, with its venv module.
fn python(name: &str, minor: u32) -> PathBuf {
    let names = ["python3", "python3.13", "python3.14"];
    let is_new_enough = |python: &Path| {
        let check = format!("import ensurepip, sys, venv; sys.exit(sys.version_info < (3, {minor}))");
        Command::new(python).args(["-c", &check]).output().is_ok_and(|output| output.status.success())
    };
    // Where pyenv stands in for Python, a version that is not the chosen one is known to it alone.
    let hidden = names.iter().flat_map(|name| {
        let found = Command::new("pyenv").args(["whence", "--path", name]).output();
        let paths = found.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        paths.unwrap_or_default().lines().map(PathBuf::from).collect::<Vec<_>>()
    });
    let mut pythons = names.iter().map(PathBuf::from).chain(hidden);
    pythons.find(|python| is_new_enough(python)).unwrap_or_else(|| {
        panic!("{name} needs Python 3.{minor} or newer, with its venv module, on PATH as one of {names:?}")
    })
}

/// A command that runs one of the integration suites of the published `s2-sdk` crate, from the sources that cargo
/// fetched, with the crate's own lock file.
///
/// The first of them builds the crate, with the TLS stack that takes less time to compile; cargo's lock on the
/// target folder makes the others wait.
pub fn rust_sdk_suite(suite: &str) -> Command {
    let mut cargo = cargo();
    cargo
        .args(["test", "--quiet", "--locked", "--no-default-features", "--features", "rustls-ring"])
        .args(["--test", suite, "--manifest-path"])
        .arg(rust_sdk_manifest())
        .arg("--target-dir")
        .arg(folder().join("rust-sdk"))
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    cargo
}

/// Where cargo keeps the manifest of the pinned `s2-sdk` crate; fetches it if it is not there.
fn rust_sdk_manifest() -> PathBuf {
    let mut metadata = cargo();
    metadata
        .args(["metadata", "--quiet", "--locked", "--format-version", "1", "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(RUST_SDK_PINS));
    let output = run(&mut metadata, "cargo could not fetch the s2-sdk crate; is a crate registry reachable?");
    let metadata: serde_json::Value = serde_json::from_slice(&output).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    let package = packages.iter().find(|package| package["name"] == "s2-sdk").expect("it is a dependency");
    PathBuf::from(package["manifest_path"].as_str().expect("a path"))
}

/// The cargo that runs the tests.
fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A folder with the official TypeScript SDK and the scripts; its path.
pub fn typescript_sdk() -> PathBuf {
    node_packages("typescript-sdk", [TS_PACKAGE, TS_LOCK, TS_NPMRC], &TS_SCRIPTS)
}

/// A folder with the public suite and clients of Durable Streams; its path.
pub fn durable_streams() -> PathBuf {
    node_packages("durable-streams", [DS_PACKAGE, DS_LOCK, TS_NPMRC], &DS_SCRIPTS)
}

/// A folder with what drives a browser, and the script; its path.
pub fn browser_driver() -> PathBuf {
    node_packages("browser-driver", [DRIVER_PACKAGE, DRIVER_LOCK, TS_NPMRC], &DRIVER_SCRIPTS)
}

/// A folder like `examples/browser` after its `npm install`; its path.
pub fn browser_page() -> PathBuf {
    node_packages("browser-page", [PAGE_PACKAGE, PAGE_LOCK, PAGE_NPMRC], &PAGE_FILES)
}

/// The system's Chromium; panics with a clear text if there is none.
pub fn chromium() -> PathBuf {
    if let Some(given) = std::env::var_os(CHROMIUM_VARIABLE).map(PathBuf::from) {
        assert!(given.is_file(), "{CHROMIUM_VARIABLE} is `{}`, where there is no browser", given.display());
        return given;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places =
        std::env::split_paths(&path).flat_map(|folder| CHROMIUM_NAMES.map(|name| folder.join(name)));
    places.find(|place| place.is_file()).unwrap_or_else(|| {
        panic!(
            "the test of the page needs Chromium (on Debian: `apt-get install chromium`), on PATH as one of \
             {CHROMIUM_NAMES:?} or named by {CHROMIUM_VARIABLE}"
        )
    })
}

/// A folder with packages for Node, installed from `package.json`, its lock and `.npmrc`, and with scripts.
fn node_packages(name: &str, [package, lock, npmrc]: [&str; 3], scripts: &[(&str, &str)]) -> PathBuf {
    let pins = format!("{package}{lock}");
    let home = install(name, &pins, |home| {
        drop(fs::remove_dir_all(home));
        fs::create_dir_all(home).expect("the target folder can be written");
        for (name, text) in [("package.json", package), ("package-lock.json", lock), (".npmrc", npmrc)] {
            fs::write(home.join(name), text).expect("the target folder can be written");
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(home);
        run(&mut npm, "the tests need npm (from Node 20 or newer) on PATH and a package registry in reach");
    });
    // Beside their packages, where Node looks for them; written anew because they change without the pins.
    // Two tests may do this at once: a rename never shows half a file.
    for (name, text) in scripts {
        let fresh = home.join(format!("{}.{name}", fresh_number()));
        fs::write(&fresh, text).expect("the target folder can be written");
        fs::rename(&fresh, home.join(name)).expect("the target folder can be written");
    }
    home
}

/// A command for Node; panics with a clear text if there is none.
pub fn node() -> Command {
    let mut version = Command::new("node");
    run(version.arg("--version"), "the tests need node (20 or newer) on PATH");
    Command::new("node")
}

/// Runs `make` under the tool's lock unless the stamp says that these pins are installed.
fn install(name: &str, pins: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let folder = folder();
    let home = folder.join(name);
    let stamp = folder.join(format!("{name}.stamp"));
    let lock = File::create(folder.join(format!("{name}.lock"))).expect("the target folder can be written");
    lock.lock().expect("the file system has locks");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == pins) && home.exists() {
        return home;
    }
    drop(fs::remove_file(&stamp));
    make(&home);
    fs::write(&stamp, pins).expect("the target folder can be written");
    // Closing the file unlocks it.
    drop(lock);
    home
}

/// A number that no other test has, in this process or another.
fn fresh_number() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Runs the command to its end, and panics with the hint if it fails; what it printed to stdout.
fn run(command: &mut Command, hint: &str) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| panic!("{hint} ({error})"));
    assert!(
        output.status.success(),
        "{hint}\n{command:?} ended with {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    output.stdout
}
