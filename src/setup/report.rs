//! What a set-up did or would do: one line a step, for people or for programs.

use std::fmt;
use std::io::{self, Write};

use serde::Serialize;

use crate::config::ReportFormat;

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// Nothing to do.
    Fine,
    /// Something was changed.
    Done,
    /// Something would be, but for the dry run.
    WouldDo,
    /// The step does not apply, or the store has nothing of the kind.
    Skipped,
    /// The step failed, or somebody must put something right.
    Failed,
}

impl Outcome {
    /// As people read it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Done => "done",
            Self::WouldDo => "would",
            Self::Skipped => "skip",
            Self::Failed => "FAILED",
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    step: &'a str,
    outcome: Outcome,
    what: &'a str,
}

/// Where the lines go, and what they come to.
pub(super) struct Report {
    out: Box<dyn Write + Send>,
    format: ReportFormat,
    changes: usize,
    intents: usize,
    failures: usize,
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { out: _, format, changes, intents, failures } = self;
        let mut shown = f.debug_struct("Report");
        shown.field("format", format).field("changes", changes).field("intents", intents);
        shown.field("failures", failures).finish_non_exhaustive()
    }
}

impl Report {
    /// An empty one.
    #[must_use]
    pub(super) fn new(out: Box<dyn Write + Send>, format: ReportFormat) -> Self {
        Self { out, format, changes: 0, intents: 0, failures: 0 }
    }

    /// Tells of one step, at once.
    pub(super) fn step(&mut self, step: &str, outcome: Outcome, what: &str) -> io::Result<()> {
        match outcome {
            Outcome::Done => self.changes += 1,
            Outcome::WouldDo => self.intents += 1,
            Outcome::Failed => self.failures += 1,
            Outcome::Fine | Outcome::Skipped => {}
        }
        self.line(step, outcome, what)
    }

    /// Whether nothing failed so far.
    #[must_use]
    pub(super) fn is_good(&self) -> bool {
        self.failures == 0
    }

    /// Sums up; whether all is well.
    pub(super) fn end(mut self) -> io::Result<bool> {
        let good = self.is_good();
        let (outcome, what) = match (self.failures, self.changes, self.intents) {
            (0, 0, 0) => (Outcome::Fine, "nothing changed: everything was set up already".to_owned()),
            (0, 0, intents) => (Outcome::WouldDo, format!("nothing changed; steps to be done: {intents}")),
            (0, changes, _) => {
                (Outcome::Done, format!("the store is set up; steps that changed something: {changes}"))
            }
            (failures, ..) => {
                (Outcome::Failed, format!("the store is not set up; steps to put right: {failures}"))
            }
        };
        self.line("setup", outcome, &what)?;
        self.out.flush()?;
        Ok(good)
    }

    fn line(&mut self, step: &str, outcome: Outcome, what: &str) -> io::Result<()> {
        match self.format {
            ReportFormat::Text => writeln!(self.out, "{:<7}{step:<15}{what}", outcome.as_str()),
            ReportFormat::Json => {
                let line = serde_json::to_string(&Line { step, outcome, what }).map_err(io::Error::other)?;
                writeln!(self.out, "{line}")
            }
        }
    }
}
