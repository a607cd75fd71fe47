//! One method per kind of value: what it may be, and the line that says what is wrong with it.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::args::{CommonArgs, ServiceArgs};
use super::{EngineConfig, LogConfig, Lookup, ReportFormat, Responses, ServiceConfig, StoreConfig, TlsFiles};
use crate::api::RootToken;
use crate::secret::AuthConfig;
use crate::store::{StoreUrl, UrlError};
use crate::telemetry::{self, LogFormat};
use crate::types::config::StorageClass;
use crate::types::limits::LOCATION_BYTES_MAX;
use crate::types::name::{BasinName, BucketName, InvalidName, PlaceName, StreamName};

const STORE_FOLDER_DEFAULT: &str = "leat-data";

const FLUSH_MS: RangeInclusive<u64> = 0..=1_000;
const APPEND_TIMEOUT_MS: RangeInclusive<u64> = 100..=600_000;
const LONG_POLL_MS: RangeInclusive<u64> = 100..=20_000;
const SWEEP_INTERVAL_MS: RangeInclusive<u64> = 1_000..=86_400_000;
const SWEEP_VISITS: RangeInclusive<usize> = 1..=1_000_000;
const DRAIN_TIMEOUT_MS: RangeInclusive<u64> = 0..=600_000;

/// The memory of a function.
const LAMBDA_MEMORY: &str = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE";
/// What the runtime client cannot do without.
const LAMBDA_VARIABLES: [&str; 4] =
    ["AWS_LAMBDA_RUNTIME_API", "AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_FUNCTION_VERSION", LAMBDA_MEMORY];

/// The end of what is said when a token is needed.
const NO_TOKEN: &str = "but there is no root token: \
    set LEAT_ROOT_TOKEN, --root-token-file or --root-token-secret";

/// Gathers bad values; what it returns for one is never used, since the whole configuration is then refused.
pub(super) struct Checker<'a> {
    folder: &'a Path,
    lookup: Lookup<'a>,
    problems: Vec<String>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(folder: &'a Path, lookup: Lookup<'a>) -> Self {
        Self { folder, lookup, problems: Vec::new() }
    }

    /// The configuration, or every line about a bad value.
    pub(super) fn finish<T>(self, config: T) -> Result<T, Vec<String>> {
        if self.problems.is_empty() { Ok(config) } else { Err(self.problems) }
    }

    /// Notes something that is wrong.
    pub(super) fn problem(&mut self, line: impl Into<String>) {
        self.problems.push(line.into());
    }

    /// What every role is told.
    pub(super) fn common(&mut self, args: CommonArgs) -> (StoreConfig, LogConfig) {
        let url = self.store(args.store);
        self.aws(&url);
        let store = StoreConfig { url };
        let log = LogConfig { format: self.log_format(&args.log_format), filter: self.log_filter(args.log) };
        (store, log)
    }

    /// What every role that answers requests is told; `open` is who may call if nothing is said about that.
    pub(super) fn service(&mut self, args: ServiceArgs, open: Option<AuthConfig>) -> ServiceConfig {
        let token = self.token(args.root_token_file, args.root_token_secret);
        ServiceConfig {
            location: self.location(args.location),
            engine: EngineConfig {
                default_storage_class: self.class(&args.default_storage_class),
                flush_standard: self.millis("--flush-standard-ms", &args.flush_standard_ms, &FLUSH_MS),
                flush_express: self.millis("--flush-express-ms", &args.flush_express_ms, &FLUSH_MS),
                append_timeout: self.millis(
                    "--append-timeout-ms",
                    &args.append_timeout_ms,
                    &APPEND_TIMEOUT_MS,
                ),
            },
            long_poll: self.millis("--long-poll-ms", &args.long_poll_ms, &LONG_POLL_MS),
            auth: self.auth(args.auth.as_deref(), token, open),
        }
    }

    /// The root token from the one place that names it.
    fn token(&mut self, file: Option<String>, secret: Option<String>) -> Option<AuthConfig> {
        // Not a flag: those can be read by every user of the machine.
        let text = (self.lookup)("LEAT_ROOT_TOKEN");
        if [text.is_some(), file.is_some(), secret.is_some()].into_iter().filter(|given| *given).count() > 1 {
            self.problem(
                "LEAT_ROOT_TOKEN, --root-token-file and --root-token-secret exclude each other: name one",
            );
        }
        if let Some(text) = text {
            return match RootToken::new(&text) {
                Ok(token) => Some(AuthConfig::Token(token)),
                Err(error) => {
                    self.problem(format!("LEAT_ROOT_TOKEN: {error}"));
                    Some(AuthConfig::Open)
                }
            };
        }
        for (flag, value) in [("--root-token-file", &file), ("--root-token-secret", &secret)] {
            if value.as_deref() == Some("") {
                self.refuse(flag, "", "the place of a token, or left out");
            }
        }
        file.map(|file| AuthConfig::TokenFile(file.into())).or(secret.map(AuthConfig::TokenSecret))
    }

    fn auth(
        &mut self,
        mode: Option<&str>,
        token: Option<AuthConfig>,
        open: Option<AuthConfig>,
    ) -> AuthConfig {
        match (mode, token) {
            (None | Some("token"), Some(token)) => return token,
            (Some("none"), None) => return AuthConfig::Open,
            (Some("none"), Some(_)) => {
                self.problem(
                    "--auth (LEAT_AUTH) is `none`, but a root token is given: leave out one of them",
                );
            }
            (Some("token"), None) => self.problem(format!("--auth (LEAT_AUTH) is `token`, {NO_TOKEN}")),
            (None, None) => match open {
                Some(open) => return open,
                None => self.problem(format!(
                    "whoever reaches this process could do everything, {NO_TOKEN}, or say --auth none"
                )),
            },
            (Some(other), _) => self.refuse("--auth", other, "`token` or `none`"),
        }
        AuthConfig::Open
    }

    pub(super) fn responses(&mut self, text: &str) -> Responses {
        match text {
            "stream" => Responses::Stream,
            "buffer" => Responses::Buffer,
            other => {
                self.refuse("--responses", other, "`stream` or `buffer`");
                Responses::Buffer
            }
        }
    }

    pub(super) fn report_format(&mut self, text: &str) -> ReportFormat {
        match text {
            "text" => ReportFormat::Text,
            "json" => ReportFormat::Json,
            other => {
                self.refuse("--format", other, "`text` or `json`");
                ReportFormat::Text
            }
        }
    }

    pub(super) fn place(&mut self, text: Option<&str>, is_bucket: bool) -> Option<PlaceName> {
        let place = match (text, is_bucket) {
            (None, false) => return None,
            (None, true) => Err(InvalidName("--bucket must be followed by the name of a bucket".to_owned())),
            (Some(text), false) => BasinName::try_from(text).map(PlaceName::Basin),
            (Some(text), true) => BucketName::try_from(text).map(PlaceName::Bucket),
        };
        let field = if is_bucket { "BUCKET" } else { "BASIN" };
        place.map_err(|error| self.problem(format!("{field}: {error}"))).ok()
    }

    pub(super) fn stream(&mut self, text: Option<&str>) -> Option<StreamName> {
        StreamName::try_from(text?).map_err(|error| self.problem(format!("STREAM: {error}"))).ok()
    }

    pub(super) fn sweep_interval(&mut self, text: &str) -> Option<Duration> {
        (text != "0").then(|| self.millis("--sweep-interval-ms", text, &SWEEP_INTERVAL_MS))
    }

    pub(super) fn visits_max(&mut self, text: &str) -> usize {
        let visits = text.parse().ok().filter(|visits| SWEEP_VISITS.contains(visits));
        visits.unwrap_or_else(|| {
            self.problem(format!(
                "--visits-max (LEAT_SWEEP_VISITS_MAX) is `{text}`; it must be a number of streams from 1 to 1000000"
            ));
            1
        })
    }

    /// What the environment of a function says: how many requests it is handed at a time.
    pub(super) fn lambda_environment(&mut self) -> u32 {
        for name in LAMBDA_VARIABLES {
            if (self.lookup)(name).is_none() {
                self.problem(format!("{name} is not set: `leat lambda` runs inside AWS Lambda only"));
            }
        }
        if let Some(text) = (self.lookup)(LAMBDA_MEMORY)
            && text.parse::<u16>().is_err()
        {
            self.problem(format!("{LAMBDA_MEMORY} is `{text}`; it must be a number of megabytes"));
        }
        let at_once = (self.lookup)("AWS_LAMBDA_MAX_CONCURRENCY").and_then(|text| text.parse().ok());
        at_once.unwrap_or(1).max(1)
    }

    pub(super) fn drain_timeout(&mut self, text: &str) -> Duration {
        self.millis("--drain-timeout-ms", text, &DRAIN_TIMEOUT_MS)
    }

    /// Names a bad value by its flag and by the variable that may have set it.
    fn refuse(&mut self, flag: &str, value: &str, wanted: &str) {
        let variable = flag.trim_start_matches('-').replace('-', "_").to_uppercase();
        self.problems.push(format!("{flag} (LEAT_{variable}) is `{value}`; it must be {wanted}"));
    }

    pub(super) fn address(&mut self, flag: &str, text: String) -> String {
        let legal =
            text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if !legal {
            self.refuse(flag, &text, "an address and a port, such as 127.0.0.1:4437 or [::1]:4437");
        }
        text
    }

    pub(super) fn tls(&mut self, cert: Option<String>, key: Option<String>) -> Option<TlsFiles> {
        match (cert, key) {
            (None, None) => None,
            (Some(cert), Some(key)) if !cert.is_empty() && !key.is_empty() => {
                Some(TlsFiles { cert: cert.into(), key: key.into() })
            }
            _ => {
                let text =
                    "--tls-cert (LEAT_TLS_CERT) and --tls-key (LEAT_TLS_KEY) go together: name both files";
                self.problems.push(text.to_owned());
                None
            }
        }
    }

    fn millis(&mut self, flag: &str, text: &str, range: &RangeInclusive<u64>) -> Duration {
        let millis = text.parse::<u64>().ok().filter(|millis| range.contains(millis));
        if millis.is_none() {
            let wanted = format!("a number of milliseconds from {} to {}", range.start(), range.end());
            self.refuse(flag, text, &wanted);
        }
        Duration::from_millis(millis.unwrap_or_default())
    }

    fn class(&mut self, text: &str) -> StorageClass {
        StorageClass::parse(text).unwrap_or_else(|| {
            self.refuse("--default-storage-class", text, "`standard` or `express`");
            StorageClass::default()
        })
    }

    fn location(&mut self, text: String) -> String {
        let is_legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b':' | b'.' | b'-');
        if !(1..=LOCATION_BYTES_MAX).contains(&text.len()) || !text.bytes().all(is_legal) {
            self.refuse("--location", &text, "1 to 64 letters, digits, `:`, `.` or `-`");
        }
        text
    }

    fn log_format(&mut self, text: &str) -> LogFormat {
        LogFormat::parse(text).unwrap_or_else(|| {
            self.refuse("--log-format", text, "`text` or `json`");
            LogFormat::default()
        })
    }

    fn log_filter(&mut self, text: String) -> String {
        if !telemetry::is_filter(&text) {
            self.refuse(
                "--log",
                &text,
                "a level (off, error, warn, info, debug, trace) or module=level pairs",
            );
        }
        text
    }

    fn store(&mut self, url: Option<String>) -> StoreUrl {
        let url =
            url.unwrap_or_else(|| format!("file://{}", self.folder.join(STORE_FOLDER_DEFAULT).display()));
        let refused = if url.strip_prefix("s3://").is_some_and(|rest| rest.contains('@')) {
            // Said without repeating them.
            "credentials do not belong in it, but in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".to_owned()
        } else {
            match url.parse() {
                Ok(url) => return url,
                Err(error) => UrlError::to_string(&error),
            }
        };
        self.problems.push(format!("--store (LEAT_STORE): {refused}"));
        "memory:".parse().expect("it is one of the forms")
    }

    /// Names what the AWS SDK would pass over in silence. It matters, and may be wrong, for S3 only.
    fn aws(&mut self, url: &StoreUrl) {
        if url.bucket().is_none() {
            return;
        }
        let lookup = self.lookup;
        // An empty variable is an unset one, as for the SDK.
        let get = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let together = [
            ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
            ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
            // A role alone belongs to a profile.
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
        ];
        for (name, other) in together {
            if get(name).is_some() && get(other).is_none() {
                self.problem(format!("{name} is set, but {other} is not: set both or none"));
            }
        }
        for name in ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"] {
            let Some(endpoint) = get(name) else { continue };
            if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
                self.problem(format!("{name} is `{endpoint}`; it must begin with http:// or https://"));
            }
        }
    }
}
