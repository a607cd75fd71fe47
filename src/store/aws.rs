//! What the AWS SDK knows of where we run: credentials, region, endpoints. The one place that asks it.

use std::time::Duration;

use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::imds::region::ImdsRegionProvider;
use aws_config::meta::region::ProvideRegion as _;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, ConfigLoader, Region, SdkConfig};
use aws_smithy_http_client::tls;
use aws_types::sdk_config::SharedHttpClient;
use aws_types::service_config::ServiceConfigKey;
use tokio::sync::OnceCell;

/// Region of a store that does not care, and of AWS if nobody names one.
pub(super) const DEFAULT_REGION: &str = "us-east-1";
/// Until a call is answered, its retries included.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Until one attempt is.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Credentials, region and endpoints as the AWS tools find them: in variables, in profiles, with a web identity, in
/// a container, on an instance. Read once per process; credentials are asked for when first needed.
///
/// The region is always set.
pub async fn sdk_config() -> SdkConfig {
    static LOADED: OnceCell<SdkConfig> = OnceCell::const_new();
    LOADED.get_or_init(load).await.clone()
}

async fn load() -> SdkConfig {
    let region = match named_region().await {
        Some(region) => region,
        None => unnamed_region().await.unwrap_or_else(|| Region::from_static(DEFAULT_REGION)),
    };
    loader().region(region).load().await
}

/// The region that a variable or a profile names; an empty one names none.
async fn named_region() -> Option<Region> {
    let is_named = |region: &Region| !region.as_ref().is_empty();
    match EnvironmentVariableRegionProvider::new().region().await.filter(is_named) {
        Some(region) => Some(region),
        None => ProfileFileRegionProvider::new().region().await.filter(is_named),
    }
}

/// The region of the instance. Asked only if nothing else tells where S3 is: where there is no metadata service,
/// that takes seconds.
async fn unnamed_region() -> Option<Region> {
    // Credentials would make the SDK ask for the region by itself.
    let config = loader().region(None::<Region>).no_credentials().load().await;
    if s3_endpoint(&config).is_some() {
        return None;
    }
    let config = ProviderConfig::default().with_http_client(http_client());
    ImdsRegionProvider::builder().configure(&config).build().region().await
}

/// On the one TLS stack of this process.
fn loader() -> ConfigLoader {
    let timeouts = TimeoutConfig::builder()
        .operation_timeout(CALL_TIMEOUT)
        .operation_attempt_timeout(ATTEMPT_TIMEOUT)
        .build();
    aws_config::defaults(BehaviorVersion::latest()).http_client(http_client()).timeout_config(timeouts)
}

fn http_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
        .build_https()
}

/// The endpoint for S3, if one is named: `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, or what a profile says.
pub(super) fn s3_endpoint(config: &SdkConfig) -> Option<String> {
    let key = ServiceConfigKey::builder().service_id("s3").env("AWS_ENDPOINT_URL").profile("endpoint_url");
    let key = key.build().expect("all three parts are given");
    let of_service = config.service_config().and_then(|services| services.load_config(key));
    // An empty variable is an unset one.
    let of_service = of_service.filter(|endpoint| !endpoint.is_empty());
    of_service.or_else(|| config.endpoint_url().map(str::to_owned))
}
