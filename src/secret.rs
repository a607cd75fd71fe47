//! Where the root token is kept: nowhere in the code, and in no log.

use std::path::PathBuf;

use crate::api::{Auth, InvalidToken, RootToken};
use crate::store::sdk_config;

/// Who may call.
#[derive(Debug)]
pub enum AuthConfig {
    /// Whoever reaches the process: `--auth none`, or a loopback address and no token given.
    Open,
    /// Whoever has the root token, given in `LEAT_ROOT_TOKEN`.
    Token(RootToken),
    /// The same, in the file `LEAT_ROOT_TOKEN_FILE`.
    TokenFile(PathBuf),
    /// The same, in the secret `LEAT_ROOT_TOKEN_SECRET` of AWS Secrets Manager.
    TokenSecret(String),
}

/// Why there is no root token.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the root token from {}", path.display())]
    File {
        /// As configured.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Secrets Manager does not hand the secret out.
    #[error(
        "cannot get the root token from the secret `{secret}`; the role needs secretsmanager:GetSecretValue on it"
    )]
    Secret {
        /// As configured.
        secret: String,
        /// What the service said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What is there is no token.
    #[error("the root token from {place} cannot be used")]
    Invalid {
        /// The file or the secret.
        place: String,
        /// Why.
        #[source]
        source: InvalidToken,
    },
}

/// Gets the root token from where it is kept.
pub async fn load(config: AuthConfig) -> Result<Auth, Error> {
    match config {
        AuthConfig::Open => Ok(Auth::Open),
        AuthConfig::Token(token) => Ok(Auth::Token(token)),
        AuthConfig::TokenFile(path) => match tokio::fs::read_to_string(&path).await {
            Ok(text) => token(&path.display().to_string(), &text),
            Err(source) => Err(Error::File { path, source }),
        },
        AuthConfig::TokenSecret(secret) => match fetch(&secret).await {
            Ok(text) => token(&format!("the secret `{secret}`"), &text),
            Err(source) => Err(Error::Secret { secret, source }),
        },
    }
}

/// Files and consoles like to end with a line break.
fn token(place: &str, text: &str) -> Result<Auth, Error> {
    let token = RootToken::new(text.trim_ascii())
        .map_err(|source| Error::Invalid { place: place.to_owned(), source })?;
    Ok(Auth::Token(token))
}

async fn fetch(secret: &str) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let client = aws_sdk_secretsmanager::Client::new(&sdk_config().await);
    let answer = client.get_secret_value().secret_id(secret).send().await?;
    let text = answer.secret_string().ok_or("it holds bytes instead of text")?;
    Ok(text.to_owned())
}
