//! One file: a random version in front of the content.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::Path;
use std::time::UNIX_EPOCH;

use bytes::Bytes;

use crate::store::{ETag, Fetched, Object};
use crate::types::time::Clock;

/// Bytes of the version in front of the content.
pub(super) const VERSION_BYTES: usize = 16;

/// The version of an object; its hex form is the e-tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version([u8; VERSION_BYTES]);

impl Version {
    /// One that never was and never will be again.
    #[allow(clippy::disallowed_methods, reason = "storage/key.rs is above this layer")]
    pub(super) fn fresh() -> Self {
        let mut random = [0; VERSION_BYTES];
        getrandom::fill(&mut random).expect("the system has a source of random bytes");
        Self(random)
    }

    /// The version an e-tag names, or `None` if it is none of ours.
    pub(super) fn parse(etag: &ETag) -> Option<Self> {
        let bytes = data_encoding::HEXLOWER.decode(etag.as_str().as_bytes()).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// As text.
    pub(super) fn hex(self) -> String {
        data_encoding::HEXLOWER.encode(&self.0)
    }

    /// As an e-tag.
    pub(super) fn etag(self) -> ETag {
        ETag::new(self.hex())
    }
}

/// Whether an error says that nothing is there: also if a folder is, or if a part of the path is a file.
pub(super) fn means_absent(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::NotFound | Kind::NotADirectory | Kind::IsADirectory)
}

/// The version at a path, or `None` if there is no object.
pub(super) fn version(path: &Path) -> io::Result<Option<Version>> {
    Ok(open(path)?.map(|(_, version)| version))
}

/// The object at a path.
pub(super) fn read(path: &Path) -> io::Result<Option<Object>> {
    match open(path)? {
        Some((file, version)) => read_rest(file, version).map(Some),
        None => Ok(None),
    }
}

/// The object at a path, if its version is not the known one.
pub(super) fn read_if_changed(path: &Path, known: Option<Version>) -> io::Result<Fetched> {
    match open(path)? {
        Some((_, version)) if Some(version) == known => Ok(Fetched::Unchanged),
        Some((file, version)) => read_rest(file, version).map(Fetched::Changed),
        None => Ok(Fetched::Absent),
    }
}

/// Part of the content at a path, clipped to its size.
pub(super) fn read_range(path: &Path, range: Range<u64>) -> io::Result<Option<Bytes>> {
    let Some((mut file, _)) = open(path)? else { return Ok(None) };
    let size = content_bytes(&file.metadata()?);
    let start = range.start.min(size);
    let wanted = range.end.min(size).saturating_sub(start);
    file.seek(SeekFrom::Start(start + VERSION_BYTES as u64))?;
    let mut bytes = Vec::with_capacity(usize::try_from(wanted).unwrap_or(0));
    file.take(wanted).read_to_end(&mut bytes)?;
    Ok(Some(bytes.into()))
}

/// Writes a new file and waits until it is on the disk.
pub(super) fn write(path: &Path, version: Version, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(&version.0)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Waits until the names in a folder are on the disk.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes the folders from `root` (which exists) down to `folder`, and syncs the parents of those it made.
///
/// One that another process made and did not sync yet is synced by that process, and by journaled file systems
/// together with our own file.
pub(super) fn make_folders(root: &Path, folder: &Path) -> io::Result<()> {
    let below = folder.strip_prefix(root).map_err(io::Error::other)?;
    let mut parent = root.to_path_buf();
    for part in below.components() {
        let child = parent.join(part);
        match DirBuilder::new().create(&child) {
            Ok(()) => match sync_folder(&parent) {
                Err(failed) if failed.kind() != io::ErrorKind::NotFound => return Err(failed),
                _ => {}
            },
            Err(there) if there.kind() == io::ErrorKind::AlreadyExists => {}
            // Removed as empty by another process meanwhile: the caller begins again.
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(failed) => return Err(failed),
        }
        parent = child;
    }
    Ok(())
}

/// When the object was written.
pub(super) fn modified_ms(metadata: &Metadata) -> u64 {
    let since = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| u64::try_from(since.as_millis()).ok()).unwrap_or(0)
}

/// The size of the object in a file of ours.
pub(super) fn content_bytes(metadata: &Metadata) -> u64 {
    metadata.len().saturating_sub(VERSION_BYTES as u64)
}

fn open(path: &Path) -> io::Result<Option<(File, Version)>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(absent) if means_absent(&absent) => return Ok(None),
        Err(failed) => return Err(failed),
    };
    let mut version = [0; VERSION_BYTES];
    match file.read_exact(&mut version) {
        Ok(()) => Ok(Some((file, Version(version)))),
        // Opening a folder succeeds, reading it does not.
        Err(folder) if folder.kind() == io::ErrorKind::IsADirectory => Ok(None),
        Err(short) if short.kind() == io::ErrorKind::UnexpectedEof => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "it is too short to be a file of Leat"))
        }
        Err(failed) => Err(failed),
    }
}

fn read_rest(mut file: File, version: Version) -> io::Result<Object> {
    let metadata = file.metadata()?;
    let mut bytes = Vec::with_capacity(usize::try_from(content_bytes(&metadata)).unwrap_or(0));
    file.read_to_end(&mut bytes)?;
    Ok(Object {
        bytes: bytes.into(),
        etag: version.etag(),
        last_modified_ms: modified_ms(&metadata),
        answered_ms: Some(Clock::system().local_ms()),
    })
}
