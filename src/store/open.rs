//! From the address of a store to the store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use super::local::{LocalError, LocalStore};
use super::memory::memory;
use super::prefixed::Prefixed;
use super::s3::{S3Error, S3Options, s3};
use super::{Store, is_key};
use crate::types::limits::ROOT_PREFIX_BYTES_MAX;

/// Shortest and longest name of a bucket.
const BUCKET_BYTES: std::ops::RangeInclusive<usize> = 3..=63;

/// Where a store is: `s3://bucket[/prefix]`, `file:///folder` or `memory:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrl(Place);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    S3 { bucket: String, prefix: Option<String> },
    File(PathBuf),
    Memory,
}

/// Why a text is not the address of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// None of the forms.
    #[error("`{url}` is not a store: use `s3://bucket[/prefix]`, `file:///absolute/folder` or `memory:`")]
    Form {
        /// What was given.
        url: String,
    },
    /// A folder named from nowhere in particular.
    #[error("`{url}` does not name an absolute folder: write `file:///absolute/folder`, with three slashes")]
    RelativeFolder {
        /// What was given.
        url: String,
    },
    /// No bucket has such a name.
    #[error("`{bucket}` in `{url}` is not a bucket name: 3 to 63 of `a-z A-Z 0-9 . _ -`")]
    Bucket {
        /// What was given.
        url: String,
        /// The part that is wrong.
        bucket: String,
    },
    /// Keys cannot begin like that.
    #[error(
        "`{prefix}` in `{url}` cannot be a prefix of keys: at most {ROOT_PREFIX_BYTES_MAX} bytes of \
         `A-Z a-z 0-9 ! . _ / -` with no empty, `.` or `..` part"
    )]
    Prefix {
        /// What was given.
        url: String,
        /// The part that is wrong.
        prefix: String,
    },
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be used.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The options for S3 are not usable.
    #[error(transparent)]
    S3(#[from] S3Error),
}

impl StoreUrl {
    /// The bucket, and what every key in it begins with: nothing, or a text that ends in `/`.
    #[must_use]
    pub fn bucket(&self) -> Option<(&str, String)> {
        let Place::S3 { bucket, prefix } = &self.0 else { return None };
        Some((bucket, prefix.as_ref().map(|prefix| format!("{prefix}/")).unwrap_or_default()))
    }

    /// Where requests go: two stores of one place keep their word alike.
    #[must_use]
    pub fn place(&self, options: &S3Options) -> String {
        match &self.0 {
            Place::S3 { .. } => options.place(),
            Place::File(_) | Place::Memory => self.to_string(),
        }
    }
}

impl FromStr for StoreUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        if matches!(url, "memory:" | "memory://") {
            return Ok(Self(Place::Memory));
        }
        if let Some(folder) = url.strip_prefix("file:") {
            // `file:/folder` and `file:///folder` are the same by RFC 8089; with two slashes a host follows.
            let folder = folder.strip_prefix("//").unwrap_or(folder);
            if !Path::new(folder).is_absolute() {
                return Err(UrlError::RelativeFolder { url: url.to_owned() });
            }
            return Ok(Self(Place::File(PathBuf::from(folder))));
        }
        let Some(rest) = url.strip_prefix("s3://") else {
            return Err(UrlError::Form { url: url.to_owned() });
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if !is_bucket(bucket) {
            return Err(UrlError::Bucket { url: url.to_owned(), bucket: bucket.to_owned() });
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if prefix.len() > ROOT_PREFIX_BYTES_MAX || !(prefix.is_empty() || is_key(prefix)) {
            return Err(UrlError::Prefix { url: url.to_owned(), prefix: prefix.to_owned() });
        }
        let prefix = (!prefix.is_empty()).then(|| prefix.to_owned());
        Ok(Self(Place::S3 { bucket: bucket.to_owned(), prefix }))
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::S3 { bucket, prefix: None } => write!(f, "s3://{bucket}"),
            Place::S3 { bucket, prefix: Some(prefix) } => write!(f, "s3://{bucket}/{prefix}"),
            Place::File(folder) => write!(f, "file://{}", folder.display()),
            Place::Memory => f.write_str("memory:"),
        }
    }
}

fn is_bucket(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    BUCKET_BYTES.contains(&name.len()) && name.bytes().all(legal)
}

/// Opens a store. Sends nothing: whether it answers and keeps its word is for [`super::probe`] to find out.
pub fn open(url: &StoreUrl, options: &S3Options) -> Result<Arc<dyn Store>, OpenError> {
    match &url.0 {
        Place::Memory => Ok(memory()),
        Place::File(folder) => Ok(Arc::new(LocalStore::open(folder)?)),
        Place::S3 { bucket, prefix } => {
            let store = s3(bucket, options)?;
            Ok(match prefix {
                Some(prefix) => Arc::new(Prefixed::new(store, prefix)),
                None => store,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::store::ListQuery;

    #[test]
    fn addresses_have_three_forms() {
        for url in ["memory:", "file:///var/lib/leat", "s3://logs", "s3://logs/team/leat", "s3://b-k.x_1/p"] {
            assert_eq!(url.parse::<StoreUrl>().unwrap().to_string(), url);
        }
        let written =
            [("file:/a", "file:///a"), ("s3://logs/", "s3://logs"), ("s3://logs/p/", "s3://logs/p")];
        for (given, kept) in written {
            assert_eq!(given.parse::<StoreUrl>().unwrap().to_string(), kept);
        }
    }

    #[test]
    fn other_addresses_are_refused_by_name() {
        let long = format!("s3://logs/{}", "p".repeat(ROOT_PREFIX_BYTES_MAX + 1));
        let table = [
            ("", "is not a store"),
            ("logs", "is not a store"),
            ("gs://logs", "is not a store"),
            ("file://data", "absolute folder"),
            ("file:data", "absolute folder"),
            ("file:", "absolute folder"),
            ("s3://", "not a bucket name"),
            ("s3://ab", "not a bucket name"),
            ("s3://lo gs/p", "not a bucket name"),
            ("s3://logs//p", "prefix of keys"),
            ("s3://logs/a/../b", "prefix of keys"),
            ("s3://logs/pä", "prefix of keys"),
            (long.as_str(), "at most 64 bytes"),
        ];
        for (url, expected) in table {
            let said = url.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(said.contains(expected) && said.contains(&format!("`{url}`")), "{url}: {said}");
        }
    }

    #[test]
    fn an_endpoint_of_another_protocol_is_refused_by_name() {
        let options = S3Options::at("localhost:9000", "id", "hush");
        let said = open(&"s3://logs".parse().unwrap(), &options).unwrap_err().to_string();
        assert!(said.contains("`localhost:9000`") && said.contains("http://"), "{said}");
        assert!(!format!("{options:?}").contains("hush"));
    }

    #[test]
    fn a_bucket_is_not_opened_without_credentials() {
        let said = open(&"s3://logs".parse().unwrap(), &S3Options::default()).unwrap_err().to_string();
        assert!(said.contains("`logs`") && said.contains("no credentials"), "{said}");
    }

    #[test]
    fn a_probe_holds_for_a_place() {
        let place = |url: &str, options: &S3Options| url.parse::<StoreUrl>().unwrap().place(options);
        let aws = S3Options { region: Some("eu-central-1".to_owned()), ..S3Options::default() };
        assert_eq!(place("s3://logs/p", &aws), "https://s3.eu-central-1.amazonaws.com");
        assert_eq!(place("s3://logs", &S3Options::at("http://a:1", "i", "s")), "http://a:1");
        assert_eq!(place("file:///a", &aws), "file:///a");
    }

    #[tokio::test]
    async fn a_prefix_stands_before_every_key_and_is_not_seen() {
        let inner = memory();
        let store = Prefixed::new(inner.clone(), "team/leat");
        store.put("a/b", Bytes::from_static(b"x")).await.unwrap();
        inner.put("team/leat2", Bytes::new()).await.unwrap();
        assert!(inner.get("team/leat/a/b").await.unwrap().is_some());
        assert!(store.get("a/b").await.unwrap().is_some());
        let all = ListQuery { prefix: String::new(), start_after: None, limit: 10 };
        let keys: Vec<_> = store.list(all).await.unwrap().into_iter().map(|listed| listed.key).collect();
        assert_eq!(keys, ["a/b"]);
        let after = ListQuery { prefix: "a/".to_owned(), start_after: Some("a/b".to_owned()), limit: 10 };
        assert!(store.list(after).await.unwrap().is_empty());
    }
}
