//! Keys, formats and typed objects: how streams lie in a bucket.

pub mod bucket;
pub mod chunk;
mod config;
pub mod documents;
pub mod frame;
pub mod head;
pub mod identity;
pub mod index;
pub mod key;
pub mod ledger;
pub mod manifest;
pub mod meta;
pub mod opening;
pub mod producers;
pub mod record;
pub mod register;
pub mod tail;
pub mod upkeep;

use crate::store;

/// Why a stored document could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store gave no clear answer to a read, or refused a request: nothing was written.
    #[error(transparent)]
    Store(store::Error),
    /// What the store holds cannot be read.
    #[error("`{key}` cannot be read")]
    Damaged {
        /// Which object.
        key: String,
        /// What is wrong with it.
        #[source]
        source: frame::Damaged,
    },
    /// A newer version of Leat writes this register; this one may only read it.
    #[error("`{key}` needs a writer of format {min_writer} or newer: update Leat")]
    NewerFormat {
        /// Which register.
        key: String,
        /// The oldest format that may write it.
        min_writer: u8,
    },
    /// A write was about to break an invariant; nothing was sent.
    #[error("refusing to write `{key}`: {why}")]
    Invariant {
        /// Which register.
        key: String,
        /// Which invariant.
        why: String,
    },
    /// The deadline passed before the change was sent.
    #[error("the time for changing `{key}` was over before the change could be sent")]
    Expired {
        /// Which register.
        key: String,
    },
    /// Nobody can know whether the write happened.
    #[error("it is unknown whether the change of `{key}` happened: {why}")]
    Indefinite {
        /// Which register.
        key: String,
        /// Why it cannot be known.
        why: &'static str,
        /// The last thing the store said.
        #[source]
        source: Option<Box<store::Error>>,
    },
}

impl Error {
    /// Names the object that cannot be read.
    pub fn damaged(key: impl Into<String>, source: frame::Damaged) -> Self {
        Self::Damaged { key: key.into(), source }
    }

    /// Whether a write may have happened.
    #[must_use]
    pub fn is_indefinite(&self) -> bool {
        match self {
            Self::Indefinite { .. } => true,
            Self::Store(_)
            | Self::Damaged { .. }
            | Self::NewerFormat { .. }
            | Self::Invariant { .. }
            | Self::Expired { .. } => false,
        }
    }
}
