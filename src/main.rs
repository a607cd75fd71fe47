//! Picks the role, builds the parts, runs them: the only composition root.
//!
//! Exit codes: 0 after an orderly end, 1 if the process could not do its work or was cut short, 2 for bad usage.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leat::api::{self, ApiOptions, Auth};
use leat::config::{
    Config, EngineConfig, InspectConfig, LambdaConfig, ReportFormat, Role, ServeConfig, SetupConfig,
    StoreConfig, SweepConfig, UsageError,
};
use leat::engine;
use leat::inspect::Inspector;
use leat::lambda;
use leat::secret;
use leat::serve::{self, Ended, Ending, TlsConfig};
use leat::service::{Options, Service};
use leat::setup::Setup;
use leat::storage::opening::{self, Opened, Trust};
use leat::store::{self, Metered, S3Options, Store};
use leat::sweeper::{self, Sweeper};
use leat::telemetry;
use leat::types::error::describe;
use leat::types::time::Clock;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

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
    outcome.unwrap_or_else(|error| fail(&describe(&*error)))
}

async fn run(config: Config) -> Result<ExitCode, BoxError> {
    telemetry::start_log(config.log.format, &config.log.filter)?;
    serve::install_crypto();
    match config.role {
        Role::Serve(serve) => run_server(serve, &config.store).await.map(|ended| match ended {
            Ended::Drained => ExitCode::SUCCESS,
            Ended::TimedOut(connections) => {
                fail(&format!("{connections} connections did not finish in time"))
            }
            Ended::Interrupted(connections) => {
                fail(&format!("stopped at once, {connections} connections open"))
            }
        }),
        Role::Lambda(lambda) => Box::pin(run_lambda(lambda, &config.store)).await,
        Role::Setup(setup) => run_setup(setup, &config.store).await,
        Role::Sweep(sweep) => run_sweep(sweep, &config.store).await,
        Role::Inspect(inspect) => run_inspect(&inspect, &config.store).await,
        Role::SweepFunction(sweep) => run_sweep_function(sweep, &config.store).await,
    }
}

async fn run_server(config: ServeConfig, store: &StoreConfig) -> Result<Ended, BoxError> {
    let metrics = telemetry::start_metrics()?;
    let stop = serve::signals()?;
    let tls = config.tls.map(|files| TlsConfig::load(&files.cert, &files.key)).transpose()?;
    let auth = secret::load(config.service.auth).await?;

    let (drain, drained) = watch::channel(false);
    let clock = Clock::system();
    let url = store.url.to_string();
    let (store, _) = open(store, Trust::Probe, &clock).await?;
    let service = service(store.clone(), clock.clone(), config.service.engine);
    let sweeps = config.sweep_interval.map(|interval| {
        let sweeper = Sweeper::new(store, service.clone(), clock.clone(), sweeper::Options::default());
        tokio::spawn(async move { sweeper.run(interval).await })
    });
    let open = matches!(auth, Auth::Open);
    let options = ApiOptions {
        metrics: Some(metrics.clone()),
        draining: drained,
        clock,
        location: config.service.location,
        auth,
        scheme: if tls.is_some() { "https" } else { "http" },
        long_poll: config.service.long_poll,
        ..ApiOptions::default()
    };
    let app = api::router(service.clone(), options);
    let listener = serve::listen(&config.listen).await?;
    let banner = serve::banner(listener.local_addr()?, tls.is_some(), &url, open);
    io::stdout().write_all(banner.as_bytes())?;
    io::stdout().flush()?;

    let upkeep = tokio::spawn(keep_up(metrics));
    let ending = Ending { stop, drain, drain_timeout: config.drain_timeout };
    let ended = serve::run(listener, app, tls, ending).await;
    // A sweep may be cut off anywhere.
    sweeps.inspect(JoinHandle::abort);
    // A deletion that does not finish in time goes on with the next DELETE.
    if tokio::time::timeout(config.drain_timeout, service.finish()).await.is_err() {
        tracing::warn!("the deletion of a basin is left unfinished");
    }
    upkeep.abort();
    Ok(ended)
}

/// No listener, no banner, no metrics: an environment comes and goes, and nobody could ask it in particular.
async fn run_lambda(config: LambdaConfig, store: &StoreConfig) -> Result<ExitCode, BoxError> {
    let clock = Clock::system();
    let auth = async { secret::load(config.service.auth).await.map_err(BoxError::from) };
    // A cold start has no time for a probe that somebody has made already.
    let open = Box::pin(open(store, Trust::Record, &clock));
    let (auth, (store, _)) = tokio::try_join!(Box::pin(auth), open)?;
    let service = service(store, clock.clone(), config.service.engine);
    let options = ApiOptions {
        clock: clock.clone(),
        location: config.service.location,
        auth,
        scheme: "https",
        long_poll: config.service.long_poll,
        ..ApiOptions::default()
    };
    let app = api::router(service.clone(), options);
    let LambdaConfig { responses, requests_at_once, .. } = config;
    lambda::run(app, service, clock, lambda::Options { responses, requests_at_once }).await?;
    Ok(ExitCode::SUCCESS)
}

async fn run_sweep_function(config: SweepConfig, store: &StoreConfig) -> Result<ExitCode, BoxError> {
    lambda::run_sweeps(sweeper(config, store).await?).await?;
    Ok(ExitCode::SUCCESS)
}

async fn run_setup(config: SetupConfig, store: &StoreConfig) -> Result<ExitCode, BoxError> {
    let mut setup = Setup::new(&store.url, config, Box::new(io::stdout())).await;
    setup.bucket().await?;
    if setup.wants_probe()? {
        let opened = open(store, Trust::Probe, &Clock::system()).await;
        setup.probed(opened.map(|(_, opened)| opened))?;
    }
    Ok(if setup.end()? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run_sweep(config: SweepConfig, store: &StoreConfig) -> Result<ExitCode, BoxError> {
    let done = sweeper(config, store).await?.pass(None).await?;
    report(config.format, &done)?;
    Ok(if done.is_fine() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run_inspect(config: &InspectConfig, store: &StoreConfig) -> Result<ExitCode, BoxError> {
    let (place, stream) = (config.place.as_ref(), config.stream.as_ref());
    // A look changes nothing, so the store need not keep its word.
    let (store, _) = connect(store).await?;
    let inspector = Inspector::new(store, Clock::system().now_ms());
    if config.verify {
        let verified = inspector.verify(place, stream).await?;
        report(config.format, &verified)?;
        return Ok(if verified.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    report(config.format, &inspector.view(place, stream).await?)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a report to stdout.
fn report<R: std::fmt::Display + serde::Serialize>(format: ReportFormat, report: &R) -> io::Result<()> {
    let text = match format {
        ReportFormat::Text => report.to_string(),
        ReportFormat::Json => serde_json::to_string(report)? + "\n",
    };
    io::stdout().write_all(text.as_bytes())
}

async fn sweeper(config: SweepConfig, store: &StoreConfig) -> Result<Sweeper, BoxError> {
    let clock = Clock::system();
    let (store, _) = open(store, Trust::Record, &clock).await?;
    let service = Service::new(store.clone(), clock.clone(), Options::default());
    let SweepConfig { dry_run, visits_max, .. } = config;
    let options = sweeper::Options { dry_run, visits_max, ..sweeper::Options::default() };
    Ok(Sweeper::new(store, service, clock, options))
}

/// Opens the store and makes sure that it keeps its word, or did when somebody last looked.
async fn open(
    config: &StoreConfig,
    trust: Trust,
    clock: &Clock,
) -> Result<(Arc<dyn Store>, Opened), BoxError> {
    let (store, place) = connect(config).await?;
    let opened = opening::open(&*store, &place, trust, clock).await?;
    tracing::info!(
        store = %config.url,
        store_id = %opened.record.id,
        offset_ms = clock.offset_ms(),
        probed = opened.trust == Trust::Probe,
        "the store keeps its word"
    );
    Ok((store, opened))
}

/// The way to the store, and the place it leads to; nothing is sent yet.
async fn connect(config: &StoreConfig) -> Result<(Arc<dyn Store>, String), BoxError> {
    let options = match config.url.bucket() {
        Some(_) => S3Options::new(&store::sdk_config().await),
        None => S3Options::default(),
    };
    let store = Arc::new(Metered::new(store::open(&config.url, &options)?));
    Ok((store, config.url.place(&options)))
}

/// The service on its store, as the operator set it.
fn service(store: Arc<dyn Store>, clock: Clock, config: EngineConfig) -> Service {
    let engine = engine::Options {
        flush_standard: config.flush_standard,
        flush_express: config.flush_express,
        write_timeout: config.append_timeout,
        ..engine::Options::default()
    };
    let default_storage_class = config.default_storage_class;
    Service::new(store, clock, Options { default_storage_class, engine })
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
