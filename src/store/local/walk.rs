//! Listing a folder in byte order of whole keys, entering only what a page needs.

use std::fs::{DirEntry, FileType};
use std::io;
use std::path::Path;

use super::OWN_FOLDER;
use super::error::Failure;
use super::file::{VERSION_BYTES, content_bytes, means_absent, modified_ms};
use crate::store::{ListQuery, Listed};

/// A name in a folder: its text is the key of a file, or the beginning of all keys in a folder, with its `/`.
struct Entry {
    text: String,
    entry: DirEntry,
    kind: FileType,
}

/// One page of keys.
pub(super) fn page(root: &Path, query: &ListQuery) -> Result<Vec<Listed>, Failure> {
    let mut listed = Vec::new();
    // Begin in the deepest folder that holds every key with the prefix.
    let begin = query.prefix.rfind('/').and_then(|slash| query.prefix.get(..=slash)).unwrap_or("");
    if begin.split('/').next() == Some(OWN_FOLDER) {
        return Ok(listed);
    }
    let folder = root.join(begin);
    walk(&folder, begin, query, &mut listed).map_err(Failure::before("list", &folder))?;
    Ok(listed)
}

/// Adds what is in `folder`, whose keys begin with `begin`. Goes as deep as keys have parts.
fn walk(folder: &Path, begin: &str, query: &ListQuery, listed: &mut Vec<Listed>) -> io::Result<()> {
    let mut entries = match entries(folder, begin, query) {
        Ok(entries) => entries,
        // Removed meanwhile, or never there.
        Err(absent) if means_absent(&absent) => return Ok(()),
        Err(failed) => return Err(failed),
    };
    // A folder sorts with its `/`, as its keys do: `a!` < `a/b` < `a0`.
    entries.sort_unstable_by(|left, right| left.text.cmp(&right.text));
    // A file replaced during the walk may be met twice.
    entries.dedup_by(|left, right| left.text == right.text);
    for Entry { text, entry, kind } in entries {
        if listed.len() >= query.limit {
            return Ok(());
        }
        if kind.is_dir() {
            walk(&entry.path(), &text, query, listed)?;
            continue;
        }
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            Err(absent) if means_absent(&absent) => continue,
            Err(failed) => return Err(failed),
        };
        // Shorter files are not ours.
        if metadata.len() >= VERSION_BYTES as u64 {
            let last_modified_ms = modified_ms(&metadata);
            listed.push(Listed { key: text, size: content_bytes(&metadata), last_modified_ms });
        }
    }
    Ok(())
}

/// The entries of a folder that are, or may hold, keys the query wants.
fn entries(folder: &Path, begin: &str, query: &ListQuery) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // Keys are ASCII: any other name is not ours.
        let Ok(name) = entry.file_name().into_string() else { continue };
        if begin.is_empty() && name == OWN_FOLDER {
            continue;
        }
        // Some file systems look the kind up, and the file may be gone by then. The folder is not.
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(gone) if means_absent(&gone) => continue,
            Err(failed) => return Err(failed),
        };
        let wanted = if kind.is_dir() {
            let text = format!("{begin}{name}/");
            may_hold(&text, query).then_some(text)
        } else if kind.is_file() {
            Some(format!("{begin}{name}")).filter(|text| query.admits(text))
        } else {
            None
        };
        if let Some(text) = wanted {
            entries.push(Entry { text, entry, kind });
        }
    }
    Ok(entries)
}

/// Whether a folder whose keys all begin with `text` may hold a key the query wants.
fn may_hold(text: &str, query: &ListQuery) -> bool {
    let in_prefix = text.starts_with(&query.prefix) || query.prefix.starts_with(text);
    let past =
        query.start_after.as_ref().is_some_and(|after| text <= after.as_str() && !after.starts_with(text));
    in_prefix && !past
}
