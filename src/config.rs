//! The only reader of flags and of the environment. Reports every bad value at once.
//!
//! Each flag has a variable as its twin; a flag wins over its variable. An empty value is a bad value: a store
//! that was meant to be named must not quietly become the default one.

use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser as _;

mod args;

use self::args::CommandLine;
use crate::store::{CredentialSource, S3Options, StoreUrl, UrlError};
use crate::telemetry::{self, LogFormat};
use crate::types::config::StorageClass;
use crate::types::limits::LOCATION_BYTES_MAX;

const STORE_FOLDER_DEFAULT: &str = "leat-data";

const FLUSH_MS: RangeInclusive<u64> = 0..=1_000;
const APPEND_TIMEOUT_MS: RangeInclusive<u64> = 100..=600_000;
const DRAIN_TIMEOUT_MS: RangeInclusive<u64> = 0..=600_000;

/// Everything a server process is told, checked.
#[derive(Debug)]
pub struct Config {
    /// Sockets and their end.
    pub server: ServerConfig,
    /// Where the bytes are.
    pub store: StoreConfig,
    /// How streams are written.
    pub engine: EngineConfig,
    /// What is logged, and how.
    pub log: LogConfig,
}

/// Sockets and their end.
#[derive(Debug)]
pub struct ServerConfig {
    /// `LEAT_LISTEN`, host and port; default `127.0.0.1:4437`. Port 0 asks the system for a free one.
    pub listen: String,
    /// `LEAT_TLS_CERT` and `LEAT_TLS_KEY`, both or none; default none: cleartext.
    pub tls: Option<TlsFiles>,
    /// `LEAT_DRAIN_TIMEOUT_MS`; default 10 s.
    pub drain_timeout: Duration,
    /// `LEAT_LOCATION`, what the store's one location is called; default `local`.
    pub location: String,
}

/// A certificate chain and its key, both in PEM.
#[derive(Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain, leaf first.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Where the bytes are.
#[derive(Debug)]
pub struct StoreConfig {
    /// `LEAT_STORE`; default the folder `leat-data` in the working directory.
    pub url: StoreUrl,
    /// What the standard `AWS_*` variables say; only an `s3://` store looks at it.
    pub s3: S3Options,
}

/// How streams are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// `LEAT_DEFAULT_STORAGE_CLASS`; default `standard`.
    pub default_storage_class: StorageClass,
    /// `LEAT_FLUSH_STANDARD_MS`; default 20 ms.
    pub flush_standard: Duration,
    /// `LEAT_FLUSH_EXPRESS_MS`; default 2 ms.
    pub flush_express: Duration,
    /// `LEAT_APPEND_TIMEOUT_MS`; default 4.5 s, just under the 5 s after which SDKs stop listening.
    pub append_timeout: Duration,
}

/// What is logged, and how.
#[derive(Debug)]
pub struct LogConfig {
    /// `LEAT_LOG_FORMAT`; default `text`.
    pub format: LogFormat,
    /// `LEAT_LOG`; default `info`. Known to be a legal filter.
    pub filter: String,
}

/// Looks a variable up.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Why a command line cannot be run, or need not be (`--help`, `--version`).
#[derive(Debug)]
pub enum UsageError {
    /// Unknown or unfinished flags; also help and version.
    CommandLine(Box<clap::Error>),
    /// Every bad value, one line each.
    Values(Vec<String>),
}

impl UsageError {
    /// 0 if help or version was asked for, else 2.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::CommandLine(error) if !error.use_stderr() => 0,
            Self::CommandLine(_) | Self::Values(_) => 2,
        }
    }

    /// Prints to stdout what was asked for, to stderr what is wrong.
    pub fn print(&self) -> io::Result<()> {
        match self {
            Self::CommandLine(error) => error.print(),
            Self::Values(lines) => {
                let mut stderr = io::stderr().lock();
                for line in lines {
                    writeln!(stderr, "error: {line}")?;
                }
                writeln!(stderr, "\nFor more information, try '--help'.")
            }
        }
    }
}

impl Config {
    /// Reads the flags and the environment of this process.
    pub fn from_process() -> Result<Self, UsageError> {
        let command_line =
            CommandLine::try_parse().map_err(|error| UsageError::CommandLine(Box::new(error)))?;
        #[allow(clippy::disallowed_methods, reason = "the one place that reads the environment")]
        let lookup = |name: &str| std::env::var(name).ok();
        let folder = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        Self::check(command_line, &folder, &lookup).map_err(UsageError::Values)
    }

    /// Checks every value; the error holds one line per bad one.
    fn check(command_line: CommandLine, folder: &Path, lookup: Lookup<'_>) -> Result<Self, Vec<String>> {
        let args = command_line.into_serve();
        let mut checker = Checker::default();
        let url = checker.store(args.store, folder);
        let config = Self {
            server: ServerConfig {
                listen: checker.address("--listen", args.listen),
                tls: checker.tls(args.tls_cert, args.tls_key),
                drain_timeout: checker.millis(
                    "--drain-timeout-ms",
                    &args.drain_timeout_ms,
                    &DRAIN_TIMEOUT_MS,
                ),
                location: checker.location(args.location),
            },
            store: StoreConfig { s3: checker.s3(&url, lookup), url },
            engine: EngineConfig {
                default_storage_class: checker.class(&args.default_storage_class),
                flush_standard: checker.millis("--flush-standard-ms", &args.flush_standard_ms, &FLUSH_MS),
                flush_express: checker.millis("--flush-express-ms", &args.flush_express_ms, &FLUSH_MS),
                append_timeout: checker.millis(
                    "--append-timeout-ms",
                    &args.append_timeout_ms,
                    &APPEND_TIMEOUT_MS,
                ),
            },
            log: LogConfig {
                format: checker.log_format(&args.log_format),
                filter: checker.log_filter(args.log),
            },
        };
        if checker.problems.is_empty() { Ok(config) } else { Err(checker.problems) }
    }
}

/// Gathers bad values; what it returns for one is never used, since the whole configuration is then refused.
#[derive(Debug, Default)]
struct Checker {
    problems: Vec<String>,
}

impl Checker {
    /// Names a bad value by its flag and by the variable that may have set it.
    fn refuse(&mut self, flag: &str, value: &str, wanted: &str) {
        let variable = flag.trim_start_matches('-').replace('-', "_").to_uppercase();
        self.problems.push(format!("{flag} (LEAT_{variable}) is `{value}`; it must be {wanted}"));
    }

    fn address(&mut self, flag: &str, text: String) -> String {
        let legal =
            text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if !legal {
            self.refuse(flag, &text, "an address and a port, such as 127.0.0.1:4437 or [::1]:4437");
        }
        text
    }

    fn tls(&mut self, cert: Option<String>, key: Option<String>) -> Option<TlsFiles> {
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

    fn store(&mut self, url: Option<String>, folder: &Path) -> StoreUrl {
        let url = url.unwrap_or_else(|| format!("file://{}", folder.join(STORE_FOLDER_DEFAULT).display()));
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

    /// Reads the standard variables, an empty one as unset. They matter, and may be wrong, for S3 only.
    fn s3(&mut self, url: &StoreUrl, lookup: Lookup<'_>) -> S3Options {
        if !url.to_string().starts_with("s3://") {
            return S3Options::default();
        }
        let get = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let options = S3Options {
            endpoint: get("AWS_ENDPOINT_URL_S3").or_else(|| get("AWS_ENDPOINT_URL")),
            region: get("AWS_REGION").or_else(|| get("AWS_DEFAULT_REGION")),
            access_key_id: get("AWS_ACCESS_KEY_ID"),
            secret_access_key: get("AWS_SECRET_ACCESS_KEY"),
            session_token: get("AWS_SESSION_TOKEN"),
            credentials: self.credentials(&get),
        };
        if options.access_key_id.is_some() != options.secret_access_key.is_some() {
            self.pair("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
        }
        if let Some(url) = &options.endpoint
            && !url.starts_with("http://")
            && !url.starts_with("https://")
        {
            let line = format!("AWS_ENDPOINT_URL is `{url}`; it must begin with http:// or https://");
            self.problems.push(line);
        }
        options
    }

    /// Where to ask for credentials, in the order the AWS tools look.
    fn credentials(&mut self, get: Lookup<'_>) -> CredentialSource {
        const TOKEN: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
        const ROLE: &str = "AWS_ROLE_ARN";
        const FULL_URI: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
        const POD_TOKEN: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
        match (get(TOKEN), get(ROLE)) {
            (Some(token_file), Some(role_arn)) => {
                return CredentialSource::WebIdentity { token_file, role_arn };
            }
            (Some(_), None) => self.pair(TOKEN, ROLE),
            // A role alone is something the AWS tools know from profiles, which Leat does not read.
            (None, _) => {}
        }
        if let Some(relative_uri) = get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
            return CredentialSource::Task { relative_uri };
        }
        match (get(FULL_URI), get(POD_TOKEN)) {
            (Some(full_uri), Some(token_file)) => return CredentialSource::Pod { full_uri, token_file },
            (None, None) => {}
            _ => self.pair(FULL_URI, POD_TOKEN),
        }
        CredentialSource::Instance
    }

    fn pair(&mut self, one: &str, other: &str) {
        self.problems.push(format!("{one} and {other} go together: set both or none"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: &[&str], variables: &[(&str, &str)]) -> Result<Config, Vec<String>> {
        let args = std::iter::once("leat").chain(args.iter().copied());
        let command_line = CommandLine::try_parse_from(args).expect("the flags are known");
        let lookup = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Config::check(command_line, Path::new("/somewhere/my data"), &lookup)
    }

    #[test]
    fn nothing_given_serves_the_local_folder() {
        let config = check(&[], &[]).expect("defaults are legal");
        assert_eq!(config.server.listen, "127.0.0.1:4437");
        assert_eq!(config.server.tls, None);
        assert_eq!(config.server.drain_timeout, Duration::from_secs(10));
        assert_eq!(config.store.url.to_string(), "file:///somewhere/my data/leat-data");
        assert_eq!(config.engine.default_storage_class, StorageClass::Standard);
        assert_eq!(config.engine.flush_standard, Duration::from_millis(20));
        assert_eq!(config.engine.flush_express, Duration::from_millis(2));
        assert_eq!(config.engine.append_timeout, Duration::from_millis(4_500));
        assert_eq!(config.log.format, LogFormat::Text);
        assert_eq!(config.log.filter, "info");
    }

    #[test]
    fn the_role_may_be_named_or_left_out() {
        for args in [&["serve", "--listen", "[::1]:0"][..], &["--listen", "[::1]:0"][..]] {
            assert_eq!(check(args, &[]).expect("legal").server.listen, "[::1]:0");
        }
    }

    #[test]
    fn every_bad_value_is_named_at_once() {
        let args = [
            "--listen=4437",
            "--default-storage-class=fast",
            "--log-format=xml",
            "--log=leat=loud",
            "--flush-standard-ms=1001",
            "--flush-express-ms=-1",
            "--append-timeout-ms=99",
            "--drain-timeout-ms=soon",
            "--tls-cert=a.pem",
            "--store=gs://bucket",
        ];
        let problems = check(&args, &[]).expect_err("all are bad");
        assert_eq!(problems.len(), args.len(), "{problems:#?}");
        for (flag, variable) in [
            ("--listen", "LEAT_LISTEN"),
            ("--log-format", "LEAT_LOG_FORMAT"),
            ("--default-storage-class", "LEAT_DEFAULT_STORAGE_CLASS"),
            ("--store", "LEAT_STORE"),
        ] {
            assert!(problems.iter().any(|line| line.contains(flag) && line.contains(variable)), "{flag}");
        }
        assert!(problems.iter().any(|line| line.contains("`standard` or `express`")));
        assert!(problems.iter().any(|line| line.contains("from 0 to 1000")));
        assert!(problems.iter().any(|line| line.contains("s3://bucket[/prefix]")));
    }

    #[test]
    fn an_empty_store_is_refused_rather_than_replaced_by_the_default() {
        assert!(check(&["--store="], &[]).is_err());
        assert!(check(&["--store=s3://"], &[]).is_err());
        assert!(check(&["--store=file://relative"], &[]).is_err());
    }

    #[test]
    fn the_aws_variables_are_read_and_kept_secret() {
        let variables = [
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "hush"),
            ("AWS_SESSION_TOKEN", ""),
            ("AWS_DEFAULT_REGION", "eu-central-1"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
            ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:2"),
        ];
        let config = check(&["--store=s3://bucket/prefix"], &variables).expect("legal");
        let s3 = &config.store.s3;
        assert_eq!(s3.secret_access_key.as_deref(), Some("hush"));
        assert_eq!(s3.session_token, None);
        assert_eq!(s3.region.as_deref(), Some("eu-central-1"));
        assert_eq!(s3.endpoint.as_deref(), Some("http://127.0.0.1:2"));
        assert!(matches!(s3.credentials, CredentialSource::Instance));
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    fn credentials_are_asked_for_where_aws_puts_them() {
        let source = |variables: &[(&str, &str)]| {
            check(&["--store=s3://bucket"], variables).map(|config| config.store.s3.credentials)
        };
        let web = ("AWS_WEB_IDENTITY_TOKEN_FILE", "token");
        let role = ("AWS_ROLE_ARN", "role");
        let task = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2");
        let pod = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1");
        let pod_token = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "token");
        assert!(matches!(source(&[]), Ok(CredentialSource::Instance)));
        assert!(matches!(source(&[web, role, task]), Ok(CredentialSource::WebIdentity { .. })));
        assert!(matches!(source(&[task, pod, pod_token]), Ok(CredentialSource::Task { .. })));
        assert!(matches!(source(&[pod, pod_token]), Ok(CredentialSource::Pod { .. })));
        assert!(source(&[web]).is_err_and(|lines| lines.iter().any(|line| line.contains("AWS_ROLE_ARN"))));
        assert!(source(&[pod]).is_err());
    }

    #[test]
    fn half_a_set_of_credentials_is_refused_for_a_bucket_only() {
        let variables = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_ENDPOINT_URL", "localhost:9000")];
        assert_eq!(check(&["--store=s3://bucket"], &variables).expect_err("both are bad").len(), 2);
        assert!(check(&["--store=memory:"], &variables).is_ok());
    }

    #[test]
    fn credentials_in_the_url_are_refused_and_not_repeated() {
        let problems = check(&["--store=s3://id:hush@bucket"], &[]).expect_err("refused");
        assert!(problems.iter().all(|line| !line.contains("hush")), "{problems:?}");
    }
}
