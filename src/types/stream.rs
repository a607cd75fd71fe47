//! Basins and streams as listings and creations show them.

use super::name::{BasinName, StreamName};

/// A basin in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasinInfo {
    /// Its name.
    pub name: BasinName,
    /// Milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// When its deletion was accepted, while that lasts; milliseconds since the Unix epoch.
    pub deleted_at_ms: Option<u64>,
}

/// A stream in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its name.
    pub name: StreamName,
    /// Milliseconds since the Unix epoch.
    pub created_at_ms: u64,
}

/// What a create or an ensure did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provision {
    /// Nothing was there.
    Created,
    /// It was there with another configuration.
    Updated,
    /// It was there as asked.
    Noop,
}

impl Provision {
    /// The value of `s2-provision-result`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Noop => "noop",
        }
    }
}

/// One page of a listing, in byte order of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// At most the limit asked for.
    pub items: Vec<T>,
    /// Whether at least one more match follows.
    pub has_more: bool,
}

/// What part of a listing to return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest<N> {
    /// Only names that begin with this.
    pub prefix: N,
    /// Only names after this one.
    pub start_after: N,
    /// At most this many, 1 to 1,000.
    pub limit: usize,
}
