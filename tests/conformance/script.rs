//! Runs a script of numbered steps against a server, and replaces the server when the script asks for it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::relay::Relay;
use crate::support::server::{Server, ServerOptions};

/// The line with which a script asks for another server.
const REPLACE: &str = "replace the server";
/// The lines with which it asks for the server's sudden end, and, when it likes, for the next one.
const KILL: &str = "kill the server";
const START: &str = "start a server";

/// Longer than a server takes to drain when its clients leave as they are told.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(8);

/// How a server makes room for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replacing {
    /// The script does not ask for it.
    Never,
    /// It is told to end, and tells its clients.
    Draining,
    /// It is gone.
    Killing,
}

/// A server that can be replaced by another one on the same store, at one address.
#[derive(Debug)]
pub(crate) struct Place {
    options: ServerOptions,
    replacing: Replacing,
    relay: Relay,
    server: Server,
}

impl Place {
    /// Starts the first server.
    pub(crate) fn start(options: &ServerOptions, replacing: Replacing) -> Self {
        let server = options.start();
        Self { options: options.clone(), replacing, relay: Relay::before(&server.address), server }
    }

    /// Runs the script to its end: so many steps pass.
    pub(crate) fn run(mut self, mut script: Command, steps: usize) {
        // What the script prints to stderr says which step failed; it is shown as it comes.
        endpoints(&mut script, &self.relay.url).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().unwrap_or_else(|error| panic!("cannot run {script:?}: {error}"));
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut printed = Vec::new();
        let mut replaced = 0;
        for line in stdout.lines() {
            let line = line.expect("scripts print text");
            match line.as_str() {
                REPLACE => {
                    self.replace();
                    replaced += 1;
                }
                KILL => self.server.kill_9(),
                START => drop(self.turn_to_another()),
                _ => {}
            }
            if [REPLACE, KILL, START].contains(&line.as_str()) {
                stdin.write_all(b"done\n").expect("the script waits for it");
            }
            printed.push(line);
        }
        let status = child.wait().expect("a child can be waited for");
        let printed = printed.join("\n");
        assert!(status.success(), "{printed}\n--- server log ---\n{}", self.server.log());
        let last = printed.lines().last().unwrap_or_default();
        assert_eq!(last, format!("{steps} steps passed"), "{printed}");
        assert_eq!(replaced, usize::from(self.replacing != Replacing::Never), "{printed}");
    }

    /// Starts the next server, and hands out the last one.
    fn turn_to_another(&mut self) -> Server {
        let next = self.options.start();
        self.relay.turn_to(&next.address);
        std::mem::replace(&mut self.server, next)
    }

    /// The next server is there before the last one goes, as in any rolling deployment.
    fn replace(&mut self) {
        let mut last = self.turn_to_another();
        match self.replacing {
            Replacing::Never => panic!("a script asks for another server unexpectedly"),
            Replacing::Draining => {
                last.sigterm();
                let status = last.wait(DRAIN_TIMEOUT);
                assert!(status.success(), "it ended with {status}; its log:\n{}", last.log());
            }
            Replacing::Killing => last.kill_9(),
        }
    }
}

/// Tells a client where the server is.
pub(crate) fn endpoints<'a>(command: &'a mut Command, url: &str) -> &'a mut Command {
    let for_sdks = [("S2_ACCESS_TOKEN", "test"), ("S2_ACCOUNT_ENDPOINT", url), ("S2_BASIN_ENDPOINT", url)];
    command.envs(for_sdks).env("LEAT_URL", url)
}
