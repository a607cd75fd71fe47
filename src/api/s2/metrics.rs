//! Metric sets: not part of this release.

use super::error::{Code, Error};

/// Every call.
pub(super) async fn unavailable() -> Error {
    Error::new(Code::NotImplemented, "metric sets are not available in this release")
}
