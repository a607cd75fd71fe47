//! Picks the role, builds the parts, runs them: the only composition root.
//!
//! Exit codes: 0 after an orderly end, 1 if the server could not start or was cut short, 2 for bad usage.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leat::api::{self, ApiOptions, Auth};
use leat::config::{Config, EngineConfig, LambdaConfig, Role, ServeConfig, StoreConfig, UsageError};
use leat::engine;
use leat::lambda;
use leat::secret;
use leat::serve::{self, Ended, Ending, TlsConfig};
use leat::service::{Options, Service};
use leat::storage::key;
use leat::store::{self, Metered, Store};
use leat::telemetry;
use leat::types::time::{Clock, Deadline};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;

/// How often the metrics recorder folds its samples into buckets.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);

/// For a slow store to answer the probe's dozens of requests.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);

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
    serve::install_crypto();
    match config.role {
        Role::Serve(serve) => run_server(serve, &config.store).await,
        Role::Lambda(lambda) => run_lambda(lambda, &config.store).await,
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
    let service = open(store, &clock, config.service.engine).await?;
    let open = matches!(auth, Auth::Open);
    let options = ApiOptions {
        metrics: Some(metrics.clone()),
        draining: drained,
        clock,
        location: config.service.location,
        auth,
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
    // A deletion that does not finish in time goes on with the next DELETE.
    if tokio::time::timeout(config.drain_timeout, service.finish()).await.is_err() {
        tracing::warn!("the deletion of a basin is left unfinished");
    }
    upkeep.abort();
    Ok(ended)
}

/// No listener, no banner, no metrics: an environment comes and goes, and nobody could ask it in particular.
async fn run_lambda(config: LambdaConfig, store: &StoreConfig) -> Result<Ended, BoxError> {
    let clock = Clock::system();
    let auth = async { secret::load(config.service.auth).await.map_err(BoxError::from) };
    let (auth, service) = tokio::try_join!(auth, open(store, &clock, config.service.engine))?;
    let options =
        ApiOptions { clock: clock.clone(), location: config.service.location, auth, ..ApiOptions::default() };
    let app = api::router(service.clone(), options);
    let LambdaConfig { responses, requests_at_once, .. } = config;
    lambda::run(app, service, clock, lambda::Options { responses, requests_at_once }).await?;
    Ok(Ended::Drained)
}

/// The service on a store that is one of ours, or becomes one.
async fn open(store: &StoreConfig, clock: &Clock, config: EngineConfig) -> Result<Service, BoxError> {
    let service = service(open_store(store, clock).await?, clock.clone(), config);
    let record = service.open_store().await?;
    tracing::debug!(store_id = %record.id, "opened");
    Ok(service)
}

/// Opens the store and makes sure that it keeps its word.
async fn open_store(config: &StoreConfig, clock: &Clock) -> Result<Arc<dyn Store>, BoxError> {
    let store = Arc::new(Metered::new(store::open(&config.url, &config.s3)?));
    let probed = store::probe(&*store, &key::random_hex(), Deadline::after(PROBE_TIMEOUT)).await?;
    clock.observe_store_ms(probed.store_ms);
    tracing::info!(store = %config.url, offset_ms = clock.offset_ms(), "the store keeps its word");
    Ok(store)
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
