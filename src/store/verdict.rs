//! What a failed request of the `object_store` library lets its caller conclude.
//!
//! The library has a variant for the common answers; for the rest the status is only in the text of its error
//! (the type below it is private), so it is read from there. The tests send real HTTP answers through the
//! library: a new version that words its errors differently fails them.

use super::{Error, Operation, Source};

/// The bucket itself is missing.
#[derive(Debug, thiserror::Error)]
#[error("{place} does not exist; create it, or name another one")]
struct NoSuchPlace {
    place: String,
    #[source]
    source: object_store::Error,
}

/// The answer to a request whose failure is not part of the operation's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Conflict,
    Refused,
    Indefinite,
}

/// Turns the library's error into ours. `place` names the bucket, for people.
pub(super) fn translate(place: &str, operation: Operation, key: &str, error: object_store::Error) -> Error {
    let key = key.to_owned();
    match judge(operation, &error) {
        Verdict::Conflict => Error::Conflict { operation, key },
        Verdict::Refused => Error::Refused { operation, key, source: explain(place, error) },
        Verdict::Indefinite => Error::Indefinite { operation, key, source: Box::new(error) },
    }
}

/// Whether a 404 is about the bucket rather than the key.
pub(super) fn is_missing_bucket(error: &object_store::Error) -> bool {
    // Keys cannot contain `<`, so this is the store's own XML.
    error.to_string().contains("<Code>NoSuchBucket</Code>")
}

/// The HTTP status in the library's error, if it had an answer at all.
pub(super) fn status(error: &object_store::Error) -> Option<u16> {
    let text = error.to_string();
    let (_, after) = text.split_once("status code: ")?;
    after.get(..3)?.parse().ok()
}

fn explain(place: &str, error: object_store::Error) -> Source {
    if is_missing_bucket(&error) {
        Box::new(NoSuchPlace { place: place.to_owned(), source: error })
    } else {
        Box::new(error)
    }
}

fn judge(operation: Operation, error: &object_store::Error) -> Verdict {
    use object_store::Error as E;
    let conditional = matches!(operation, Operation::Create | Operation::Replace);
    let verdict = match error {
        _ if is_missing_bucket(error) => Verdict::Refused,
        E::Precondition { .. } | E::AlreadyExists { .. } | E::NotModified { .. } if conditional => {
            Verdict::Conflict
        }
        // S3 answers 404 to an `If-Match` on a missing key. On a create it can only mean a missing bucket.
        E::NotFound { .. } if operation == Operation::Replace => Verdict::Conflict,
        E::Precondition { .. } | E::AlreadyExists { .. } | E::NotModified { .. } => Verdict::Indefinite,
        E::NotFound { .. }
        | E::PermissionDenied { .. }
        | E::Unauthenticated { .. }
        | E::InvalidPath { .. }
        | E::NotSupported { .. }
        | E::NotImplemented { .. }
        | E::UnknownConfigurationKey { .. } => Verdict::Refused,
        _ => judge_status(error),
    };
    // An earlier attempt of a retried write may have landed, whatever the last one was told.
    let write = !matches!(operation, Operation::Get | Operation::GetRange | Operation::List);
    if verdict == Verdict::Refused && write && was_retried(error) {
        return Verdict::Indefinite;
    }
    verdict
}

fn judge_status(error: &object_store::Error) -> Verdict {
    match status(error) {
        Some(408 | 409 | 412 | 429) => Verdict::Indefinite,
        // 501: the store does not know a header of ours, and says so before it acts. 3xx: the wrong region.
        Some(501 | 300..=499) => Verdict::Refused,
        None if error.to_string().contains("redirect without LOCATION") => Verdict::Refused,
        _ => Verdict::Indefinite,
    }
}

fn was_retried(error: &object_store::Error) -> bool {
    error.to_string().contains("retries, max_retries:")
}
