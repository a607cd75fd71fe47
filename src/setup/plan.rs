//! Which lifecycle rules to write given those that exist, what is wrong with a bucket, what a call needs (*pure*).

use std::fmt;

use aws_sdk_s3::types::{
    AbortIncompleteMultipartUpload, BucketVersioningStatus, ExpirationStatus, LifecycleExpiration,
    LifecycleRule, LifecycleRuleFilter, ServerSideEncryption,
};

use crate::storage::key::{self, DataClass};

/// What S3 takes, and does not raise.
const RULES_MAX: usize = 1_000;
/// What AWS ends the names of directory buckets with.
const DIRECTORY_BUCKET_SUFFIX: &str = "--x-s3";
/// After how many days a batch that nobody combined, or an upload that nobody finished, is of no use to anyone.
const LEFTOVER_DAYS: i32 = 1;

/// Where a store lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) bucket: String,
    /// What every key begins with: nothing, or a text that ends in `/`.
    pub(super) root: String,
    pub(super) region: String,
}

impl Place {
    pub(super) fn is_directory(&self) -> bool {
        self.bucket.ends_with(DIRECTORY_BUCKET_SUFFIX)
    }

    /// The bucket's ARN.
    pub(super) fn arn(&self) -> String {
        let partition = match self.region.as_str() {
            region if region.starts_with("cn-") => "aws-cn",
            region if region.starts_with("us-gov-") => "aws-us-gov",
            _ => "aws",
        };
        format!("arn:{partition}:s3:::{}", self.bucket)
    }

    /// The least that serving needs.
    pub(super) fn objects_privilege(&self) -> String {
        let arn = self.arn();
        format!(
            "s3:GetObject, s3:PutObject and s3:DeleteObject on {arn}/{}*, and s3:ListBucket on {arn}",
            self.root
        )
    }

    /// The rules Leat wants. Those on `data/` are the net under the sweeper: a chunk lies in a class that outlives
    /// its retention by two days, so that what a stream still names does not expire.
    fn rules(&self) -> Vec<LifecycleRule> {
        let rule = |name: &str, below: &str| {
            // Several stores may share a bucket.
            let store = self.root.trim_end_matches('/');
            let id = if store.is_empty() { format!("leat-{name}") } else { format!("leat-{name}:{store}") };
            let filter = LifecycleRuleFilter::builder().prefix(format!("{}{below}", self.root)).build();
            LifecycleRule::builder().id(id).filter(filter).status(ExpirationStatus::Enabled)
        };
        let expiry = |days| LifecycleExpiration::builder().days(days).build();
        let abort = AbortIncompleteMultipartUpload::builder().days_after_initiation(LEFTOVER_DAYS).build();
        let leftovers = [
            rule("inbox", "inbox/").expiration(expiry(LEFTOVER_DAYS)),
            rule("uploads", "").abort_incomplete_multipart_upload(abort),
        ];
        let classes = DataClass::ALL.into_iter().filter_map(|class| {
            let name = format!("data-{}", class.as_str());
            Some(rule(&name, &key::class(class)).expiration(expiry(i32::try_from(class.days()?).ok()?)))
        });
        leftovers.into_iter().chain(classes).map(|rule| rule.build().expect("the status is given")).collect()
    }

    /// What the bucket's rules must become.
    pub(super) fn merge(&self, existing: &[LifecycleRule]) -> Result<Merge, TooManyRules> {
        let mut wanted = self.rules();
        if existing.iter().any(|rule| top_prefix(rule).is_some() && rule.filter.is_none()) {
            // S3 takes rules of the old form or of the new one, not both.
            wanted.iter_mut().for_each(to_old_form);
        }
        let mut rules = existing.to_vec();
        let mut installed = Vec::new();
        for rule in wanted {
            let place = rules.iter_mut().find(|known| known.id == rule.id);
            if place.as_ref().is_some_and(|known| is_same(known, &rule)) {
                continue;
            }
            installed.extend(rule.id.clone());
            match place {
                Some(known) => *known = rule,
                None => rules.push(rule),
            }
        }
        let ours: Vec<_> = self.rules().into_iter().map(|rule| rule.id).collect();
        let foreign = existing.iter().filter(|rule| !ours.contains(&rule.id)).count();
        if installed.is_empty() {
            return Ok(Merge::Unchanged { foreign });
        }
        if rules.len() > RULES_MAX {
            return Err(TooManyRules { rules: rules.len() });
        }
        Ok(Merge::Changed { rules, installed, foreign })
    }

    /// What is wrong with the bucket.
    pub(super) fn problems(&self, state: &State) -> Vec<Problem> {
        let mut problems = Vec::new();
        let covered = state.rules.iter().any(|rule| is_noncurrent_expiry(rule, &self.root));
        if state.versioning == Some(BucketVersioningStatus::Enabled) && !covered {
            problems.push(Problem::KeepsVersions { root: self.root.clone() });
        }
        if state.object_lock {
            problems.push(Problem::ObjectLock);
        }
        let uses_kms = |algorithm: &ServerSideEncryption| algorithm.as_str().starts_with("aws:kms");
        if let Some(Encryption { algorithm, bucket_key: false }) = &state.encryption
            && uses_kms(algorithm)
        {
            problems.push(Problem::KeyPerRequest { algorithm: algorithm.to_string() });
        }
        problems
    }
}

/// What the bucket's rules must become.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Merge {
    /// What they are.
    Unchanged {
        /// Rules of others.
        foreign: usize,
    },
    /// Something else.
    Changed {
        /// All of them, since they are written together.
        rules: Vec<LifecycleRule>,
        /// The ids of those that are new or other than before.
        installed: Vec<String>,
        /// Rules of others, all kept.
        foreign: usize,
    },
}

/// There is no room for Leat's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the bucket would have {rules} lifecycle rules, of at most {RULES_MAX}; remove some, or use another bucket"
)]
pub(super) struct TooManyRules {
    rules: usize,
}

/// What is known of a bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    pub(super) rules: Vec<LifecycleRule>,
    /// `None` if it never was on.
    pub(super) versioning: Option<BucketVersioningStatus>,
    pub(super) object_lock: bool,
    /// `None` if the store does not say.
    pub(super) encryption: Option<Encryption>,
}

/// How new objects are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Encryption {
    pub(super) algorithm: ServerSideEncryption,
    pub(super) bucket_key: bool,
}

/// What must be put right before Leat uses a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// Nothing that is overwritten or deleted ever goes away.
    KeepsVersions {
        /// Below which.
        root: String,
    },
    /// Nothing can be deleted.
    ObjectLock,
    /// Each request asks KMS.
    KeyPerRequest {
        /// The algorithm.
        algorithm: String,
    },
}

impl Problem {
    /// The step that found it.
    pub(super) fn step(&self) -> &'static str {
        match self {
            Self::KeepsVersions { .. } => "versioning",
            Self::ObjectLock => "object lock",
            Self::KeyPerRequest { .. } => "encryption",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeepsVersions { root } => {
                f.write_str(
                    "the bucket keeps old versions for ever, and every append would leave one: suspend versioning, or \
                     add a lifecycle rule with NoncurrentVersionExpiration, NoncurrentDays 1 and no \
                     NewerNoncurrentVersions, for ",
                )?;
                if root.is_empty() { f.write_str("the whole bucket") } else { write!(f, "the prefix `{root}`") }
            }
            Self::ObjectLock => f.write_str(
                "Object Lock is enabled, so that nothing can be deleted for good; it cannot be turned off: use another \
                 bucket",
            ),
            Self::KeyPerRequest { algorithm } => write!(
                f,
                "new objects are encrypted with {algorithm} without a bucket key, so that every request is one to KMS \
                 as well, paid and limited there: turn the bucket key on (aws:kms), or use SSE-S3"
            ),
        }
    }
}

/// The calls of a set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    HeadBucket,
    CreateBucket,
    GetPublicAccessBlock,
    PutPublicAccessBlock,
    GetLifecycle,
    PutLifecycle,
    GetVersioning,
    GetObjectLock,
    GetEncryption,
}

impl Call {
    /// The permission it needs, on the bucket.
    pub(super) fn action(self) -> &'static str {
        match self {
            Self::HeadBucket => "s3:ListBucket",
            Self::CreateBucket => "s3:CreateBucket",
            Self::GetPublicAccessBlock => "s3:GetBucketPublicAccessBlock",
            Self::PutPublicAccessBlock => "s3:PutBucketPublicAccessBlock",
            Self::GetLifecycle => "s3:GetLifecycleConfiguration",
            Self::PutLifecycle => "s3:PutLifecycleConfiguration",
            Self::GetVersioning => "s3:GetBucketVersioning",
            Self::GetObjectLock => "s3:GetBucketObjectLockConfiguration",
            Self::GetEncryption => "s3:GetEncryptionConfiguration",
        }
    }
}

/// The prefix beside a filter, as the first form of rules has it.
#[allow(deprecated, reason = "buckets still have such rules")]
fn top_prefix(rule: &LifecycleRule) -> Option<&str> {
    rule.prefix.as_deref()
}

#[allow(deprecated, reason = "buckets still have such rules")]
fn to_old_form(rule: &mut LifecycleRule) {
    rule.prefix = rule.filter.take().and_then(|filter| filter.prefix);
}

/// The prefix of all that a rule is about; `None` if it is about some objects below it only.
fn scope(rule: &LifecycleRule) -> Option<&str> {
    let Some(filter) = &rule.filter else { return Some(top_prefix(rule).unwrap_or_default()) };
    let is_any_size = |above: Option<i64>, below: Option<i64>| above.unwrap_or(0) == 0 && below.is_none();
    if let Some(and) = &filter.and {
        let whole = and.tags.as_ref().is_none_or(Vec::is_empty)
            && is_any_size(and.object_size_greater_than, and.object_size_less_than);
        return whole.then(|| and.prefix.as_deref().unwrap_or_default());
    }
    let whole =
        filter.tag.is_none() && is_any_size(filter.object_size_greater_than, filter.object_size_less_than);
    whole.then(|| filter.prefix.as_deref().unwrap_or_default())
}

/// Whether two rules do the same, however they are written.
fn is_same(known: &LifecycleRule, wanted: &LifecycleRule) -> bool {
    let days = |rule: &LifecycleRule| {
        let expiration = rule.expiration.as_ref();
        let odd = expiration.is_some_and(|expiration| {
            expiration.date.is_some() || expiration.expired_object_delete_marker == Some(true)
        });
        (expiration.and_then(|expiration| expiration.days), odd)
    };
    let abort = |rule: &LifecycleRule| {
        rule.abort_incomplete_multipart_upload.as_ref().and_then(|abort| abort.days_after_initiation)
    };
    let more = |rule: &LifecycleRule| {
        rule.transitions.as_ref().is_some_and(|transitions| !transitions.is_empty())
            || rule.noncurrent_version_transitions.as_ref().is_some_and(|transitions| !transitions.is_empty())
            || rule.noncurrent_version_expiration.is_some()
    };
    known.status == wanted.status
        && scope(known).is_some()
        && scope(known) == scope(wanted)
        && days(known) == days(wanted)
        && abort(known) == abort(wanted)
        && !more(known)
}

/// Whether a rule removes the old versions of everything below `root`.
fn is_noncurrent_expiry(rule: &LifecycleRule, root: &str) -> bool {
    rule.status == ExpirationStatus::Enabled
        && scope(rule).is_some_and(|prefix| root.starts_with(prefix))
        && rule.noncurrent_version_expiration.as_ref().is_some_and(|expiry| {
            expiry.noncurrent_days.is_some() && expiry.newer_noncurrent_versions.unwrap_or(0) == 0
        })
}

#[cfg(test)]
mod tests {
    use aws_sdk_s3::types::builders::LifecycleRuleBuilder;
    use aws_sdk_s3::types::{LifecycleRuleAndOperator, NoncurrentVersionExpiration, Tag, Transition};

    use super::*;

    fn place(root: &str) -> Place {
        Place { bucket: "logs".to_owned(), root: root.to_owned(), region: "eu-central-1".to_owned() }
    }

    fn rule(id: &str, prefix: &str) -> LifecycleRuleBuilder {
        let filter = LifecycleRuleFilter::builder().prefix(prefix).build();
        LifecycleRule::builder().id(id).filter(filter).status(ExpirationStatus::Enabled)
    }

    fn foreign(id: &str) -> LifecycleRule {
        let expiry = LifecycleExpiration::builder().days(30).build();
        rule(id, "backups/").expiration(expiry).build().unwrap()
    }

    fn changed(merge: Result<Merge, TooManyRules>) -> (Vec<LifecycleRule>, Vec<String>) {
        match merge {
            Ok(Merge::Changed { rules, installed, .. }) => (rules, installed),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_empty_bucket_gets_a_rule_for_leftovers_and_for_every_class_that_ends() {
        let days = |rule: &LifecycleRule| rule.expiration.as_ref().and_then(|expiry| expiry.days);
        let (rules, installed) = changed(place("").merge(&[]));
        assert_eq!(
            installed,
            ["leat-inbox", "leat-uploads", "leat-data-4d", "leat-data-32d", "leat-data-400d"]
        );
        let scopes: Vec<_> = rules.iter().map(|rule| (scope(rule).unwrap(), days(rule))).collect();
        assert_eq!(
            scopes,
            [
                ("inbox/", Some(1)),
                ("", None),
                ("data/4d/", Some(4)),
                ("data/32d/", Some(32)),
                ("data/400d/", Some(400)),
            ]
        );
        let (rules, installed) = changed(place("team/leat/").merge(&[]));
        assert_eq!(
            installed[..3],
            ["leat-inbox:team/leat", "leat-uploads:team/leat", "leat-data-4d:team/leat"]
        );
        let scopes: Vec<_> = rules.iter().map(|rule| scope(rule).unwrap()).collect();
        assert_eq!(scopes[..3], ["team/leat/inbox/", "team/leat/", "team/leat/data/4d/"]);
    }

    #[test]
    fn what_was_written_is_not_written_again() {
        let (rules, _) = changed(place("p/").merge(&[foreign("a"), foreign("b")]));
        assert_eq!(place("p/").merge(&rules), Ok(Merge::Unchanged { foreign: 2 }));
    }

    #[test]
    fn rules_of_others_stay_as_they_are_and_where_they_are() {
        let before = [foreign("leat-inbox:other"), foreign("z"), foreign("a")];
        let (rules, installed) = changed(place("p/").merge(&before));
        assert_eq!(rules[..3], before);
        assert_eq!((rules.len(), installed.len()), (8, 5));
        // Two stores in one bucket.
        let (both, _) = changed(place("q/").merge(&rules));
        assert_eq!(both[..8], rules);
        assert_eq!(place("p/").merge(&both), Ok(Merge::Unchanged { foreign: 8 }));
    }

    #[test]
    fn a_rule_of_ours_that_was_changed_is_put_back_in_its_place() {
        let (good, _) = changed(place("p/").merge(&[]));
        let mut disabled = good.clone();
        disabled[0].status = ExpirationStatus::Disabled;
        let mut longer = good.clone();
        longer[0].expiration = Some(LifecycleExpiration::builder().days(2).build());
        let mut elsewhere = good.clone();
        elsewhere[0].filter = Some(LifecycleRuleFilter::builder().prefix("").build());
        let mut moves = good.clone();
        moves[0].transitions = Some(vec![Transition::builder().days(0).build()]);
        let mut tagged = good.clone();
        tagged[0].filter.as_mut().unwrap().tag = Some(Tag::builder().key("k").value("v").build().unwrap());
        for bad in [disabled, longer, elsewhere, moves, tagged] {
            let (rules, installed) = changed(place("p/").merge(&bad));
            assert_eq!((rules, installed), (good.clone(), vec!["leat-inbox:p".to_owned()]), "{bad:?}");
        }
    }

    #[test]
    fn the_same_rule_written_otherwise_is_the_same() {
        let (mut rules, _) = changed(place("p/").merge(&[]));
        let and = LifecycleRuleAndOperator::builder().prefix("p/inbox/").object_size_greater_than(0).build();
        rules[0].filter = Some(LifecycleRuleFilter::builder().and(and).build());
        let plain = LifecycleExpiration::builder().days(1).expired_object_delete_marker(false).build();
        rules[0].expiration = Some(plain);
        assert_eq!(place("p/").merge(&rules), Ok(Merge::Unchanged { foreign: 0 }));
    }

    #[test]
    fn beside_rules_of_the_old_form_ours_take_it_too() {
        let mut old = foreign("old");
        to_old_form(&mut old);
        let (rules, _) = changed(place("p/").merge(&[old]));
        assert!(rules.iter().all(|rule| rule.filter.is_none()));
        let scopes: Vec<_> = rules.iter().map(|rule| scope(rule).unwrap()).collect();
        assert_eq!(scopes[..3], ["backups/", "p/inbox/", "p/"]);
        assert_eq!(place("p/").merge(&rules), Ok(Merge::Unchanged { foreign: 1 }));
    }

    #[test]
    fn a_thousand_rules_are_the_limit() {
        let many = |count: usize| (0..count).map(|number| foreign(&number.to_string())).collect::<Vec<_>>();
        assert_eq!(changed(place("").merge(&many(995))).0.len(), 1_000);
        let error = place("").merge(&many(996)).unwrap_err();
        assert!(error.to_string().contains("1001 lifecycle rules, of at most 1000"), "{error}");
    }

    fn noncurrent(prefix: &str) -> LifecycleRule {
        let expiry = NoncurrentVersionExpiration::builder().noncurrent_days(1).build();
        rule("old-versions", prefix).noncurrent_version_expiration(expiry).build().unwrap()
    }

    fn found(root: &str, state: &State) -> Vec<&'static str> {
        place(root).problems(state).iter().map(Problem::step).collect()
    }

    #[test]
    fn a_versioned_bucket_needs_an_expiry_that_covers_the_prefix() {
        let versioned = |rules: Vec<LifecycleRule>| State {
            rules,
            versioning: Some(BucketVersioningStatus::Enabled),
            ..State::default()
        };
        let keeps = ["versioning"];
        assert_eq!(found("p/", &versioned(vec![])), keeps);
        assert_eq!(found("p/", &versioned(vec![foreign("a")])), keeps);
        for (prefix, root) in [("", ""), ("", "p/"), ("p/", "p/"), ("p", "p/"), ("team/", "team/leat/")] {
            assert!(found(root, &versioned(vec![noncurrent(prefix)])).is_empty(), "{prefix} for {root}");
        }
        for (prefix, root) in [("p/", ""), ("q/", "p/"), ("p/manifest/", "p/"), ("team/leat/", "team/")] {
            assert_eq!(found(root, &versioned(vec![noncurrent(prefix)])), keeps, "{prefix} for {root}");
        }
        let mut off = noncurrent("");
        off.status = ExpirationStatus::Disabled;
        let mut keeps_some = noncurrent("");
        keeps_some.noncurrent_version_expiration.as_mut().unwrap().newer_noncurrent_versions = Some(3);
        let mut tagged = noncurrent("");
        tagged.filter.as_mut().unwrap().tag = Some(Tag::builder().key("k").value("v").build().unwrap());
        let mut large = noncurrent("");
        large.filter.as_mut().unwrap().object_size_greater_than = Some(1);
        for rule in [off, keeps_some, tagged, large] {
            assert_eq!(found("p/", &versioned(vec![rule.clone()])), keeps, "{rule:?}");
        }
    }

    #[test]
    fn what_else_is_wrong_is_found() {
        let encrypted = |algorithm: &str, bucket_key| State {
            encryption: Some(Encryption { algorithm: algorithm.into(), bucket_key }),
            ..State::default()
        };
        let suspended = State { versioning: Some(BucketVersioningStatus::Suspended), ..State::default() };
        let table = [
            (State::default(), vec![]),
            (suspended, vec![]),
            (State { object_lock: true, ..State::default() }, vec!["object lock"]),
            (encrypted("AES256", false), vec![]),
            (encrypted("aws:kms", true), vec![]),
            (encrypted("aws:kms", false), vec!["encryption"]),
            (encrypted("aws:kms:dsse", false), vec!["encryption"]),
        ];
        for (state, expected) in table {
            assert_eq!(found("p/", &state), expected, "{state:?}");
        }
    }

    #[test]
    fn resources_are_named_by_partition() {
        for (region, arn) in [
            ("eu-central-1", "arn:aws:s3:::logs"),
            ("cn-north-1", "arn:aws-cn:s3:::logs"),
            ("us-gov-west-1", "arn:aws-us-gov:s3:::logs"),
        ] {
            assert_eq!(Place { region: region.to_owned(), ..place("p/") }.arn(), arn);
        }
        let privilege = place("p/").objects_privilege();
        assert!(
            privilege.contains("s3:PutObject") && privilege.contains("arn:aws:s3:::logs/p/*"),
            "{privilege}"
        );
        assert!(Place { bucket: "logs--euc1-az1--x-s3".to_owned(), ..place("") }.is_directory());
        assert!(!place("").is_directory());
    }
}
