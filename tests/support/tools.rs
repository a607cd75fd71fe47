//! Tools the tests need from the package registries, installed on first use under the target folder.
//!
//! One lock file per tool holds between processes, so that test binaries that run side by side install once.
//! A stamp file holds the pins that were installed: change a pin, and the next run installs anew.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

const MINISTACK_PINS: &str = include_str!("ministack.txt");
const TS_PACKAGE: &str = include_str!("../conformance/ts/package.json");
const TS_LOCK: &str = include_str!("../conformance/ts/package-lock.json");
const TS_NPMRC: &str = include_str!("../conformance/ts/.npmrc");
const TS_SESSION: &str = include_str!("../conformance/ts/session.mjs");

/// Where the tools are, below the target folder.
pub fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tools");
    fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

/// A Python environment with MiniStack; its path.
pub fn ministack() -> PathBuf {
    install("ministack", MINISTACK_PINS, |home| {
        let hint = "the tests need python3 (3.10 or newer) with its venv module on PATH";
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(home), hint);
        let pins = home.join("requirements.txt");
        fs::write(&pins, MINISTACK_PINS).expect("the environment can be written");
        let mut pip = Command::new(home.join("bin").join("python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]).arg(&pins);
        run(&mut pip, "pip could not install MiniStack; is a Python package index reachable?");
    })
}

/// A folder with the official TypeScript SDK and `session.mjs`; its path.
pub fn typescript_sdk() -> PathBuf {
    let pins = format!("{TS_PACKAGE}{TS_LOCK}");
    let home = install("typescript-sdk", &pins, |home| {
        drop(fs::remove_dir_all(home));
        fs::create_dir_all(home).expect("the target folder can be written");
        for (name, text) in
            [("package.json", TS_PACKAGE), ("package-lock.json", TS_LOCK), (".npmrc", TS_NPMRC)]
        {
            fs::write(home.join(name), text).expect("the target folder can be written");
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(home);
        run(&mut npm, "the tests need npm (from Node 20 or newer) on PATH and a package registry in reach");
    });
    // Beside its packages, where Node looks for them; written anew because it changes without the pins.
    // Two binaries may do this at once: a rename never shows half a file.
    let fresh = home.join(format!("session.{}.mjs", std::process::id()));
    fs::write(&fresh, TS_SESSION).expect("the target folder can be written");
    fs::rename(&fresh, home.join("session.mjs")).expect("the target folder can be written");
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

fn run(command: &mut Command, hint: &str) {
    let output = command.output().unwrap_or_else(|error| panic!("{hint} ({error})"));
    assert!(
        output.status.success(),
        "{hint}\n{command:?} ended with {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}
