//! A child process that does not outlive its test, with its output kept for failure messages.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lines of output kept per child.
const LINES_MAX: usize = 2_000;

/// Lines a child has printed so far.
#[derive(Clone, Debug, Default)]
pub struct Output(Arc<Mutex<Vec<String>>>);

impl Output {
    /// The lines so far, joined.
    pub fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }

    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < LINES_MAX {
            lines.push(line);
        }
    }
}

/// A running child. Dropping it kills it, so that a test that panics leaves nothing behind.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// What it printed to stderr.
    pub stderr: Output,
    stdout: Mutex<mpsc::Receiver<String>>,
    log: JoinHandle<()>,
}

impl Process {
    /// Starts the command with both outputs captured.
    pub fn start(name: &str, command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let stderr = Output::default();
        let (sender, stdout) = mpsc::channel();
        let kept = stderr.clone();
        let log = follow(child.stderr.take().expect("stderr is piped"), move |line| kept.push(line));
        follow(child.stdout.take().expect("stdout is piped"), move |line| drop(sender.send(line)));
        Self { name: name.to_owned(), child, stderr, stdout: Mutex::new(stdout), log }
    }

    /// The next line on stdout.
    pub fn line(&mut self, within: Duration) -> String {
        let stdout = self.stdout.get_mut().unwrap_or_else(PoisonError::into_inner);
        stdout.recv_timeout(within).unwrap_or_else(|_| {
            panic!("{} printed no line within {within:?}; its log:\n{}", self.name, self.stderr.text())
        })
    }

    /// The id, for signals.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended, and how.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be asked")
    }

    /// Sends a signal by name, such as `TERM` or `STOP`.
    pub fn signal(&self, signal: &str) {
        let id = self.id().to_string();
        let status = Command::new("kill").args(["-s", signal, &id]).status().expect("kill(1) is there");
        assert!(status.success(), "cannot send {signal} to {}", self.name);
    }

    /// Waits for its end.
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        let until = Instant::now() + within;
        while Instant::now() < until {
            if let Some(status) = self.ended() {
                self.settle();
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{} did not end within {within:?}; its log:\n{}", self.name, self.stderr.text())
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill_9(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        self.settle();
    }

    /// Waits until the log of an ended child is read; not for ever, since a grandchild may hold the pipe.
    fn settle(&self) {
        for _ in 0..100 {
            if self.log.is_finished() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_9();
        if std::thread::panicking() {
            eprintln!("--- log of {} ---\n{}", self.name, self.stderr.text());
        }
    }
}

fn follow(pipe: impl Read + Send + 'static, mut each: impl FnMut(String) + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            let Ok(line) = line else { return };
            each(line);
        }
    })
}

/// Asks `url` for a 200 until it answers so; a child that ends meanwhile is a failure at once.
pub fn wait_for(process: &mut Process, address: &str, path: &str, within: Duration) {
    let until = Instant::now() + within;
    loop {
        if status(address, path) == Some(200) {
            return;
        }
        if let Some(status) = process.ended() {
            panic!("{} ended with {status}; its log:\n{}", process.name, process.stderr.text());
        }
        if Instant::now() > until {
            panic!("{} did not answer within {within:?}; its log:\n{}", process.name, process.stderr.text());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The status of a GET over a plain socket: no runtime, no client, usable everywhere.
pub fn status(address: &str, path: &str) -> Option<u16> {
    request(address, "GET", path)
}

/// The same for any method without a body.
pub fn request(address: &str, method: &str, path: &str) -> Option<u16> {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    line.split(' ').nth(1)?.parse().ok()
}
