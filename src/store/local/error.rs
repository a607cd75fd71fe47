//! What may go wrong in a folder, in words for people.

use std::io;
use std::path::{Path, PathBuf};

use crate::store::{Error, Operation, Source};

/// A folder or file that could not be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} `{}`: {reason}", path.display(), reason = reason(source))]
pub struct LocalError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl LocalError {
    pub(super) fn new(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self { action, path: path.to_owned(), source }
    }
}

/// A failed operation, before it is known which one and of which key.
#[derive(Debug)]
pub(super) enum Failure {
    /// The condition was not met.
    Conflict,
    /// Nothing was written, and trying again will not help.
    Refused(Source),
    /// Anything else.
    Indefinite(Source),
}

impl Failure {
    /// Of a step before the change becomes visible: a clear refusal is believed.
    pub(super) fn before(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            let refused = is_clear_refusal(source.kind());
            let source = Box::new(LocalError::new(action, path, source));
            if refused { Self::Refused(source) } else { Self::Indefinite(source) }
        }
    }

    /// Of a step after the change became visible.
    pub(super) fn after(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Indefinite(Box::new(LocalError::new(action, path, source)))
    }

    /// The error of the operation.
    pub(super) fn on(self, operation: Operation, key: &str) -> Error {
        let key = key.to_owned();
        match self {
            Self::Conflict => Error::Conflict { operation, key },
            Self::Refused(source) => Error::Refused { operation, key, source },
            Self::Indefinite(source) => Error::Indefinite { operation, key, source },
        }
    }
}

fn is_clear_refusal(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        kind,
        Kind::PermissionDenied
            | Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::DirectoryNotEmpty
            | Kind::ReadOnlyFilesystem
            | Kind::StorageFull
            | Kind::QuotaExceeded
            | Kind::FileTooLarge
            | Kind::InvalidFilename
            | Kind::InvalidData
    )
}

fn reason(source: &io::Error) -> String {
    use io::ErrorKind as Kind;
    match source.kind() {
        Kind::PermissionDenied => {
            "permission denied (is it owned by the user this process runs as?)".to_owned()
        }
        Kind::NotADirectory => "a part of this path is a file, not a folder".to_owned(),
        Kind::AlreadyExists => "a file stands where a folder should be".to_owned(),
        Kind::IsADirectory => "it is a folder, not a file".to_owned(),
        Kind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        Kind::StorageFull => "no space left on the device".to_owned(),
        Kind::InvalidFilename => "a part of this path is longer than the file system allows".to_owned(),
        _ => source.to_string(),
    }
}
