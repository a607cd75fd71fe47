//! S3, and what speaks its protocol.

use std::sync::Arc;
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_types::SdkConfig;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use super::Store;
use super::aws::{DEFAULT_REGION, s3_endpoint};
use super::credentials::CredentialCache;
use super::dated::Dated;
use super::object::{Dates, ListOrder, ObjectBackend, Parts};
use crate::types::time::Clock;

/// Until a connection stands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Until a request is answered whole; long enough for the largest chunk over a slow line.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Kept shorter than S3 keeps idle connections: a write on one that was just closed has no clear answer.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Retries of a request that may be repeated.
const RETRIES_MAX: usize = 6;
/// No retry begins later than this after the first attempt.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);
/// What AWS ends the names of directory buckets with.
const DIRECTORY_BUCKET_SUFFIX: &str = "--x-s3";

/// How to reach S3. Whatever is `None` takes its default.
#[derive(Clone, Debug, Default)]
pub struct S3Options {
    /// Address of a compatible server, `http://` or `https://`; also turns on path-style requests. Default: AWS.
    pub endpoint: Option<String>,
    /// Default: `us-east-1`.
    pub region: Option<String>,
    /// What requests are signed with. Default: nothing, and a bucket is not opened.
    pub credentials: Option<SharedCredentialsProvider>,
}

impl S3Options {
    /// What the AWS SDK found out about where we run.
    #[must_use]
    pub fn new(config: &SdkConfig) -> Self {
        Self {
            endpoint: s3_endpoint(config),
            region: config.region().map(ToString::to_string),
            credentials: config.credentials_provider(),
        }
    }

    /// A compatible server and a key of it.
    #[must_use]
    pub fn at(endpoint: &str, key_id: &str, secret_key: &str) -> Self {
        let key = Credentials::builder().access_key_id(key_id).secret_access_key(secret_key);
        Self {
            endpoint: Some(endpoint.to_owned()),
            region: None,
            credentials: Some(SharedCredentialsProvider::new(key.provider_name("fixed").build())),
        }
    }

    /// Where requests go, as the record of a probe names it.
    pub(super) fn place(&self) -> String {
        let region = self.region.as_deref().unwrap_or(DEFAULT_REGION);
        self.endpoint.clone().unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"))
    }
}

/// Why there is no store to talk to.
#[derive(Debug, thiserror::Error)]
pub enum S3Error {
    /// Neither of the two forms.
    #[error("the S3 endpoint `{endpoint}` is neither `http://host[:port]` nor `https://host[:port]`")]
    Endpoint {
        /// What was given.
        endpoint: String,
    },
    /// The options contradict each other.
    #[error("cannot talk to bucket `{bucket}`: {source}")]
    Options {
        /// Whose.
        bucket: String,
        /// What is wrong.
        #[source]
        source: object_store::Error,
    },
    /// Nobody said what to sign requests with.
    #[error("cannot talk to bucket `{bucket}`: there are no credentials")]
    NoCredentials {
        /// Whose.
        bucket: String,
    },
}

/// A bucket. Nothing is sent yet: whether it exists and keeps its word is for the probe to find out.
pub(super) fn s3(bucket: &str, options: &S3Options) -> Result<Arc<dyn Store>, S3Error> {
    // One crypto stack in the process; whoever came first installed the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Some(provider) = options.credentials.clone() else {
        return Err(S3Error::NoCredentials { bucket: bucket.to_owned() });
    };
    let shared = Shared {
        credentials: Arc::new(CredentialCache::new(provider, Clock::system())),
        connector: Dated::default(),
    };
    let patient = Arc::new(build(bucket, options, &shared, retry_patiently())?);
    let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let once = Arc::new(build(bucket, options, &shared, once)?);
    let order =
        if bucket.ends_with(DIRECTORY_BUCKET_SUFFIX) { ListOrder::Unordered } else { ListOrder::Bytes };
    Ok(Arc::new(ObjectBackend::new(Parts {
        place: format!("bucket `{bucket}`"),
        patient: patient.clone(),
        once,
        pages: patient,
        order,
        dates: Dates::OfAnswers,
    })))
}

/// What the two handles of a bucket have in common.
struct Shared {
    credentials: Arc<CredentialCache>,
    connector: Dated,
}

fn build(
    bucket: &str,
    options: &S3Options,
    shared: &Shared,
    retry: RetryConfig,
) -> Result<AmazonS3, S3Error> {
    let client = ClientOptions::new()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_timeout(REQUEST_TIMEOUT)
        .with_pool_idle_timeout(POOL_IDLE_TIMEOUT);
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(options.region.as_deref().unwrap_or(DEFAULT_REGION))
        .with_retry(retry)
        .with_credentials(shared.credentials.clone())
        .with_http_connector(shared.connector.clone())
        // One DELETE a key: some compatible stores lack the bulk call.
        .with_disable_bulk_delete(true)
        .with_s3_express(bucket.ends_with(DIRECTORY_BUCKET_SUFFIX) && options.endpoint.is_none())
        // A dot in the name would not match the certificate of the host.
        .with_virtual_hosted_style_request(options.endpoint.is_none() && !bucket.contains('.'));
    builder = match options.endpoint.as_deref() {
        None => builder.with_client_options(client),
        Some(endpoint) => {
            let plain = endpoint.starts_with("http://");
            if !plain && !endpoint.starts_with("https://") {
                return Err(S3Error::Endpoint { endpoint: endpoint.to_owned() });
            }
            builder.with_endpoint(endpoint).with_client_options(client.with_allow_http(plain))
        }
    };
    builder.build().map_err(|source| S3Error::Options { bucket: bucket.to_owned(), source })
}

fn retry_patiently() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(3),
            base: 2.0,
        },
        max_retries: RETRIES_MAX,
        retry_timeout: RETRY_TIMEOUT,
    }
}
