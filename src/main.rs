//! Picks the role, builds the parts, runs them: the only composition root.
//!
//! Exit codes: 0 after an orderly end, 1 if the server could not start or was cut short, 2 for bad usage.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use leat::config::{Config, EngineConfig, StoreConfig, UsageError};
use leat::serve::{self, Ended, Ending, TlsConfig};
use leat::telemetry;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;

/// How often the metrics recorder folds its samples into buckets.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);

type BoxError = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let config = match Config::from_process() {
        Ok(config) => config,
        Err(error) => return usage(&error),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(config)),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(Ended::Drained) => ExitCode::SUCCESS,
        Ok(Ended::TimedOut(connections)) => {
            fail(&format!("{connections} connections did not finish in time"))
        }
        Ok(Ended::Interrupted(connections)) => {
            fail(&format!("stopped at once, {connections} connections open"))
        }
        Err(error) => fail(&describe(&*error)),
    }
}

async fn run(config: Config) -> Result<Ended, BoxError> {
    telemetry::start_log(config.log.format, &config.log.filter)?;
    let metrics = telemetry::start_metrics()?;
    serve::install_crypto();
    let stop = serve::signals()?;
    let tls = config.server.tls.map(|files| TlsConfig::load(&files.cert, &files.key)).transpose()?;

    let (drain, drained) = watch::channel(false);
    let app = build(&config.store, config.engine, metrics.clone(), drained).await?;
    let listener = serve::listen(&config.server.listen).await?;
    let banner = serve::banner(listener.local_addr()?, tls.is_some(), &config.store.url);
    io::stdout().write_all(banner.as_bytes())?;
    io::stdout().flush()?;

    let upkeep = tokio::spawn(keep_up(metrics));
    let ending = Ending { stop, drain, drain_timeout: config.server.drain_timeout };
    let ended = serve::run(listener, app, tls, ending).await;
    upkeep.abort();
    Ok(ended)
}

/// Opens and probes the store, and stacks engine, service and router on it.
///
/// INTEGRATION: the one function to complete once those parts are in the crate:
/// `store::open(&store.url, settings from store.aws)` → probe → engine with `engine` → `Service` →
/// `api::router(service, ApiOptions { metrics: Some(metrics), drain: drained })`.
async fn build(
    _store: &StoreConfig,
    _engine: EngineConfig,
    _metrics: PrometheusHandle,
    _drained: watch::Receiver<bool>,
) -> Result<Router, BoxError> {
    Ok(Router::new().route("/health", axum::routing::get(|| async { "OK" })))
}

async fn keep_up(metrics: PrometheusHandle) {
    let mut ticks = tokio::time::interval(METRICS_UPKEEP);
    loop {
        ticks.tick().await;
        metrics.run_upkeep();
    }
}

fn usage(error: &UsageError) -> ExitCode {
    // With the terminal gone there is nobody left to tell.
    drop(error.print());
    ExitCode::from(error.exit_code())
}

fn fail(line: &str) -> ExitCode {
    drop(writeln!(io::stderr(), "error: {line}"));
    ExitCode::FAILURE
}

/// The error and what lies under it, on one line.
fn describe(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut under = error.source();
    while let Some(source) = under {
        line.push_str(": ");
        line.push_str(&source.to_string());
        under = source.source();
    }
    line
}
