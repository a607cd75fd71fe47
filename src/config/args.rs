//! The command line as clap sees it: flags, their variables, their defaults and the help.

use clap::{Args, Parser, Subcommand};

const LOCATION_DEFAULT: &str = "local";
const LISTEN_DEFAULT: &str = "127.0.0.1:4437";
const CLASS_DEFAULT: &str = "standard";
const LOG_FORMAT_DEFAULT: &str = "text";
const LOG_FILTER_DEFAULT: &str = "info";
const FLUSH_STANDARD_DEFAULT: &str = "20";
const FLUSH_EXPRESS_DEFAULT: &str = "2";
const APPEND_TIMEOUT_DEFAULT: &str = "4500";
const DRAIN_TIMEOUT_DEFAULT: &str = "10000";

const EXAMPLES: &str = "\
Examples:
  leat                                         serve, with the data in ./leat-data
  leat --store memory:                         serve, and forget everything at the end
  leat --store s3://my-bucket/leat             serve from a bucket, with the usual AWS_* variables
  AWS_ENDPOINT_URL=http://127.0.0.1:9000 leat --store s3://my-bucket
                                               serve from an S3-compatible store
  leat --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem
                                               serve HTTPS on every address

An s3:// store reads AWS_REGION (or AWS_DEFAULT_REGION), AWS_ENDPOINT_URL_S3 (or
AWS_ENDPOINT_URL), AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; without
a key the credentials of a web identity, a container or the machine.";

/// A durable stream store on an object-store bucket.
#[derive(Debug, Parser)]
#[command(name = "leat", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
#[command(disable_help_subcommand = true)]
pub(super) struct CommandLine {
    #[command(subcommand)]
    pub(super) role: Option<Role>,
    #[command(flatten)]
    pub(super) serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
pub(super) enum Role {
    /// Serve the API from this process (the default)
    #[command(after_help = EXAMPLES)]
    Serve(ServeArgs),
}

/// Every value is text here, so that all bad ones can be named together.
#[derive(Debug, Args)]
#[command(next_line_help = true)]
pub(super) struct ServeArgs {
    /// Where the data lives: file:///folder, memory: or s3://bucket/prefix [default: the folder leat-data here]
    #[arg(long, env = "LEAT_STORE", value_name = "URL", help_heading = "Store")]
    pub(super) store: Option<String>,

    /// Storage class of streams whose configuration names none: standard (cheap) or express (fast)
    #[arg(long, env = "LEAT_DEFAULT_STORAGE_CLASS", value_name = "CLASS", help_heading = "Store")]
    #[arg(default_value = CLASS_DEFAULT)]
    pub(super) default_storage_class: String,

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

    /// How long requests in flight may take to finish after SIGTERM or Ctrl-C (0 to 600000)
    #[arg(long, env = "LEAT_DRAIN_TIMEOUT_MS", value_name = "MS", help_heading = "Timing")]
    #[arg(default_value = DRAIN_TIMEOUT_DEFAULT)]
    pub(super) drain_timeout_ms: String,

    /// Address and port to listen on: HTTP/1.1 and HTTP/2, both on this one port
    #[arg(long, env = "LEAT_LISTEN", value_name = "HOST:PORT", help_heading = "Network")]
    #[arg(default_value = LISTEN_DEFAULT)]
    pub(super) listen: String,

    /// What clients are told that this store's one location is called (1 to 64 of A-Z a-z 0-9 : . -)
    #[arg(long, env = "LEAT_LOCATION", value_name = "NAME", help_heading = "Store")]
    #[arg(default_value = LOCATION_DEFAULT)]
    pub(super) location: String,

    /// Certificate chain in PEM; with --tls-key the port speaks TLS
    #[arg(long, env = "LEAT_TLS_CERT", value_name = "FILE", help_heading = "Network")]
    pub(super) tls_cert: Option<String>,

    /// Private key in PEM
    #[arg(long, env = "LEAT_TLS_KEY", value_name = "FILE", help_heading = "Network")]
    pub(super) tls_key: Option<String>,

    /// Form of the log on stderr: text or json
    #[arg(long, env = "LEAT_LOG_FORMAT", value_name = "FORMAT", help_heading = "Log")]
    #[arg(default_value = LOG_FORMAT_DEFAULT)]
    pub(super) log_format: String,

    /// What to log: a level, or levels by module such as info,leat::engine=debug
    #[arg(long = "log", env = "LEAT_LOG", value_name = "FILTER", help_heading = "Log")]
    #[arg(default_value = LOG_FILTER_DEFAULT)]
    pub(super) log: String,
}

impl CommandLine {
    /// The flags of the server role, whether it was named or not.
    pub(super) fn into_serve(self) -> ServeArgs {
        match self.role {
            Some(Role::Serve(args)) => args,
            None => self.serve,
        }
    }
}
