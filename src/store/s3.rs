//! S3, and what speaks its protocol.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use super::Store;
use super::object::{ListOrder, ObjectBackend, Parts};

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
/// Region of a store that does not care.
const DEFAULT_REGION: &str = "us-east-1";

/// How to reach S3. Whatever is `None` takes its default.
#[derive(Clone, Default)]
pub struct S3Options {
    /// Address of a compatible server, `http://` or `https://`; also turns on path-style requests. Default: AWS.
    pub endpoint: Option<String>,
    /// Default: `us-east-1`.
    pub region: Option<String>,
    /// Default: what `credentials` leads to.
    pub access_key_id: Option<String>,
    /// Given together with the access key.
    pub secret_access_key: Option<String>,
    /// Of temporary credentials.
    pub session_token: Option<String>,
    /// Where to get credentials from if no access key is given.
    pub credentials: CredentialSource,
}

/// Where AWS puts the credentials of the machine we run on.
#[derive(Clone, Debug, Default)]
pub enum CredentialSource {
    /// The metadata service of the virtual machine.
    #[default]
    Instance,
    /// A task of ECS (`AWS_CONTAINER_CREDENTIALS_RELATIVE_URI`).
    Task {
        /// The path to ask.
        relative_uri: String,
    },
    /// A pod of EKS with pod identity (`AWS_CONTAINER_CREDENTIALS_FULL_URI`, `AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE`).
    Pod {
        /// The address to ask.
        full_uri: String,
        /// The file with the token to ask with.
        token_file: String,
    },
    /// A role assumed with a token (`AWS_WEB_IDENTITY_TOKEN_FILE`, `AWS_ROLE_ARN`).
    WebIdentity {
        /// The file with the token.
        token_file: String,
        /// The role.
        role_arn: String,
    },
}

impl fmt::Debug for S3Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Secrets stay out of logs.
        f.debug_struct("S3Options")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("access_key_id", &self.access_key_id)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
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
}

/// A bucket. Nothing is sent yet: whether it exists and keeps its word is for the probe to find out.
pub(super) fn s3(bucket: &str, options: &S3Options) -> Result<Arc<dyn Store>, S3Error> {
    // One crypto stack in the process; whoever came first installed the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let patient = Arc::new(build(bucket, options, retry_patiently())?);
    let once = Arc::new(build(bucket, options, RetryConfig { max_retries: 0, ..RetryConfig::default() })?);
    let order =
        if bucket.ends_with(DIRECTORY_BUCKET_SUFFIX) { ListOrder::Unordered } else { ListOrder::Bytes };
    Ok(Arc::new(ObjectBackend::new(Parts {
        place: format!("bucket `{bucket}`"),
        patient: patient.clone(),
        once,
        pages: patient,
        order,
    })))
}

fn build(bucket: &str, options: &S3Options, retry: RetryConfig) -> Result<AmazonS3, S3Error> {
    let client = ClientOptions::new()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_timeout(REQUEST_TIMEOUT)
        .with_pool_idle_timeout(POOL_IDLE_TIMEOUT);
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(options.region.as_deref().unwrap_or(DEFAULT_REGION))
        .with_retry(retry)
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
    for (key, value) in credentials(options) {
        builder = builder.with_config(key, value);
    }
    builder.build().map_err(|source| S3Error::Options { bucket: bucket.to_owned(), source })
}

fn credentials(options: &S3Options) -> Vec<(AmazonS3ConfigKey, &str)> {
    use AmazonS3ConfigKey as Key;
    let given = [
        (Key::AccessKeyId, options.access_key_id.as_deref()),
        (Key::SecretAccessKey, options.secret_access_key.as_deref()),
        (Key::Token, options.session_token.as_deref()),
    ];
    let mut found: Vec<_> = given.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    match &options.credentials {
        CredentialSource::Instance => {}
        CredentialSource::Task { relative_uri } => {
            found.push((Key::ContainerCredentialsRelativeUri, relative_uri));
        }
        CredentialSource::Pod { full_uri, token_file } => {
            found.push((Key::ContainerCredentialsFullUri, full_uri));
            found.push((Key::ContainerAuthorizationTokenFile, token_file));
        }
        CredentialSource::WebIdentity { token_file, role_arn } => {
            found.push((Key::WebIdentityTokenFile, token_file));
            found.push((Key::RoleArn, role_arn));
        }
    }
    found
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
