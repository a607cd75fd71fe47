//! Credentials for `object_store` from the AWS SDK: kept until shortly before they expire, renewed by one at a time.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;

use crate::types::error::describe;
use crate::types::time::Clock;

/// How long before their end credentials are renewed; those that live shorter, in the middle of their life.
const RENEWAL_MARGIN_MS: u64 = 5 * 60 * 1_000;
/// Between attempts to renew credentials that still hold.
const RENEWAL_PAUSE_MS: u64 = 30 * 1_000;
/// How long a request waits for the renewal of credentials that still hold.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(2);

/// There is nothing to sign a request with, so none was sent.
#[derive(Debug, thiserror::Error)]
#[error("no AWS credentials: {why}")]
pub(super) struct NoCredentials {
    why: String,
}

impl NoCredentials {
    fn new(error: &CredentialsError) -> Self {
        let details = describe(error);
        tracing::debug!(details, "no AWS credentials");
        let why = match error {
            CredentialsError::CredentialsNotLoaded(_) => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile in AWS_PROFILE, or run where a role \
                 is given"
                    .to_owned()
            }
            _ if details.contains("enabled: sso") => {
                "the profile signs in by IAM Identity Center (SSO), which Leat leaves to the AWS command line: use a \
                 profile with `credential_process = aws configure export-credentials --format process --profile NAME`"
                    .to_owned()
            }
            _ => details,
        };
        Self { why }
    }
}

/// What is to be said if a failed call of the SDK had no credentials.
#[must_use]
pub fn explain_no_credentials(error: &(dyn Error + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<CredentialsError>() {
            return Some(NoCredentials::new(found).to_string());
        }
        cause = error.source();
    }
    None
}

/// What was last given, and until when it may be used.
struct Held {
    credential: Arc<AwsCredential>,
    /// From when on new ones are looked for.
    renew_ms: u64,
    /// `u64::MAX` if they never end.
    expires_ms: u64,
}

enum State {
    Fresh(Arc<AwsCredential>),
    Ageing(Arc<AwsCredential>),
    Unusable,
}

/// The SDK's provider with a memory.
pub(super) struct CredentialCache {
    provider: SharedCredentialsProvider,
    clock: Clock,
    held: Mutex<Option<Held>>,
    /// Whose turn it is to renew.
    turn: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for CredentialCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Secrets stay out of logs.
        f.debug_struct("CredentialCache").finish_non_exhaustive()
    }
}

impl CredentialCache {
    pub(super) fn new(provider: SharedCredentialsProvider, clock: Clock) -> Self {
        Self { provider, clock, held: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    fn state(&self) -> State {
        let now_ms = self.clock.local_ms();
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.as_ref() {
            Some(held) if now_ms < held.renew_ms => State::Fresh(held.credential.clone()),
            Some(held) if now_ms < held.expires_ms => State::Ageing(held.credential.clone()),
            Some(_) | None => State::Unusable,
        }
    }

    /// Asks the provider. Whoever calls has the turn.
    async fn renew(&self) -> Result<Arc<AwsCredential>, CredentialsError> {
        let given = self.provider.provide_credentials().await?;
        let now_ms = self.clock.local_ms();
        let since_epoch = given.expiry().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let expires_ms = since_epoch.map_or(u64::MAX, |at| u64::try_from(at.as_millis()).unwrap_or(u64::MAX));
        let margin_ms = RENEWAL_MARGIN_MS.min(expires_ms.saturating_sub(now_ms) / 2);
        let credential = Arc::new(AwsCredential {
            key_id: given.access_key_id().to_owned(),
            secret_key: given.secret_access_key().to_owned(),
            token: given.session_token().map(str::to_owned),
        });
        let held = Held { credential: credential.clone(), renew_ms: expires_ms - margin_ms, expires_ms };
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        Ok(credential)
    }

    /// Renews what still holds; if that fails, there is time to try again.
    async fn renew_early(&self, still_good: Arc<AwsCredential>) -> Arc<AwsCredential> {
        let why = match tokio::time::timeout(RENEWAL_PATIENCE, self.renew()).await {
            Ok(Ok(renewed)) => return renewed,
            Ok(Err(error)) => describe(&error),
            Err(_) => "it takes too long".to_owned(),
        };
        tracing::warn!(why, "the AWS credentials could not be renewed before their end");
        if let Some(held) = self.held.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            held.renew_ms = self.clock.local_ms().saturating_add(RENEWAL_PAUSE_MS);
        }
        still_good
    }
}

#[async_trait]
impl CredentialProvider for CredentialCache {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        match self.state() {
            State::Fresh(credential) => return Ok(credential),
            State::Ageing(credential) => {
                return Ok(match self.turn.try_lock() {
                    Ok(_turn) => self.renew_early(credential).await,
                    // Another request renews them.
                    Err(_) => credential,
                });
            }
            State::Unusable => {}
        }
        let _turn = self.turn.lock().await;
        // Whoever had the turn before may have renewed them.
        if let State::Fresh(credential) | State::Ageing(credential) = self.state() {
            return Ok(credential);
        }
        self.renew().await.map_err(|error| {
            let source = Box::new(NoCredentials::new(&error));
            object_store::Error::Unauthenticated { path: String::new(), source }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use aws_credential_types::Credentials;
    use aws_credential_types::provider::{self, ProvideCredentials, future};
    use futures::future::join_all;

    use super::*;

    const MINUTE_MS: u64 = 60 * 1_000;

    /// Gives out numbered credentials, each good for `life_ms` of a manual clock; takes a moment for it.
    #[derive(Debug)]
    struct Numbered {
        clock: Clock,
        life_ms: u64,
        given: Arc<AtomicU64>,
        /// From this number on it fails.
        fails_from: u64,
    }

    impl ProvideCredentials for Numbered {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            future::ProvideCredentials::new(self.give())
        }
    }

    impl Numbered {
        async fn give(&self) -> provider::Result {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let number = self.given.fetch_add(1, Ordering::SeqCst);
            if number >= self.fails_from {
                return Err(CredentialsError::provider_error("the service is down"));
            }
            let expires = UNIX_EPOCH + Duration::from_millis(self.clock.local_ms() + self.life_ms);
            let credentials =
                Credentials::builder().access_key_id(number.to_string()).secret_access_key("hush");
            Ok(credentials.session_token("hush").expiry(expires).provider_name("numbered").build())
        }
    }

    fn cache(life_ms: u64, fails_from: u64) -> (CredentialCache, Clock, Arc<AtomicU64>) {
        let (clock, given) = (Clock::manual(1_000_000_000), Arc::new(AtomicU64::new(0)));
        let provider = Numbered { clock: clock.clone(), life_ms, given: given.clone(), fails_from };
        (CredentialCache::new(SharedCredentialsProvider::new(provider), clock.clone()), clock, given)
    }

    async fn number(cache: &CredentialCache) -> String {
        cache.get_credential().await.unwrap().key_id.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_are_kept_and_renewed_before_they_expire() {
        let (cache, clock, given) = cache(60 * MINUTE_MS, u64::MAX);
        assert_eq!(number(&cache).await, "0");
        clock.advance_ms(54 * MINUTE_MS);
        assert_eq!(number(&cache).await, "0");
        clock.advance_ms(2 * MINUTE_MS);
        assert_eq!(number(&cache).await, "1", "four minutes before their end");
        clock.advance_ms(300 * MINUTE_MS);
        assert_eq!(number(&cache).await, "2", "long after their end");
        assert_eq!(given.load(Ordering::SeqCst), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_needs_them_at_once_asks_once() {
        let (cache, clock, given) = cache(60 * MINUTE_MS, u64::MAX);
        let all = join_all((0..20).map(|_| number(&cache))).await;
        assert_eq!((all, given.load(Ordering::SeqCst)), (vec!["0".to_owned(); 20], 1));
        clock.advance_ms(57 * MINUTE_MS);
        let mut all = join_all((0..20).map(|_| number(&cache))).await;
        all.sort();
        let mut expected = vec!["0".to_owned(); 19];
        expected.push("1".to_owned());
        assert_eq!(all, expected, "one renews, the others go on with what still holds");
        clock.advance_ms(61 * MINUTE_MS);
        let all = join_all((0..20).map(|_| number(&cache))).await;
        assert_eq!((all, given.load(Ordering::SeqCst)), (vec!["2".to_owned(); 20], 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_fails_leaves_what_still_holds() {
        let (cache, clock, given) = cache(60 * MINUTE_MS, 1);
        assert_eq!(number(&cache).await, "0");
        clock.advance_ms(57 * MINUTE_MS);
        assert_eq!(number(&cache).await, "0");
        assert_eq!(number(&cache).await, "0");
        assert_eq!(given.load(Ordering::SeqCst), 2, "it is not asked again at once");
        clock.advance_ms(4 * MINUTE_MS);
        let error = cache.get_credential().await.unwrap_err();
        assert!(matches!(error, object_store::Error::Unauthenticated { .. }), "{error}");
        assert!(error.to_string().contains("the service is down"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn short_lives_are_renewed_in_their_middle() {
        let (cache, clock, given) = cache(4 * MINUTE_MS, u64::MAX);
        assert_eq!(number(&cache).await, "0");
        clock.advance_ms(MINUTE_MS);
        assert_eq!(number(&cache).await, "0");
        clock.advance_ms(2 * MINUTE_MS);
        assert_eq!(number(&cache).await, "1");
        assert_eq!(given.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn credentials_without_an_end_are_kept_for_ever() {
        let fixed =
            Credentials::builder().access_key_id("id").secret_access_key("hush").provider_name("fixed");
        let clock = Clock::manual(1_000);
        let cache = CredentialCache::new(SharedCredentialsProvider::new(fixed.build()), clock.clone());
        let first = cache.get_credential().await.unwrap();
        clock.advance_ms(u64::MAX / 2);
        let later = cache.get_credential().await.unwrap();
        assert!(Arc::ptr_eq(&first, &later));
        assert!(!format!("{cache:?} {first:?}").contains("hush"));
    }
}
