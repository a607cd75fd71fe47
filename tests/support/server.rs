//! The built server as a child process on a free port.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use super::process::{Process, wait_for};

/// Time to open and probe a store and to answer.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// What to start.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// `--store`.
    pub store: String,
    /// More flags.
    pub flags: Vec<String>,
    /// Variables; nothing of the test's own `LEAT_*` and `AWS_*` is passed on.
    pub variables: Vec<(String, String)>,
}

impl ServerOptions {
    /// A server on this store.
    pub fn on(store: &str) -> Self {
        Self { store: store.to_owned(), flags: Vec::new(), variables: Vec::new() }
    }

    /// A server on a local folder.
    pub fn on_folder(folder: &Path) -> Self {
        Self::on(&format!("file://{}", folder.display()))
    }

    /// Adds a flag and its value.
    #[must_use]
    pub fn flag(mut self, flag: &str, value: &str) -> Self {
        self.flags.extend([flag.to_owned(), value.to_owned()]);
        self
    }

    /// Adds variables.
    #[must_use]
    pub fn variables(mut self, variables: &[(String, String)]) -> Self {
        self.variables.extend_from_slice(variables);
        self
    }

    /// The command, not yet started.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leat"));
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("LEAT_") || name.starts_with("AWS_")) {
                command.env_remove(name);
            }
        }
        // The system picks the port and the first line tells which: no other test can take it in between.
        command.args(["serve", "--listen", "127.0.0.1:0", "--store", &self.store]);
        command.args(&self.flags);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts it and waits until it is healthy.
    pub fn start(&self) -> Server {
        let mut process = Process::start("leat", &mut self.command());
        let banner = [(); 4].map(|()| process.line(START_TIMEOUT));
        let url = banner[0].split_whitespace().last().unwrap_or_default().to_owned();
        let address = url.rsplit('/').next().unwrap_or_default().to_owned();
        assert!(address.contains(':'), "the first line does not end in an address: {banner:?}");
        if url.starts_with("http://") {
            wait_for(&mut process, &address, "/health", START_TIMEOUT);
        }
        Server { process, address, url, banner }
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Server {
    process: Process,
    /// `127.0.0.1:port`.
    pub address: String,
    /// `http://127.0.0.1:port`.
    pub url: String,
    /// The four lines it printed.
    pub banner: [String; 4],
}

impl Server {
    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.process.stderr.text()
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends it as a power cut would.
    pub fn kill_9(&mut self) {
        self.process.kill_9();
    }

    /// Asks it to drain.
    pub fn sigterm(&self) {
        self.process.signal("TERM");
    }

    /// Sends any signal by name; `STOP` and `CONT` freeze and thaw it.
    pub fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    /// Waits for its end.
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        self.process.wait(within)
    }
}
