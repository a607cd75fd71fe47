//! The sweeper as a function of its own: one pass for every event, whatever the event says.

use lambda_http::lambda_runtime::{self, Diagnostic, LambdaEvent, service_fn};
use serde_json::Value;

use super::{Error, MARGIN_PART, TIME_MAX};
use crate::sweeper::{Report, Sweeper};
use crate::types::error::describe;
use crate::types::time::{Clock, Deadline};

/// Sweeps for as long as there are events. They come at least once each, and a pass is harmless twice.
pub async fn run_sweeps(sweeper: Sweeper) -> Result<(), Error> {
    let sweeper = &sweeper;
    let handler = service_fn(|event: LambdaEvent<Value>| pass(sweeper, event.context.deadline));
    lambda_runtime::run(handler).await.map_err(Error::RuntimeApi)
}

/// One pass. What is not as it should be is an error of the function, so that its alarm tells.
async fn pass(sweeper: &Sweeper, deadline_ms: u64) -> Result<Report, Diagnostic> {
    // A visit that has begun takes its time; what is cut off is done by the next pass.
    let left = match deadline_ms.saturating_sub(Clock::system().local_ms()) {
        0 => TIME_MAX,
        left_ms => std::time::Duration::from_millis(left_ms),
    };
    let deadline = Deadline::after(left - left / MARGIN_PART);
    let failed = |error_type: &str, error_message: String| Diagnostic {
        error_type: error_type.to_owned(),
        error_message,
    };
    let report =
        sweeper.pass(Some(deadline)).await.map_err(|error| failed("SweepFailed", describe(&error)))?;
    report.log();
    if report.is_fine() { Ok(report) } else { Err(failed("SweepIncomplete", report.to_string())) }
}
