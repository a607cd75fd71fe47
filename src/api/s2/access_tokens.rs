//! Access tokens: not part of this release.

use super::error::{Code, Error};

/// Every call.
pub(super) async fn unavailable() -> Error {
    Error::new(Code::NotImplemented, "access tokens are not available in this release")
}
