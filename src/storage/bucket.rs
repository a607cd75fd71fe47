//! Bucket records of Durable Streams (*pure*).
//!
//! ```text
//! bucket := frame( protobuf BucketProto )                  a register: field 1 is its head
//! ```

use bytes::Bytes;
use prost::Message;

use super::frame::{self, Damaged, Kind};
use super::head::{Head, HeadProto, State};
use crate::types::name::BucketName;

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketRecord {
    /// Version, life, state, ring. `Live`, `Deleting` while somebody looks whether it is empty, or `Tombstone`.
    pub head: Head,
    /// Its name; verified on every load.
    pub name: BucketName,
    /// Milliseconds since the Unix epoch.
    pub created_at_ms: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct BucketProto {
    #[prost(message, optional, tag = "1")]
    head: Option<HeadProto>,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(uint64, tag = "3")]
    created_at_ms: u64,
}

impl BucketRecord {
    /// The same bucket with another state, one version on.
    #[must_use]
    pub fn next(&self, state: State) -> Self {
        Self { head: self.head.next(self.head.incarnation, state), ..self.clone() }
    }

    /// The stored shape.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let proto = BucketProto {
            head: Some(self.head.to_proto()),
            name: self.name.as_str().to_owned(),
            created_at_ms: self.created_at_ms,
        };
        frame::seal(Kind::Bucket, &proto.encode_to_vec())
    }

    /// Reads the stored shape and checks whose it is.
    pub fn decode(bytes: &Bytes, name: &BucketName) -> Result<Self, Damaged> {
        let opened = frame::open(Kind::Bucket, "bucket record", bytes)?;
        let proto =
            BucketProto::decode(opened.payload).map_err(|e| Damaged::new("bucket record", e.to_string()))?;
        if proto.name != name.as_str() {
            return Err(Damaged::new("bucket record", format!("belongs to {:?}", proto.name)));
        }
        Ok(Self {
            head: Head::from_proto(proto.head.as_ref(), opened.min_writer)?,
            name: name.clone(),
            created_at_ms: proto.created_at_ms,
        })
    }

    /// Checks that `new` may follow `self` on one key. Unlike a basin, a bucket that was found not to be empty
    /// comes back; it ends only after it was looked at.
    pub fn check_transition(&self, new: &Self) -> Result<(), String> {
        new.head.check_follows(&self.head)?;
        if new.head.state == State::Tombstone && self.head.state != State::Deleting {
            return Err(format!("a bucket that is {:?} ends", self.head.state));
        }
        if new.name != self.name {
            return Err("a bucket changes its name".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::key::Incarnation;

    #[test]
    fn a_bucket_record_round_trips_under_its_name_only() {
        let name = BucketName::try_from("some_bucket").expect("legal");
        let record = BucketRecord {
            head: Head::first(Incarnation::fresh(), State::Live),
            name: name.clone(),
            created_at_ms: 5,
        };
        assert_eq!(BucketRecord::decode(&record.encode(), &name).as_ref(), Ok(&record));
        let other = BucketName::try_from("other_bucket").expect("legal");
        assert!(BucketRecord::decode(&record.encode(), &other).is_err());
        let looked_at = record.next(State::Deleting);
        record.check_transition(&looked_at).expect("it may be looked at");
        looked_at.check_transition(&looked_at.next(State::Live)).expect("it may come back");
        looked_at.check_transition(&looked_at.next(State::Tombstone)).expect("it may end");
        assert!(record.check_transition(&record.next(State::Tombstone)).is_err());
    }
}
