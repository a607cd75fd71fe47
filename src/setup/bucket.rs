//! The calls of a set-up, each with what its answers mean. What to do about them is decided in `plan.rs`.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::client::Waiters as _;
use aws_sdk_s3::config::Region;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::types::{
    BucketLifecycleConfiguration, BucketLocationConstraint, CreateBucketConfiguration, ObjectLockEnabled,
    PublicAccessBlockConfiguration, TransitionDefaultMinimumObjectSize,
};

use super::plan::{Call, Encryption, Merge, Place, State};
use super::report::{Outcome, Report};
use crate::store::{S3Options, explain_no_credentials, sdk_config};
use crate::types::error::describe;

/// The region whose name S3 does not take when a bucket is created.
const UNNAMED_REGION: &str = "us-east-1";

/// Until a new bucket is to be seen.
const CREATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a call had no use.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    /// What was asked for is not set.
    Absent,
    /// The store has nothing of the kind.
    Lacking,
    /// Anything else, in words.
    Failed(String),
}

/// What a call came to.
type Answer<T> = Result<T, Fault>;

/// A bucket to be set up.
pub(super) struct Bucket {
    client: Client,
    place: Place,
    dry_run: bool,
}

impl Bucket {
    pub(super) async fn new(place: Place, dry_run: bool) -> Self {
        let sdk = sdk_config().await;
        let endpoint = S3Options::new(&sdk).endpoint;
        let mut config = aws_sdk_s3::config::Builder::from(&sdk)
            .region(Region::new(place.region.clone()))
            .force_path_style(endpoint.is_some() || place.bucket.contains('.'));
        config.set_endpoint_url(endpoint);
        Self { client: Client::from_conf(config.build()), place, dry_run }
    }

    /// One step after the other; a step that fails does not keep the next one from being tried, so that everything
    /// that is missing is told at once.
    pub(super) async fn set_up(&self, report: &mut Report) -> io::Result<()> {
        let Some(exists) = self.ensure_exists(report).await? else { return Ok(()) };
        self.block_public_access(exists, report).await?;
        let mut state = State::default();
        self.install_rules(exists, &mut state, report).await?;
        if !exists {
            return report.step(
                "checks",
                Outcome::Skipped,
                "a new bucket keeps no versions and locks nothing",
            );
        }
        let mut answers = vec![
            ("versioning", self.look_at_versioning(&mut state).await),
            ("object lock", self.look_at_object_lock(&mut state).await),
            ("encryption", self.look_at_encryption(&mut state).await),
        ];
        for problem in self.place.problems(&state) {
            answers.retain(|(step, _)| *step != problem.step());
            report.step(problem.step(), Outcome::Failed, &problem.to_string())?;
        }
        for (step, answer) in answers {
            match answer {
                Ok(said) => report.step(step, Outcome::Fine, &said)?,
                Err(fault) => self.tell_fault(step, fault, report)?,
            }
        }
        Ok(())
    }

    /// Whether the bucket is there after that; `None` if that could not be found out or made so.
    async fn ensure_exists(&self, report: &mut Report) -> io::Result<Option<bool>> {
        let Place { bucket, region, .. } = &self.place;
        match self.look(bucket).await {
            Ok(()) => {
                report.step("bucket", Outcome::Fine, &format!("`{bucket}` exists"))?;
                return Ok(Some(true));
            }
            Err(Fault::Absent) if self.dry_run => {
                report.step("bucket", Outcome::WouldDo, &format!("create `{bucket}` in {region}"))?;
                return Ok(Some(false));
            }
            Err(Fault::Absent) => {}
            Err(fault) => {
                self.tell_fault("bucket", fault, report)?;
                return Ok(None);
            }
        }
        match self.create().await {
            Ok(()) => {
                report.step("bucket", Outcome::Done, &format!("created `{bucket}` in {region}"))?;
                Ok(Some(true))
            }
            // Somebody else created it meanwhile.
            Err(_) if self.look(bucket).await.is_ok() => {
                report.step("bucket", Outcome::Fine, &format!("`{bucket}` exists"))?;
                Ok(Some(true))
            }
            Err(fault) => {
                let said = match fault {
                    Fault::Failed(said) => said,
                    Fault::Absent | Fault::Lacking => "the store does not create buckets".to_owned(),
                };
                report.step("bucket", Outcome::Failed, &said)?;
                Ok(None)
            }
        }
    }

    async fn create(&self) -> Answer<()> {
        let Place { bucket, region, .. } = &self.place;
        let constraint = (region != UNNAMED_REGION).then(|| {
            let region = BucketLocationConstraint::from(region.as_str());
            CreateBucketConfiguration::builder().location_constraint(region).build()
        });
        let answer = self
            .client
            .create_bucket()
            .bucket(bucket)
            .set_create_bucket_configuration(constraint)
            .send()
            .await;
        answer.map_err(|error| self.fault(Call::CreateBucket, &error))?;
        // The next calls may meet a part of AWS that has not heard of it yet.
        let seen = self.client.wait_until_bucket_exists().bucket(bucket).wait(CREATION_TIMEOUT).await;
        seen.map(|_| ()).map_err(|error| Fault::Failed(format!("created, but {}", describe(&error))))
    }

    async fn look(&self, bucket: &str) -> Answer<()> {
        let answer = self.client.head_bucket().bucket(bucket).send().await;
        let Err(error) = answer else { return Ok(()) };
        match error.raw_response().map(|answer| answer.status().as_u16()) {
            Some(404) => Err(Fault::Absent),
            // The answer to a HEAD has no text.
            Some(301 | 400) => {
                let place =
                    error.raw_response().and_then(|answer| answer.headers().get("x-amz-bucket-region"));
                Err(Fault::Failed(match place {
                    Some(place) if place != self.place.region => format!(
                        "`{bucket}` is in the region {place}, not in {}: set AWS_REGION={place}",
                        self.place.region
                    ),
                    _ => describe(&error),
                }))
            }
            _ => Err(self.fault(Call::HeadBucket, &error)),
        }
    }

    async fn block_public_access(&self, exists: bool, report: &mut Report) -> io::Result<()> {
        const STEP: &str = "public access";
        let bucket = &self.place.bucket;
        if exists {
            let answer = self.client.get_public_access_block().bucket(bucket).send().await;
            match answer.map_err(|error| self.fault(Call::GetPublicAccessBlock, &error)) {
                Ok(found) if found.public_access_block_configuration.as_ref().is_some_and(is_blocked) => {
                    return report.step(STEP, Outcome::Fine, "blocked");
                }
                Ok(_) | Err(Fault::Absent) => {}
                Err(fault) => return self.tell_fault(STEP, fault, report),
            }
        }
        if self.dry_run {
            return report.step(STEP, Outcome::WouldDo, "block it");
        }
        let block = PublicAccessBlockConfiguration::builder()
            .block_public_acls(true)
            .ignore_public_acls(true)
            .block_public_policy(true)
            .restrict_public_buckets(true)
            .build();
        let answer = self
            .client
            .put_public_access_block()
            .bucket(bucket)
            .public_access_block_configuration(block)
            .send();
        match answer.await.map_err(|error| self.fault(Call::PutPublicAccessBlock, &error)) {
            Ok(_) => report.step(STEP, Outcome::Done, "blocked"),
            Err(fault) => self.tell_fault(STEP, fault, report),
        }
    }

    /// Writes the rules that are missing, with all the others, and notes in `state` which rules there are.
    async fn install_rules(&self, exists: bool, state: &mut State, report: &mut Report) -> io::Result<()> {
        const STEP: &str = "lifecycle";
        let mut minimum_size = None;
        if exists {
            match self.read_rules(state).await {
                Ok(size) => minimum_size = size,
                Err(Fault::Absent) => {}
                Err(fault) => return self.tell_fault(STEP, fault, report),
            }
        }
        let (rules, installed, foreign) = match self.place.merge(&state.rules) {
            Ok(Merge::Changed { rules, installed, foreign }) => (rules, installed.join(", "), foreign),
            Ok(Merge::Unchanged { foreign }) => {
                let what = format!("Leat's rules are there; {foreign} rules of others");
                return report.step(STEP, Outcome::Fine, &what);
            }
            Err(error) => return report.step(STEP, Outcome::Failed, &error.to_string()),
        };
        if self.dry_run {
            let what = format!("install the rules {installed}; keep {foreign} rules of others");
            return report.step(STEP, Outcome::WouldDo, &what);
        }
        let configuration = BucketLifecycleConfiguration::builder().set_rules(Some(rules)).build();
        let answer = self
            .client
            .put_bucket_lifecycle_configuration()
            .bucket(&self.place.bucket)
            .lifecycle_configuration(configuration.expect("the rules are given"))
            .set_transition_default_minimum_object_size(minimum_size)
            .send()
            .await;
        match answer.map_err(|error| self.fault(Call::PutLifecycle, &error)) {
            Ok(_) => {
                let what = format!("installed the rules {installed}; kept {foreign} rules of others");
                report.step(STEP, Outcome::Done, &what)
            }
            Err(fault) => self.tell_fault(STEP, fault, report),
        }
    }

    /// Notes the rules; returns what is written together with them.
    async fn read_rules(&self, state: &mut State) -> Answer<Option<TransitionDefaultMinimumObjectSize>> {
        let answer = self.client.get_bucket_lifecycle_configuration().bucket(&self.place.bucket).send().await;
        let found = answer.map_err(|error| self.fault(Call::GetLifecycle, &error))?;
        state.rules = found.rules.unwrap_or_default();
        Ok(found.transition_default_minimum_object_size)
    }

    async fn look_at_versioning(&self, state: &mut State) -> Answer<String> {
        let answer = self.client.get_bucket_versioning().bucket(&self.place.bucket).send().await;
        let found = answer.map_err(|error| self.fault(Call::GetVersioning, &error))?;
        state.versioning = found.status;
        Ok(match &state.versioning {
            None => "off".to_owned(),
            Some(status) => format!("{status}; what is old expires or is not kept"),
        })
    }

    async fn look_at_object_lock(&self, state: &mut State) -> Answer<String> {
        let answer = self.client.get_object_lock_configuration().bucket(&self.place.bucket).send().await;
        match answer.map_err(|error| self.fault(Call::GetObjectLock, &error)) {
            Ok(found) => {
                let enabled = found.object_lock_configuration.and_then(|lock| lock.object_lock_enabled);
                state.object_lock = enabled == Some(ObjectLockEnabled::Enabled);
            }
            Err(Fault::Absent) => {}
            Err(fault) => return Err(fault),
        }
        Ok("off".to_owned())
    }

    async fn look_at_encryption(&self, state: &mut State) -> Answer<String> {
        let answer = self.client.get_bucket_encryption().bucket(&self.place.bucket).send().await;
        let found = match answer.map_err(|error| self.fault(Call::GetEncryption, &error)) {
            Ok(found) => found.server_side_encryption_configuration,
            Err(Fault::Absent) => None,
            Err(fault) => return Err(fault),
        };
        let rule = found.and_then(|configuration| configuration.rules.into_iter().next());
        state.encryption = rule.and_then(|rule| {
            let bucket_key = rule.bucket_key_enabled.unwrap_or(false);
            let algorithm = rule.apply_server_side_encryption_by_default?.sse_algorithm;
            Some(Encryption { algorithm, bucket_key })
        });
        Ok(match &state.encryption {
            None => "the store's default".to_owned(),
            Some(Encryption { algorithm, bucket_key: true }) => format!("{algorithm} with a bucket key"),
            Some(Encryption { algorithm, .. }) => algorithm.to_string(),
        })
    }

    fn tell_fault(&self, step: &str, fault: Fault, report: &mut Report) -> io::Result<()> {
        match fault {
            Fault::Absent => report.step(step, Outcome::Failed, "it was there a moment ago and is gone"),
            Fault::Lacking => report.step(step, Outcome::Skipped, "the store has nothing of the kind"),
            Fault::Failed(said) => report.step(step, Outcome::Failed, &said),
        }
    }

    /// What a failed call means.
    fn fault<E>(&self, call: Call, error: &SdkError<E>) -> Fault
    where
        E: ProvideErrorMetadata + StdError + 'static,
    {
        let code = error.code().unwrap_or_default();
        let status = error.raw_response().map_or(0, |answer| answer.status().as_u16());
        match (code, status) {
            ("NotImplemented" | "MethodNotAllowed", _) | (_, 405 | 501) => Fault::Lacking,
            // The answer to a HEAD has no code.
            ("AccessDenied" | "", 403) => Fault::Failed(format!(
                "access denied; the least this needs is {} on {}",
                call.action(),
                self.place.arn(),
            )),
            ("NoSuchBucket", _) => Fault::Failed(format!("`{}` does not exist", self.place.bucket)),
            ("BucketAlreadyExists", _) => Fault::Failed(format!(
                "`{}` belongs to another account: choose another name",
                self.place.bucket
            )),
            (_, 404) => Fault::Absent,
            _ => Fault::Failed(match error.message() {
                Some(said) => format!("{code}: {said}"),
                None => explain_no_credentials(error).unwrap_or_else(|| describe(error)),
            }),
        }
    }
}

fn is_blocked(found: &PublicAccessBlockConfiguration) -> bool {
    [
        found.block_public_acls,
        found.ignore_public_acls,
        found.block_public_policy,
        found.restrict_public_buckets,
    ]
    .into_iter()
    .all(|blocked| blocked == Some(true))
}
