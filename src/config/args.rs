//! The command line as clap sees it: flags, their variables, their defaults and the help.

use clap::{Args, Command, Parser, Subcommand};

const LOCATION_DEFAULT: &str = "local";
const LISTEN_DEFAULT: &str = "127.0.0.1:4437";
const CLASS_DEFAULT: &str = "standard";
const RESPONSES_DEFAULT: &str = "stream";
const REPORT_FORMAT_DEFAULT: &str = "text";
const SWEEP_INTERVAL_DEFAULT: &str = "600000";
const SWEEP_VISITS_DEFAULT: &str = "10000";
const LOG_FORMAT_DEFAULT: &str = "text";
const LOG_FILTER_DEFAULT: &str = "info";
const FLUSH_STANDARD_DEFAULT: &str = "20";
const FLUSH_EXPRESS_DEFAULT: &str = "2";
const APPEND_TIMEOUT_DEFAULT: &str = "4500";
const LONG_POLL_DEFAULT: &str = "20000";
const DRAIN_TIMEOUT_DEFAULT: &str = "10000";

const EXAMPLES: &str = "\
Examples:
  leat                                         serve, with the data in ./leat-data
  leat --store memory:                         serve, and forget everything at the end
  leat setup --store s3://my-bucket/leat       create the bucket, or check it, and set it up
  leat --store s3://my-bucket/leat             serve from a bucket, with the usual AWS_* variables
  AWS_ENDPOINT_URL=http://127.0.0.1:9000 leat --store s3://my-bucket
                                               serve from an S3-compatible store
  LEAT_ROOT_TOKEN=... leat --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem
                                               serve HTTPS on every address

An s3:// store finds credentials, region and endpoint where the AWS tools do: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, a profile (AWS_PROFILE), a web identity,
a container's role, the machine's.";

const SETUP_EXAMPLES: &str = "\
Examples:
  leat setup --store s3://my-bucket/leat --dry-run    look, and say what would be done
  leat setup --store s3://my-bucket/leat              do it; a second run changes nothing
  AWS_ENDPOINT_URL=http://127.0.0.1:9000 leat setup --store s3://my-bucket
                                                      set up an S3-compatible store

Ends with 0 if all is well, 1 if a step failed or something must be put right first, 2 for bad usage.";

/// A durable stream store on an object-store bucket.
#[derive(Debug, Parser)]
#[command(name = "leat", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
#[command(disable_help_subcommand = true)]
pub(super) struct CommandLine {
    #[command(subcommand)]
    pub(super) role: Option<RoleArgs>,
    #[command(flatten)]
    pub(super) serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
pub(super) enum RoleArgs {
    /// Serve the API from this process (the default)
    #[command(after_help = EXAMPLES)]
    Serve(ServeArgs),
    /// Serve the API as an AWS Lambda function (the default inside one)
    Lambda(LambdaArgs),
    /// Set a bucket up: create it or check it, block public access, install lifecycle rules, probe the store
    #[command(after_help = SETUP_EXAMPLES)]
    Setup(SetupArgs),
    /// Give back the space of what is deleted or past its age, once
    Sweep(SweepArgs),
    /// Show what lies in the store, and whether it is sound
    Inspect(InspectArgs),
}

/// Every value is text here and below, so that all bad ones can be named together.
#[derive(Debug, Args)]
#[command(next_line_help = true)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    #[command(flatten)]
    pub(super) service: ServiceArgs,

    /// Address and port to listen on: HTTP/1.1 and HTTP/2, both on this one port
    #[arg(long, env = "LEAT_LISTEN", value_name = "HOST:PORT", help_heading = "Network")]
    #[arg(default_value = LISTEN_DEFAULT)]
    pub(super) listen: String,

    /// Certificate chain in PEM; with --tls-key the port speaks TLS
    #[arg(long, env = "LEAT_TLS_CERT", value_name = "FILE", help_heading = "Network")]
    pub(super) tls_cert: Option<String>,

    /// Private key in PEM
    #[arg(long, env = "LEAT_TLS_KEY", value_name = "FILE", help_heading = "Network")]
    pub(super) tls_key: Option<String>,

    /// How often this server sweeps the store (0 is never, else 1000 to 86400000)
    #[arg(long, env = "LEAT_SWEEP_INTERVAL_MS", value_name = "MS", help_heading = "Timing")]
    #[arg(default_value = SWEEP_INTERVAL_DEFAULT)]
    pub(super) sweep_interval_ms: String,

    /// How long requests in flight may take to finish after SIGTERM or Ctrl-C (0 to 600000)
    #[arg(long, env = "LEAT_DRAIN_TIMEOUT_MS", value_name = "MS", help_heading = "Timing")]
    #[arg(default_value = DRAIN_TIMEOUT_DEFAULT)]
    pub(super) drain_timeout_ms: String,
}

#[derive(Debug, Args)]
#[command(next_line_help = true)]
pub(super) struct LambdaArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    #[command(flatten)]
    pub(super) service: ServiceArgs,

    /// How Function URLs and REST APIs are answered, as the front is set up: stream or buffer
    #[arg(long, env = "LEAT_RESPONSES", value_name = "MODE", help_heading = "Network")]
    #[arg(default_value = RESPONSES_DEFAULT)]
    pub(super) responses: String,
}

/// What every role is told.
#[derive(Debug, Args)]
pub(super) struct CommonArgs {
    /// Where the data lives: file:///folder, memory: or s3://bucket/prefix [default: the folder leat-data here]
    #[arg(long, env = "LEAT_STORE", value_name = "URL", help_heading = "Store")]
    pub(super) store: Option<String>,

    /// Form of the log on stderr: text or json
    #[arg(long, env = "LEAT_LOG_FORMAT", value_name = "FORMAT", help_heading = "Log")]
    #[arg(default_value = LOG_FORMAT_DEFAULT)]
    pub(super) log_format: String,

    /// What to log: a level, or levels by module such as info,leat::engine=debug
    #[arg(long = "log", env = "LEAT_LOG", value_name = "FILTER", help_heading = "Log")]
    #[arg(default_value = LOG_FILTER_DEFAULT)]
    pub(super) log: String,
}

/// What every role that answers requests is told.
#[derive(Debug, Args)]
pub(super) struct ServiceArgs {
    /// Storage class of streams whose configuration names none: standard (cheap) or express (fast)
    #[arg(long, env = "LEAT_DEFAULT_STORAGE_CLASS", value_name = "CLASS", help_heading = "Store")]
    #[arg(default_value = CLASS_DEFAULT)]
    pub(super) default_storage_class: String,

    /// What clients are told that this store's one location is called (1 to 64 of A-Z a-z 0-9 : . -)
    #[arg(long, env = "LEAT_LOCATION", value_name = "NAME", help_heading = "Store")]
    #[arg(default_value = LOCATION_DEFAULT)]
    pub(super) location: String,

    /// How long a commit of a standard stream may gather appends, at most (0 to 1000)
    #[arg(long, env = "LEAT_FLUSH_STANDARD_MS", value_name = "MS", help_heading = "Timing")]
    #[arg(default_value = FLUSH_STANDARD_DEFAULT)]
    pub(super) flush_standard_ms: String,

    /// How long a commit of an express stream may gather appends, at most (0 to 1000)
    #[arg(long, env = "LEAT_FLUSH_EXPRESS_MS", value_name = "MS", help_heading = "Timing")]
    #[arg(default_value = FLUSH_EXPRESS_DEFAULT)]
    pub(super) flush_express_ms: String,

    /// When the outcome of an append is reported as unknown (100 to 600000); SDKs give up after 5000
    #[arg(long, env = "LEAT_APPEND_TIMEOUT_MS", value_name = "MS", help_heading = "Timing")]
    #[arg(default_value = APPEND_TIMEOUT_DEFAULT)]
    pub(super) append_timeout_ms: String,

    /// How long a long-poll of the Durable Streams API waits (100 to 20000)
    #[arg(long, env = "LEAT_LONG_POLL_MS", value_name = "MS", help_heading = "Timing")]
    #[arg(default_value = LONG_POLL_DEFAULT)]
    pub(super) long_poll_ms: String,

    /// Who may call: token (whoever has the root token) or none (whoever reaches this process)
    /// [default: token, but none on a loopback address if no token is given]
    #[arg(long, env = "LEAT_AUTH", value_name = "MODE", help_heading = "Access", verbatim_doc_comment)]
    pub(super) auth: Option<String>,

    /// File that holds the root token; or give the token itself in LEAT_ROOT_TOKEN
    #[arg(long, env = "LEAT_ROOT_TOKEN_FILE", value_name = "FILE", help_heading = "Access")]
    pub(super) root_token_file: Option<String>,

    /// Name or ARN of the secret in AWS Secrets Manager that holds the root token
    #[arg(long, env = "LEAT_ROOT_TOKEN_SECRET", value_name = "SECRET", help_heading = "Access")]
    pub(super) root_token_secret: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_line_help = true)]
pub(super) struct SetupArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,

    /// Change nothing; say what would be done
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Form of the report on stdout: text (one line a step) or json (one object a line)
    #[arg(long, env = "LEAT_FORMAT", value_name = "FORMAT", default_value = REPORT_FORMAT_DEFAULT)]
    pub(super) format: String,
}

#[derive(Debug, Args)]
#[command(next_line_help = true)]
pub(super) struct SweepArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,

    /// Change nothing; say what would be done
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Streams visited at most; what is left is due in the next sweep (1 to 1000000)
    #[arg(long, env = "LEAT_SWEEP_VISITS_MAX", value_name = "COUNT", default_value = SWEEP_VISITS_DEFAULT)]
    pub(super) visits_max: String,

    /// Form of the report on stdout: text or json
    #[arg(long, env = "LEAT_FORMAT", value_name = "FORMAT", default_value = REPORT_FORMAT_DEFAULT)]
    pub(super) format: String,
}

#[derive(Debug, Args)]
#[command(next_line_help = true)]
pub(super) struct InspectArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,

    /// Show this basin, or with --bucket this bucket, instead of the store
    #[arg(value_name = "BASIN")]
    pub(super) place: Option<String>,

    /// Show this stream of it
    pub(super) stream: Option<String>,

    /// The name is that of a bucket of Durable Streams
    #[arg(long)]
    pub(super) bucket: bool,

    /// Read everything that would be shown, and tell what is not as it should be
    #[arg(long)]
    pub(super) verify: bool,

    /// Form of the report on stdout: text or json
    #[arg(long, env = "LEAT_FORMAT", value_name = "FORMAT", default_value = REPORT_FORMAT_DEFAULT)]
    pub(super) format: String,
}

/// The flags of a role that was started without any, inside a function.
pub(super) fn from_environment<A: Args>() -> Result<A, clap::Error> {
    let matches = A::augment_args(Command::new("leat")).no_binary_name(true).try_get_matches_from([""; 0])?;
    A::from_arg_matches(&matches)
}
