//! The only reader of flags and of the environment. Reports every bad value at once.
//!
//! Each flag has a variable as its twin; a flag wins over its variable. An empty value is a bad value: a store
//! that was meant to be named must not quietly become the default one.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser as _;

mod args;
mod check;

use self::args::{CommandLine, InspectArgs, LambdaArgs, RoleArgs, ServeArgs, SetupArgs, SweepArgs};
use self::check::Checker;
use crate::secret::AuthConfig;
use crate::store::StoreUrl;
use crate::telemetry::LogFormat;
use crate::types::config::StorageClass;
use crate::types::name::{PlaceName, StreamName};

/// Everything a process is told, checked.
#[derive(Debug)]
pub struct Config {
    /// What it does.
    pub role: Role,
    /// Where the bytes are.
    pub store: StoreConfig,
    /// What is logged, and how.
    pub log: LogConfig,
}

/// What a process does, and what it is told for that.
#[derive(Debug)]
pub enum Role {
    /// `leat serve`, or no subcommand.
    Serve(ServeConfig),
    /// `leat lambda`, or no subcommand inside a Lambda environment.
    Lambda(LambdaConfig),
    /// `leat setup`.
    Setup(SetupConfig),
    /// `leat sweep`.
    Sweep(SweepConfig),
    /// `leat inspect`.
    Inspect(InspectConfig),
    /// No subcommand inside a Lambda environment whose `LEAT_ROLE` is `sweep`: a sweep for every event.
    SweepFunction(SweepConfig),
}

/// A server.
#[derive(Debug)]
pub struct ServeConfig {
    /// `LEAT_LISTEN`, host and port; default `127.0.0.1:4437`. Port 0 asks the system for a free one.
    pub listen: String,
    /// `LEAT_TLS_CERT` and `LEAT_TLS_KEY`, both or none; default none: cleartext.
    pub tls: Option<TlsFiles>,
    /// `LEAT_SWEEP_INTERVAL_MS`; default 10 min, `None` for never.
    pub sweep_interval: Option<Duration>,
    /// `LEAT_DRAIN_TIMEOUT_MS`; default 10 s.
    pub drain_timeout: Duration,
    /// What it shares with the function.
    pub service: ServiceConfig,
}

/// A Lambda function.
#[derive(Debug)]
pub struct LambdaConfig {
    /// `LEAT_RESPONSES`; default `stream`.
    pub responses: Responses,
    /// `AWS_LAMBDA_MAX_CONCURRENCY`: requests that one environment is handed at a time; 1 if it is not set.
    pub requests_at_once: u32,
    /// What it shares with the server.
    pub service: ServiceConfig,
}

/// How a front that can do either takes answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Responses {
    /// As they are made: a Function URL with `RESPONSE_STREAM`, a REST API with response transfer mode `STREAM`.
    Stream,
    /// Whole, and at most 6 MB long.
    Buffer,
}

/// The set-up of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetupConfig {
    /// `--dry-run`: look, and say what would be done.
    pub dry_run: bool,
    /// `LEAT_FORMAT`; default `text`.
    pub format: ReportFormat,
}

/// A sweep of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepConfig {
    /// `--dry-run`: look, and say what would be done.
    pub dry_run: bool,
    /// `LEAT_SWEEP_VISITS_MAX`; default 10,000.
    pub visits_max: usize,
    /// `LEAT_FORMAT`; default `text`.
    pub format: ReportFormat,
}

/// A look into a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectConfig {
    /// Which basin, or which bucket with `--bucket`; default the store.
    pub place: Option<PlaceName>,
    /// Which stream of it; default all of them.
    pub stream: Option<StreamName>,
    /// `--verify`: read everything, and tell what is wrong.
    pub verify: bool,
    /// `LEAT_FORMAT`; default `text`.
    pub format: ReportFormat,
}

/// Form of what a command reports on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What every role that answers requests is told.
#[derive(Debug)]
pub struct ServiceConfig {
    /// `LEAT_LOCATION`, what the store's one location is called; default `local`.
    pub location: String,
    /// How streams are written.
    pub engine: EngineConfig,
    /// `LEAT_LONG_POLL_MS`; default 20 s, under the 29 s after which some fronts give up.
    pub long_poll: Duration,
    /// Who may call.
    pub auth: AuthConfig,
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
        Self::check(command_line, &folder, &lookup)
    }

    /// Checks every value; the error holds one line per bad one.
    fn check(command_line: CommandLine, folder: &Path, lookup: Lookup<'_>) -> Result<Self, UsageError> {
        let mut checker = Checker::new(folder, lookup);
        let config = match command_line.role {
            Some(RoleArgs::Serve(args)) => serve(&mut checker, args),
            Some(RoleArgs::Lambda(args)) => lambda(&mut checker, args),
            Some(RoleArgs::Setup(args)) => setup(&mut checker, args),
            Some(RoleArgs::Sweep(args)) => sweep(&mut checker, args, Role::Sweep),
            Some(RoleArgs::Inspect(args)) => inspect(&mut checker, args),
            // One artifact for every function: the environment tells that this is one, and which.
            None if lookup("AWS_LAMBDA_RUNTIME_API").is_some() => match lookup("LEAT_ROLE").as_deref() {
                None | Some("lambda") => lambda(&mut checker, unnamed()?),
                Some("sweep") => sweep(&mut checker, unnamed()?, Role::SweepFunction),
                Some(other) => {
                    checker.problem(format!("LEAT_ROLE is `{other}`; it must be `lambda` or `sweep`"));
                    lambda(&mut checker, unnamed()?)
                }
            },
            None => serve(&mut checker, command_line.serve),
        };
        checker.finish(config).map_err(UsageError::Values)
    }
}

fn serve(checker: &mut Checker<'_>, args: ServeArgs) -> Config {
    let listen = checker.address("--listen", args.listen);
    let open = is_loopback(&listen).then_some(AuthConfig::Open);
    let (store, log) = checker.common(args.common);
    let config = ServeConfig {
        listen,
        tls: checker.tls(args.tls_cert, args.tls_key),
        sweep_interval: checker.sweep_interval(&args.sweep_interval_ms),
        drain_timeout: checker.drain_timeout(&args.drain_timeout_ms),
        service: checker.service(args.service, open),
    };
    Config { role: Role::Serve(config), store, log }
}

fn lambda(checker: &mut Checker<'_>, args: LambdaArgs) -> Config {
    let (store, log) = checker.common(args.common);
    let config = LambdaConfig {
        responses: checker.responses(&args.responses),
        requests_at_once: checker.lambda_environment(),
        service: checker.service(args.service, None),
    };
    Config { role: Role::Lambda(config), store, log }
}

fn setup(checker: &mut Checker<'_>, args: SetupArgs) -> Config {
    let (store, log) = checker.common(args.common);
    let config = SetupConfig { dry_run: args.dry_run, format: checker.report_format(&args.format) };
    Config { role: Role::Setup(config), store, log }
}

fn sweep(checker: &mut Checker<'_>, args: SweepArgs, role: fn(SweepConfig) -> Role) -> Config {
    let (store, log) = checker.common(args.common);
    let config = SweepConfig {
        dry_run: args.dry_run,
        visits_max: checker.visits_max(&args.visits_max),
        format: checker.report_format(&args.format),
    };
    Config { role: role(config), store, log }
}

fn inspect(checker: &mut Checker<'_>, args: InspectArgs) -> Config {
    let (store, log) = checker.common(args.common);
    let config = InspectConfig {
        place: checker.place(args.place.as_deref(), args.bucket),
        stream: checker.stream(args.stream.as_deref()),
        verify: args.verify,
        format: checker.report_format(&args.format),
    };
    Config { role: Role::Inspect(config), store, log }
}

/// The flags of a role that no command line names.
fn unnamed<A: clap::Args>() -> Result<A, UsageError> {
    args::from_environment().map_err(|error| UsageError::CommandLine(Box::new(error)))
}

/// Whether only this machine reaches the address, `host:port`.
fn is_loopback(address: &str) -> bool {
    // What is no address is refused for that alone.
    let Some((host, _)) = address.rsplit_once(':') else { return true };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::name::{BasinName, BucketName};

    /// What AWS sets for every function.
    const FUNCTION: [(&str, &str); 4] = [
        ("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001"),
        ("AWS_LAMBDA_FUNCTION_NAME", "leat"),
        ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512"),
    ];

    fn check(args: &[&str], variables: &[(&str, &str)]) -> Result<Config, Vec<String>> {
        let args = std::iter::once("leat").chain(args.iter().copied());
        let command_line = CommandLine::try_parse_from(args).expect("the flags are known");
        let lookup = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        match Config::check(command_line, Path::new("/somewhere/my data"), &lookup) {
            Ok(config) => Ok(config),
            Err(UsageError::Values(lines)) => Err(lines),
            Err(UsageError::CommandLine(error)) => panic!("{error}"),
        }
    }

    fn serve(args: &[&str], variables: &[(&str, &str)]) -> ServeConfig {
        match check(args, variables).expect("legal").role {
            Role::Serve(config) => config,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_given_serves_the_local_folder() {
        let server = serve(&[], &[]);
        assert_eq!(server.listen, "127.0.0.1:4437");
        assert_eq!(server.tls, None);
        assert_eq!(server.drain_timeout, Duration::from_secs(10));
        assert!(matches!(server.service.auth, AuthConfig::Open));
        let engine = server.service.engine;
        let config = check(&[], &[]).expect("legal");
        assert_eq!(config.store.url.to_string(), "file:///somewhere/my data/leat-data");
        assert_eq!(engine.default_storage_class, StorageClass::Standard);
        assert_eq!(engine.flush_standard, Duration::from_millis(20));
        assert_eq!(engine.flush_express, Duration::from_millis(2));
        assert_eq!(engine.append_timeout, Duration::from_millis(4_500));
        assert_eq!(config.log.format, LogFormat::Text);
        assert_eq!(config.log.filter, "info");
    }

    #[test]
    fn the_role_may_be_named_or_left_out() {
        for args in [&["serve", "--listen", "[::1]:0"][..], &["--listen", "[::1]:0"][..]] {
            assert_eq!(serve(args, &[]).listen, "[::1]:0");
        }
    }

    #[test]
    fn inside_a_lambda_environment_the_role_is_lambda() {
        let inside = FUNCTION[0];
        let token = ("LEAT_ROOT_TOKEN", "0123456789abcdef");
        let role = |args: &[&str], variables: &[(&str, &str)]| {
            check(args, &[&FUNCTION[1..], variables].concat()).map(|config| config.role)
        };
        let Ok(Role::Lambda(config)) = role(&[], &[inside, token]) else { panic!("it is no function") };
        assert_eq!((config.responses, config.requests_at_once), (Responses::Stream, 1));
        for (many, expected) in [("8", 8), ("1", 1), ("0", 1), ("many", 1)] {
            let many = ("AWS_LAMBDA_MAX_CONCURRENCY", many);
            let Ok(Role::Lambda(config)) = role(&[], &[inside, token, many]) else { panic!("{many:?}") };
            assert_eq!(config.requests_at_once, expected, "{many:?}");
        }
        assert!(matches!(role(&["lambda"], &[inside, token]), Ok(Role::Lambda(_))));
        assert!(role(&["lambda"], &[token]).is_err_and(|lines| lines[0].contains("AWS_LAMBDA_RUNTIME_API")));
        assert!(matches!(role(&["serve"], &[inside]), Ok(Role::Serve(_))));
        assert!(matches!(role(&[], &[inside, token, ("LEAT_ROLE", "lambda")]), Ok(Role::Lambda(_))));
        assert!(
            role(&[], &[inside, token, ("LEAT_ROLE", "cook")])
                .is_err_and(|lines| lines[0].contains("`cook`"))
        );
        assert!(
            role(&["lambda", "--responses=fax"], &[inside, token])
                .is_err_and(|lines| lines[0].contains("`fax`"))
        );
    }

    #[test]
    fn a_sweep_is_bounded_and_may_be_dry() {
        let Ok(Role::Sweep(config)) = check(&["sweep"], &[]).map(|config| config.role) else { panic!() };
        assert_eq!((config.dry_run, config.visits_max, config.format), (false, 10_000, ReportFormat::Text));
        let args = ["sweep", "--dry-run", "--visits-max=5", "--format=json"];
        let Ok(Role::Sweep(config)) = check(&args, &[]).map(|config| config.role) else { panic!() };
        assert_eq!((config.dry_run, config.visits_max, config.format), (true, 5, ReportFormat::Json));
        for bad in ["--visits-max=0", "--visits-max=1000001", "--visits-max=all", "--format=xml"] {
            assert!(check(&["sweep", bad], &[]).is_err(), "{bad}");
        }
        let inside = [("AWS_LAMBDA_RUNTIME_API", "x"), ("LEAT_ROLE", "sweep")];
        let role = check(&[], &inside).map(|config| config.role);
        assert!(matches!(role, Ok(Role::SweepFunction(_))), "{role:?}");
        assert_eq!(serve(&[], &[]).sweep_interval, Some(Duration::from_secs(600)));
        assert_eq!(serve(&["--sweep-interval-ms=0"], &[]).sweep_interval, None);
        for bad in ["999", "86400001", "often"] {
            assert!(check(&[&format!("--sweep-interval-ms={bad}")], &[]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_look_is_at_the_store_a_basin_or_a_stream() {
        let look = |args: &[&str]| match check(args, &[]).map(|config| config.role) {
            Ok(Role::Inspect(config)) => Ok(config),
            Ok(other) => panic!("{other:?}"),
            Err(lines) => Err(lines),
        };
        assert_eq!(look(&["inspect"]).map(|config| (config.place, config.verify)), Ok((None, false)));
        let config = look(&["inspect", "demo-basin", "a/b", "--verify", "--format=json"]).expect("legal");
        assert_eq!(config.place, BasinName::try_from("demo-basin").map(PlaceName::Basin).ok());
        assert_eq!(config.stream, StreamName::try_from("a/b").ok());
        assert!(config.verify && config.format == ReportFormat::Json);
        let bad = look(&["inspect", "Demo", ".."]).expect_err("neither is a name");
        assert_eq!(bad.len(), 2, "{bad:?}");
        let config = look(&["inspect", "--bucket", "some_bucket", "a/b"]).expect("legal");
        assert_eq!(config.place, BucketName::try_from("some_bucket").map(PlaceName::Bucket).ok());
        assert_eq!(look(&["inspect", "some_bucket"]).expect_err("no basin").len(), 1);
        assert_eq!(look(&["inspect", "--bucket"]).expect_err("which?").len(), 1);
    }

    #[test]
    fn nobody_gets_in_by_default_but_from_this_machine() {
        let token = ("LEAT_ROOT_TOKEN", "0123456789abcdef");
        let auth = |args: &[&str], variables: &[(&str, &str)]| {
            let function = if args.contains(&"lambda") { &FUNCTION[..] } else { &[] };
            check(args, &[function, variables].concat()).map(|config| match config.role {
                Role::Serve(config) => config.service.auth,
                Role::Lambda(config) => config.service.auth,
                other => panic!("{other:?}"),
            })
        };
        for local in
            ["--listen=127.0.0.1:0", "--listen=127.1.2.3:0", "--listen=[::1]:0", "--listen=localhost:0"]
        {
            assert!(matches!(auth(&[local], &[]), Ok(AuthConfig::Open)), "{local}");
            assert!(matches!(auth(&[local], &[token]), Ok(AuthConfig::Token(_))), "{local}");
            assert!(auth(&[local, "--auth=token"], &[]).is_err(), "{local}");
        }
        for open in
            [&["--listen=0.0.0.0:0"][..], &["--listen=[::]:0"], &["--listen=leat.example:0"], &["lambda"]]
        {
            let said = auth(open, &[]).expect_err("nobody may come in");
            assert!(said[0].contains("LEAT_ROOT_TOKEN") && said[0].contains("--auth none"), "{said:?}");
            assert!(matches!(auth(open, &[token]), Ok(AuthConfig::Token(_))));
            let told: Vec<_> = open.iter().copied().chain(["--auth=none"]).collect();
            assert!(matches!(auth(&told, &[]), Ok(AuthConfig::Open)));
            assert!(auth(&told, &[token]).is_err(), "one of the two is a mistake");
        }
        assert!(matches!(auth(&["--root-token-file=t"], &[]), Ok(AuthConfig::TokenFile(_))));
        assert!(matches!(auth(&["--root-token-secret=t"], &[]), Ok(AuthConfig::TokenSecret(_))));
        for bad in [
            &["--root-token-file=t", "--root-token-secret=t"][..],
            &["--root-token-file="],
            &["--auth=maybe"],
        ] {
            assert!(auth(bad, &[]).is_err(), "{bad:?}");
        }
        let said = auth(&[], &[("LEAT_ROOT_TOKEN", "too short")]).expect_err("refused");
        assert!(said[0].contains("LEAT_ROOT_TOKEN") && !said[0].contains("too short"), "{said:?}");
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
    fn a_setup_is_told_whether_to_act() {
        let setup = |args: &[&str]| check(args, &[]).map(|config| config.role);
        let Ok(Role::Setup(config)) = setup(&["setup", "--store=s3://bucket"]) else { panic!("no setup") };
        assert_eq!(config, SetupConfig { dry_run: false, format: ReportFormat::Text });
        let Ok(Role::Setup(config)) = setup(&["setup", "--dry-run", "--format=json"]) else {
            panic!("no setup")
        };
        assert_eq!(config, SetupConfig { dry_run: true, format: ReportFormat::Json });
        let said = setup(&["setup", "--format=xml"]).expect_err("refused");
        assert!(said[0].contains("--format (LEAT_FORMAT) is `xml`"), "{said:?}");
    }

    #[test]
    fn what_the_aws_sdk_would_pass_over_is_refused_for_a_bucket_only() {
        let variables = [
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", ""),
            ("AWS_ENDPOINT_URL", "localhost:9000"),
            ("AWS_ENDPOINT_URL_S3", "ftp://localhost"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "token"),
        ];
        let problems = check(&["--store=s3://bucket"], &variables).expect_err("four are bad");
        assert_eq!(problems.len(), 4, "{problems:#?}");
        assert!(problems.iter().any(|line| line.contains("AWS_SECRET_ACCESS_KEY is not")));
        assert!(problems.iter().any(|line| line.contains("AWS_ROLE_ARN is not")));
        assert!(problems.iter().any(|line| line.contains("AWS_ENDPOINT_URL is `localhost:9000`")));
        assert!(problems.iter().any(|line| line.contains("AWS_ENDPOINT_URL_S3 is `ftp://localhost`")));
        assert!(check(&["--store=memory:"], &variables).is_ok());
        let empty = [("AWS_ACCESS_KEY_ID", ""), ("AWS_ENDPOINT_URL", ""), ("AWS_ROLE_ARN", "role")];
        assert!(check(&["--store=s3://bucket"], &empty).is_ok());
    }

    #[test]
    fn credentials_in_the_url_are_refused_and_not_repeated() {
        let problems = check(&["--store=s3://id:hush@bucket"], &[]).expect_err("refused");
        assert!(problems.iter().all(|line| !line.contains("hush")), "{problems:?}");
    }
}
