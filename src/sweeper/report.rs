//! What a pass has done, for people and for machines.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// What a pass has done, or in a dry run would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Due markers looked at.
    pub markers: u64,
    /// Live streams visited.
    pub streams_visited: u64,
    /// Lives of streams that are over, whose remains were removed.
    pub lives_cleared: u64,
    /// Streams that deleted themselves because they were empty for long enough.
    pub streams_deleted: u64,
    /// Basins whose deletion was completed.
    pub basins_deleted: u64,
    /// Objects removed.
    pub objects_removed: u64,
    /// Bytes of chunks among them.
    pub bytes_removed: u64,
    /// Objects among them that nothing had ever named.
    pub orphans_removed: u64,
    /// Small chunks that were merged into larger ones.
    pub chunks_merged: u64,
    /// Chunks that were copied to a longer data class.
    pub chunks_copied: u64,
    /// Streams whose chunks have waited for a day to be copied to a longer data class.
    pub copies_late: u64,
    /// Visits that failed; their markers stay, so the next pass tries again.
    pub failures: u64,
    /// Age of the oldest marker that was due, in seconds: how far the sweeper is behind.
    pub lag_seconds: u64,
    /// There is more that is due than one pass does.
    pub more_is_due: bool,
    /// Duration of the pass, in milliseconds.
    pub elapsed_ms: u64,
}

impl Report {
    /// Adds what another part of the same pass has done.
    pub(super) fn add(&mut self, other: &Self) {
        self.streams_visited += other.streams_visited;
        self.lives_cleared += other.lives_cleared;
        self.streams_deleted += other.streams_deleted;
        self.basins_deleted += other.basins_deleted;
        self.objects_removed += other.objects_removed;
        self.bytes_removed += other.bytes_removed;
        self.orphans_removed += other.orphans_removed;
        self.chunks_merged += other.chunks_merged;
        self.chunks_copied += other.chunks_copied;
        self.copies_late += other.copies_late;
        self.failures += other.failures;
    }

    /// Whether everything that was due is done, and nothing waits for too long.
    #[must_use]
    pub fn is_fine(&self) -> bool {
        self.failures == 0 && self.copies_late == 0
    }

    /// Writes one line to the log; the fields are what alarms are made of.
    pub fn log(&self) {
        tracing::info!(
            markers = self.markers,
            streams_visited = self.streams_visited,
            lives_cleared = self.lives_cleared,
            streams_deleted = self.streams_deleted,
            objects_removed = self.objects_removed,
            bytes_removed = self.bytes_removed,
            chunks_merged = self.chunks_merged,
            chunks_copied = self.chunks_copied,
            copies_late = self.copies_late,
            failures = self.failures,
            lag_seconds = self.lag_seconds,
            more_is_due = self.more_is_due,
            elapsed_ms = self.elapsed_ms,
            "swept"
        );
    }

    pub(super) fn took(&mut self, elapsed: Duration) {
        self.elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let would = if self.dry_run { "would have " } else { "" };
        writeln!(
            f,
            "{} markers due, the oldest for {} s{}",
            self.markers,
            self.lag_seconds,
            if self.more_is_due { "; more are due than one pass visits" } else { "" }
        )?;
        writeln!(
            f,
            "visited {} streams and {} ended lives, {would}deleted {} empty streams and {} basins",
            self.streams_visited, self.lives_cleared, self.streams_deleted, self.basins_deleted
        )?;
        writeln!(
            f,
            "{would}removed {} objects ({} bytes of records), {} of them orphans",
            self.objects_removed, self.bytes_removed, self.orphans_removed
        )?;
        writeln!(
            f,
            "{would}merged {} small chunks, {would}copied {} to a longer class",
            self.chunks_merged, self.chunks_copied
        )?;
        if self.copies_late > 0 {
            writeln!(
                f,
                "WARNING: {} streams wait for more than a day for copies to a longer class",
                self.copies_late
            )?;
        }
        if self.failures > 0 {
            writeln!(f, "{} visits failed and are tried again by the next pass", self.failures)?;
        }
        writeln!(f, "took {} ms", self.elapsed_ms)
    }
}
