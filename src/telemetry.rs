//! Names of metrics, and the set-up of logs and of the metrics recorder.
//!
//! | metric | kind | labels | meaning |
//! |---|---|---|---|
//! | `leat_http_requests_total` | counter | `route`, `method`, `code` | answers |
//! | `leat_http_request_duration_seconds` | histogram | `route`, `method`, `code` | until the answer's head |
//! | `leat_store_requests_total` | counter | `operation`, `outcome` | requests to the store: they are the bill |
//! | `leat_store_request_duration_seconds` | histogram | `operation` | until the store's answer |
//! | `leat_commits_total` | counter | `outcome` | `committed`, `conflict`, `indefinite`, `failed` |
//! | `leat_commit_batches` | histogram | | batches in one commit |
//! | `leat_commit_records` | histogram | | records in one commit |
//! | `leat_sweep_lag_seconds` | gauge | | how long the oldest work of the last sweep had been due |
//! | `leat_sweep_objects_removed_total` | counter | | objects that sweeps of this process removed |
//! | `leat_sweep_failures_total` | counter | | visits that failed and are tried again |
//! | `leat_cache_requests_total` | counter | `cache`, `result` | `manifest`, `basin`, `page`, `chunk`; `hit` or `miss` |

use std::io;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

/// See the table above.
pub const HTTP_REQUESTS: &str = "leat_http_requests_total";
/// See the table above.
pub const HTTP_REQUEST_DURATION: &str = "leat_http_request_duration_seconds";
/// See the table above.
pub const STORE_REQUESTS: &str = "leat_store_requests_total";
/// See the table above.
pub const STORE_REQUEST_DURATION: &str = "leat_store_request_duration_seconds";
/// See the table above.
pub const COMMITS: &str = "leat_commits_total";
/// See the table above.
pub const COMMIT_BATCHES: &str = "leat_commit_batches";
/// See the table above.
pub const COMMIT_RECORDS: &str = "leat_commit_records";
/// See the table above.
pub const SWEEP_LAG: &str = "leat_sweep_lag_seconds";
/// See the table above.
pub const SWEEP_OBJECTS_REMOVED: &str = "leat_sweep_objects_removed_total";
/// See the table above.
pub const SWEEP_FAILURES: &str = "leat_sweep_failures_total";
/// See the table above.
pub const CACHE_REQUESTS: &str = "leat_cache_requests_total";

/// Counts a look into a cache.
pub fn count_cache(cache: &'static str, hit: bool) {
    metrics::counter!(CACHE_REQUESTS, "cache" => cache, "result" => if hit { "hit" } else { "miss" })
        .increment(1);
}

/// Upper bounds of the buckets of durations, in seconds: from a memory store to a deadline.
const BUCKETS_SECONDS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Upper bounds of the buckets of counts per commit.
const BUCKETS_COUNTS: [f64; 13] =
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_000.0, 4_000.0, 16_000.0];

/// Form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per event.
    Json,
}

impl LogFormat {
    /// Reads the name used on the command line.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// Why logs or metrics could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {part}")]
pub struct Error {
    /// `the log` or `the metrics`.
    part: &'static str,
    /// What the library said.
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// Whether `filter` is one that [`start_log`] takes.
#[must_use]
pub fn is_filter(filter: &str) -> bool {
    !filter.trim().is_empty() && EnvFilter::builder().parse(filter).is_ok()
}

/// Starts the log on stderr; once per process.
pub fn start_log(format: LogFormat, filter: &str) -> Result<(), Error> {
    let failed = |source| Error { part: "the log", source };
    let filter = EnvFilter::builder().parse(filter).map_err(|source| failed(source.into()))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match format {
        LogFormat::Text => {
            let colours = io::IsTerminal::is_terminal(&io::stderr());
            builder.with_ansi(colours).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    }
    .map_err(failed)
}

/// Starts the metrics recorder, once per process; the handle renders them.
///
/// Whoever holds the handle calls `run_upkeep` now and then, or the samples between two renderings pile up.
pub fn start_metrics() -> Result<PrometheusHandle, Error> {
    builder()
        .and_then(|builder| builder.install_recorder())
        .map_err(|source| Error { part: "the metrics", source: source.into() })
}

fn builder() -> Result<PrometheusBuilder, metrics_exporter_prometheus::BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(HTTP_REQUEST_DURATION.to_owned()), &BUCKETS_SECONDS)?
        .set_buckets_for_metric(Matcher::Full(STORE_REQUEST_DURATION.to_owned()), &BUCKETS_SECONDS)?
        .set_buckets_for_metric(Matcher::Full(COMMIT_BATCHES.to_owned()), &BUCKETS_COUNTS)?
        .set_buckets_for_metric(Matcher::Full(COMMIT_RECORDS.to_owned()), &BUCKETS_COUNTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_rendered_in_buckets() {
        let recorder = builder().expect("the buckets are legal").build_recorder();
        metrics::with_local_recorder(&recorder, || {
            metrics::histogram!(STORE_REQUEST_DURATION, "operation" => "get").record(0.03);
            count_cache("page", true);
        });
        let text = recorder.handle().render();
        let bucket = r#"leat_store_request_duration_seconds_bucket{operation="get",le="0.035"} 1"#;
        assert!(text.contains(bucket), "{text}");
        assert!(text.contains(r#"leat_cache_requests_total{cache="page",result="hit"} 1"#), "{text}");
    }

    #[test]
    fn a_filter_is_a_level_or_levels_by_module() {
        for legal in ["info", "off", "info,leat::engine=debug", "warn,hyper=error"] {
            assert!(is_filter(legal), "{legal}");
        }
        for illegal in ["", " ", "leat=loud"] {
            assert!(!is_filter(illegal), "{illegal}");
        }
    }
}
