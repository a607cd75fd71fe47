//! The HTTP client under `object_store`: one for all handles of a bucket, and one that keeps the date of an answer.
//!
//! One client is one pool: what a read connected, a conditional write finds open, and trust is set up once.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

use crate::types::time::http_date_ms;

/// The store's clock when it answered, in milliseconds since the Unix epoch: what `Date` said. The library hands
/// the extensions of an answer through, but not its headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnsweredMs(pub(super) u64);

/// Connects once; whoever asks again, with the same options, gets the same client.
#[derive(Clone, Debug, Default)]
pub(super) struct Dated(Arc<OnceLock<HttpClient>>);

impl HttpConnector for Dated {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        if let Some(client) = self.0.get() {
            return Ok(client.clone());
        }
        let client = HttpClient::new(Service(ReqwestConnector::default().connect(options)?));
        Ok(self.0.get_or_init(|| client).clone())
    }
}

#[derive(Debug)]
struct Service(HttpClient);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut response = self.0.execute(request).await?;
        let date = response.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        if let Some(date_ms) = date.and_then(http_date_ms) {
            response.extensions_mut().insert(AnsweredMs(date_ms));
        }
        Ok(response)
    }
}
