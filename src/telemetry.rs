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
//! | `leat_cache_requests_total` | counter | `cache`, `result` | `manifest`, `basin`, `page`, `chunk`; `hit` or `miss` |

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
pub const CACHE_REQUESTS: &str = "leat_cache_requests_total";

/// Counts a look into a cache.
pub fn count_cache(cache: &'static str, hit: bool) {
    metrics::counter!(CACHE_REQUESTS, "cache" => cache, "result" => if hit { "hit" } else { "miss" })
        .increment(1);
}
