//! Waiting at the end of what is there.

use std::time::Duration;

use super::error::Result;
use crate::api::terms::{Terms, ended};
use crate::api::{Api, drained};
use crate::service::durable::Reader;

/// Waits for messages or the end; whether there is any of it. Goes no further than the request's own end, nor than
/// that of the server.
pub(super) async fn wait(
    (api, terms): (&Api, Option<Terms>),
    reader: &mut Reader,
    longest: Duration,
) -> Result<bool> {
    let mut draining = api.options.draining.clone();
    tokio::select! {
        biased;
        news = reader.wait(longest) => Ok(news?),
        () = drained(&mut draining) => Ok(false),
        () = ended(terms) => Ok(false),
    }
}
