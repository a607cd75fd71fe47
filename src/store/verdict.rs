//! What a failed request of the `object_store` library lets its caller conclude.
//!
//! The library has a variant for the common answers; for the rest the status is only in the text of its error
//! (the type below it is private), so it is read from there. The tests send real HTTP answers through the
//! library: a new version that words its errors differently fails them.

use super::credentials::NoCredentials;
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
        return Box::new(NoSuchPlace { place: place.to_owned(), source: error });
    }
    match error {
        // It says all there is to say.
        object_store::Error::Unauthenticated { source, .. } if source.is::<NoCredentials>() => source,
        error => Box::new(error),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::store::{ETag, Fetched, S3Options, Store, open};

    /// A server that gives one answer to everything, and counts.
    async fn server(answer: String) -> (Arc<dyn Store>, Arc<AtomicUsize>) {
        server_of(vec![answer]).await
    }

    /// A server that gives these answers in turn, then the last for ever.
    async fn server_of(answers: Vec<String>) -> (Arc<dyn Store>, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let mut head = vec![0; 64 * 1024];
                let _ = connection.read(&mut head).await;
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let answer = &answers[number.min(answers.len() - 1)];
                let _ = connection.write_all(answer.as_bytes()).await;
            }
        });
        let options = S3Options::at(&endpoint, "key", "secret");
        (open(&"s3://logs/p".parse().unwrap(), &options).unwrap(), requests)
    }

    fn answer(status: &str, code: &str) -> String {
        let body = format!("<Error><Code>{code}</Code><Message>m</Message></Error>");
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
    }

    fn kind<T>(outcome: crate::store::Result<T>) -> &'static str {
        outcome.map_or_else(
            |error| match error {
                Error::Conflict { .. } => "conflict",
                Error::Refused { .. } => "refused",
                Error::Indefinite { .. } => "indefinite",
            },
            |_| "ok",
        )
    }

    #[tokio::test]
    async fn conditional_writes_are_sent_once_and_judged_by_the_answer() {
        let table = [
            ("412 Precondition Failed", "PreconditionFailed", "conflict", "conflict"),
            ("409 Conflict", "ConditionalRequestConflict", "conflict", "conflict"),
            ("404 Not Found", "NoSuchKey", "refused", "conflict"),
            ("404 Not Found", "NoSuchBucket", "refused", "refused"),
            ("400 Bad Request", "ExpiredToken", "refused", "refused"),
            ("403 Forbidden", "AccessDenied", "refused", "refused"),
            ("401 Unauthorized", "Unauthorized", "refused", "refused"),
            ("301 Moved Permanently", "PermanentRedirect", "refused", "refused"),
            ("501 Not Implemented", "NotImplemented", "refused", "refused"),
            ("408 Request Timeout", "RequestTimeout", "indefinite", "indefinite"),
            ("429 Too Many Requests", "SlowDown", "indefinite", "indefinite"),
            ("500 Internal Server Error", "InternalError", "indefinite", "indefinite"),
            ("503 Service Unavailable", "SlowDown", "indefinite", "indefinite"),
        ];
        for (status, code, created, replaced) in table {
            let (store, requests) = server(answer(status, code)).await;
            assert_eq!(kind(store.create("k", Bytes::new()).await), created, "create, {status} {code}");
            let etag = ETag::new("\"e\"".to_owned());
            assert_eq!(
                kind(store.replace("k", Bytes::new(), &etag).await),
                replaced,
                "replace, {status} {code}"
            );
            assert_eq!(requests.load(Ordering::SeqCst), 2, "{status} {code}");
        }
    }

    #[tokio::test]
    async fn a_lost_answer_to_a_conditional_write_is_indefinite_and_not_repeated() {
        for answer in ["", "HTTP/1.1 200 OK\r\ncontent-le"] {
            let (store, requests) = server(answer.to_owned()).await;
            assert_eq!(kind(store.create("k", Bytes::new()).await), "indefinite");
            assert_eq!(requests.load(Ordering::SeqCst), 1);
        }
    }

    #[tokio::test]
    async fn a_write_without_an_etag_in_its_answer_is_indefinite() {
        let (store, _) =
            server("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned()).await;
        assert_eq!(kind(store.create("k", Bytes::new()).await), "indefinite");
    }

    #[tokio::test]
    async fn a_missing_bucket_is_named_and_never_taken_for_a_missing_object() {
        let (store, _) = server(answer("404 Not Found", "NoSuchBucket")).await;
        let error = store.get("k").await.unwrap_err();
        let Error::Refused { source, .. } = error else { panic!("{error}") };
        assert!(source.to_string().contains("bucket `logs` does not exist"), "{source}");
        let etag = ETag::new("\"e\"".to_owned());
        assert_eq!(kind(store.get_if_changed("k", &etag).await), "refused");
        assert_eq!(kind(store.get_range("k", 0..1).await), "refused");
        assert_eq!(kind(store.put("k", Bytes::new()).await), "refused");
        assert_eq!(kind(store.delete("k").await), "refused");
    }

    #[tokio::test]
    async fn what_may_be_repeated_is_retried() {
        let good = "HTTP/1.1 200 OK\r\netag: \"e\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let (store, requests) = server_of(vec![answer("503 Slow", "SlowDown"), good.to_owned()]).await;
        assert_eq!(kind(store.put("k", Bytes::new()).await), "ok");
        assert_eq!(requests.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_refusal_of_a_retried_write_says_nothing_about_its_first_attempt() {
        let answers = vec![answer("500 Oops", "InternalError"), answer("403 Forbidden", "ExpiredToken")];
        let (store, _) = server_of(answers.clone()).await;
        assert_eq!(kind(store.put("k", Bytes::new()).await), "indefinite");
        let (store, _) = server_of(answers).await;
        assert_eq!(kind(store.get("k").await), "refused");
    }

    #[tokio::test]
    async fn a_missing_object_is_absent() {
        let (store, _) = server(answer("404 Not Found", "NoSuchKey")).await;
        assert!(store.get("k").await.unwrap().is_none());
        let etag = ETag::new("\"e\"".to_owned());
        assert!(matches!(store.get_if_changed("k", &etag).await.unwrap(), Fetched::Absent));
        assert!(store.get_range("k", 0..1).await.unwrap().is_none());
        assert_eq!(kind(store.delete("k").await), "ok");
    }

    #[tokio::test]
    async fn a_range_beyond_the_end_is_empty() {
        let (store, _) = server(answer("416 Range Not Satisfiable", "InvalidRange")).await;
        assert_eq!(store.get_range("k", 5..9).await.unwrap().unwrap(), Bytes::new());
    }

    #[tokio::test]
    async fn a_store_that_ignores_ranges_is_cut_to_size() {
        let whole = "HTTP/1.1 200 OK\r\netag: \"e\"\r\nlast-modified: Mon, 30 Nov 2026 12:00:00 GMT\r\n\
                     content-length: 6\r\nconnection: close\r\n\r\nabcdef";
        let (store, _) = server(whole.to_owned()).await;
        assert_eq!(store.get_range("k", 2..4).await.unwrap().unwrap(), "cd");
        assert_eq!(store.get_range("k", 4..9).await.unwrap().unwrap(), "ef");
        let object = store.get("k").await.unwrap().unwrap();
        assert_eq!((object.etag.as_str(), object.last_modified_ms), ("\"e\"", 1_796_040_000_000));
    }
}
