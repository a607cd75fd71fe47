//! What this door reads and writes, against the types that the official clients are made of: encoded by theirs
//! and decoded by ours, and back.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use prost::Message;
use s2_api::data::Format as TheirFormat;
use s2_api::v1::config as their_config;
use s2_api::v1::error::ErrorCode;
use s2_api::v1::stream::s2s::{CompressionAlgorithm, FrameDecoder, SessionMessage, TerminalMessage};
use s2_api::v1::stream::{self as their_json, proto as theirs};
use s2_api::v1::{basin as their_basin, location::LocationInfo as TheirLocationInfo};
use s2_common::record::{self as their_record, MeteredExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::codec::Decoder as _;

use super::error::{Code, Error};
use super::frame::{self, Decoder};
use super::proto;
use super::wire::config::{BasinConfig, BasinReconfiguration, StreamConfig, StreamReconfiguration};
use super::wire::records::{AppendAck, ReadBatch, append_input};
use super::wire::resources::{CreateBasin, ListBasins, ListStreams, LocationInfo};
use super::wire::{Format, parse};
use crate::api::compression::Coding;
use crate::types::config::{self, RetentionPolicy, StorageClass, TimestampingMode};
use crate::types::name::{BasinName, StreamName};
use crate::types::{record, stream};

const CODINGS: [(Option<Coding>, CompressionAlgorithm); 3] = [
    (None, CompressionAlgorithm::None),
    (Some(Coding::Zstd), CompressionAlgorithm::Zstd),
    (Some(Coding::Gzip), CompressionAlgorithm::Gzip),
];

/// Writes with one side and reads with the other.
fn through_json<T: DeserializeOwned>(value: &impl Serialize) -> T {
    let json = serde_json::to_string(value).unwrap();
    serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e}: {json}"))
}

fn blob() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..20),
        1 => (any::<u8>(), 1_000..5_000_usize).prop_map(|(byte, len)| vec![byte; len]),
    ]
    .prop_map(Bytes::from)
}

/// Headers, now and then those of a command or of what looks like one.
fn headers() -> impl Strategy<Value = Vec<theirs::Header>> {
    let any_header = (blob(), blob()).prop_map(|(name, value)| theirs::Header { name, value });
    let command = prop_oneof![Just("fence"), Just("trim"), Just("other")]
        .prop_map(|value| vec![theirs::Header { name: Bytes::new(), value: value.into() }]);
    prop_oneof![4 => prop::collection::vec(any_header, 0..4), 1 => command]
}

fn append_record() -> impl Strategy<Value = theirs::AppendRecord> {
    let body = prop_oneof![3 => blob(), 1 => prop::collection::vec(any::<u8>(), 8).prop_map(Bytes::from)];
    (any::<Option<u64>>(), headers(), body).prop_map(|(timestamp, headers, body)| theirs::AppendRecord {
        timestamp,
        headers,
        body,
    })
}

fn their_input() -> impl Strategy<Value = theirs::AppendInput> {
    let records = prop::collection::vec(append_record(), 0..5);
    (records, any::<Option<u64>>(), prop::option::of("[a-zé]{0,40}")).prop_map(
        |(records, match_seq_num, fencing_token)| theirs::AppendInput {
            records,
            match_seq_num,
            fencing_token,
        },
    )
}

fn position() -> impl Strategy<Value = record::StreamPosition> {
    (any::<u64>(), any::<u64>())
        .prop_map(|(seq_num, timestamp)| record::StreamPosition { seq_num, timestamp })
}

/// A batch as a read yields it: names of headers are not empty.
fn our_batch() -> impl Strategy<Value = record::ReadBatch> {
    let header = ("[a-z]{1,9}", blob()).prop_map(|(name, value)| record::Header { name: name.into(), value });
    let one = (position(), prop::collection::vec(header, 0..3), blob()).prop_map(|(at, headers, body)| {
        record::SequencedRecord { seq_num: at.seq_num, timestamp: at.timestamp, headers, body }
    });
    (prop::collection::vec(one, 0..5), prop::option::of(position()))
        .prop_map(|(records, tail)| record::ReadBatch { records, tail })
}

fn their_position(p: record::StreamPosition) -> theirs::StreamPosition {
    theirs::StreamPosition { seq_num: p.seq_num, timestamp: p.timestamp }
}

fn their_sequenced(r: &record::SequencedRecord) -> theirs::SequencedRecord {
    let headers = r.headers.iter();
    theirs::SequencedRecord {
        seq_num: r.seq_num,
        timestamp: r.timestamp,
        headers: headers.map(|h| theirs::Header { name: h.name.clone(), value: h.value.clone() }).collect(),
        body: r.body.clone(),
    }
}

/// The same batch as their domain has it.
fn their_batch(batch: &record::ReadBatch) -> s2_common::stream::ReadBatch {
    let records = batch.records.iter().map(|r| {
        let headers = r.headers.iter();
        let headers =
            headers.map(|h| their_record::Header { name: h.name.clone(), value: h.value.clone() }).collect();
        let record = their_record::Record::try_from_parts(headers, r.body.clone()).expect("no command");
        let at = their_record::StreamPosition { seq_num: r.seq_num, timestamp: r.timestamp };
        record.metered().sequenced(at)
    });
    let tail = batch.tail;
    s2_common::stream::ReadBatch {
        records: records.collect(),
        tail: tail.map(|t| their_record::StreamPosition { seq_num: t.seq_num, timestamp: t.timestamp }),
    }
}

fn storage_class() -> impl Strategy<Value = Option<StorageClass>> {
    prop::option::of(prop_oneof![Just(StorageClass::Standard), Just(StorageClass::Express)])
}

fn stream_config() -> impl Strategy<Value = config::StreamConfigLayer> {
    let retention =
        prop_oneof![Just(RetentionPolicy::Infinite), (1..1_u64 << 40).prop_map(RetentionPolicy::Age)];
    let mode = prop_oneof![
        Just(TimestampingMode::ClientPrefer),
        Just(TimestampingMode::ClientRequire),
        Just(TimestampingMode::Arrival)
    ];
    (
        storage_class(),
        prop::option::of(retention),
        prop::option::of(mode),
        any::<Option<bool>>(),
        any::<Option<u64>>(),
    )
        .prop_map(|(storage_class, retention_policy, timestamping_mode, uncapped, min_age)| {
            config::StreamConfigLayer {
                storage_class,
                retention_policy,
                timestamping_mode,
                timestamping_uncapped: uncapped,
                delete_on_empty_min_age_secs: min_age,
            }
        })
}

fn basin_config() -> impl Strategy<Value = config::BasinConfig> {
    (stream_config(), any::<bool>(), any::<bool>()).prop_map(|(default_stream_config, append, read)| {
        config::BasinConfig {
            default_stream_config,
            create_stream_on_append: append,
            create_stream_on_read: read,
        }
    })
}

proptest! {
    #[test]
    fn their_inputs_are_read_and_refused_as_they_would(input in their_input()) {
        let ours = proto::decode_append(input.encode_to_vec().into());
        let checked = s2_common::stream::AppendInput::try_from(input.clone());
        prop_assert_eq!(ours.is_ok(), checked.is_ok(), "{:?} {:?}", ours, checked);
        if let Ok(ours) = ours {
            prop_assert_eq!(ours.match_seq_num, input.match_seq_num);
            prop_assert_eq!(ours.fencing_token.as_ref().map(|t| t.as_str()), input.fencing_token.as_deref());
            let records: Vec<_> = ours.records().iter().map(|r| theirs::AppendRecord {
                timestamp: r.timestamp,
                headers: r.headers.iter().map(|h| theirs::Header { name: h.name.clone(), value: h.value.clone() }).collect(),
                body: r.body.clone(),
            }).collect();
            prop_assert_eq!(records, input.records);
        }
    }

    #[test]
    fn our_acks_are_read_by_theirs(start in position(), end in position(), tail in position()) {
        let ack = record::AppendAck { start, end, tail, life: [0; 16] };
        let read = theirs::AppendAck::decode(&proto::encode_ack(ack)[..]).unwrap();
        prop_assert_eq!(read, theirs::AppendAck {
            start: Some(their_position(start)),
            end: Some(their_position(end)),
            tail: Some(their_position(tail)),
        });
        let to_theirs = |p: record::StreamPosition| their_json::StreamPosition { seq_num: p.seq_num, timestamp: p.timestamp };
        let json = their_json::AppendAck { start: to_theirs(start), end: to_theirs(end), tail: to_theirs(tail) };
        prop_assert_eq!(serde_json::to_value(AppendAck::from(ack)).unwrap(), serde_json::to_value(json).unwrap());
    }

    #[test]
    fn our_batches_are_read_by_theirs_in_frames_of_every_coding(batch in our_batch()) {
        let expected = theirs::ReadBatch {
            records: batch.records.iter().map(their_sequenced).collect(),
            tail: batch.tail.map(their_position),
        };
        prop_assert_eq!(&expected, &theirs::ReadBatch::from(their_batch(&batch)));
        for (coding, _) in CODINGS {
            let mut bytes = BytesMut::from(&frame::encode_with(coding, |out| proto::encode_batch_into(batch.clone(), out))[..]);
            let Some(SessionMessage::Regular(data)) = FrameDecoder.decode(&mut bytes).unwrap() else {
                panic!("no message")
            };
            prop_assert!(bytes.is_empty() && !data.reconnect_advised());
            prop_assert_eq!(&data.try_into_proto::<theirs::ReadBatch>().unwrap(), &expected);
        }
    }

    #[test]
    fn their_frames_of_every_coding_are_read_in_pieces(inputs in prop::collection::vec(their_input(), 0..4), piece in 1..2_000_usize) {
        for (_, coding) in CODINGS {
            let bytes: Vec<u8> = inputs.iter().flat_map(|i| SessionMessage::regular(coding, i).unwrap().encode()).collect();
            let mut decoder = Decoder::default();
            let mut messages = Vec::new();
            for piece in bytes.chunks(piece) {
                decoder.push(piece);
                while let Some(message) = decoder.next().unwrap() {
                    messages.push(message);
                }
            }
            prop_assert!(decoder.is_between_frames());
            prop_assert_eq!(messages, inputs.iter().map(Message::encode_to_vec).collect::<Vec<_>>());
        }
    }

    #[test]
    fn our_terminal_frames_are_read_by_theirs_and_theirs_are_refused(message in ".{0,50}", seq_num: u64) {
        for error in [Error::invalid(message), Error::SeqNumMismatch(seq_num), Error::draining()] {
            let mut bytes = BytesMut::from(&frame::encode_terminal(&error)[..]);
            let body = String::from_utf8(error.body()).unwrap();
            let terminal = TerminalMessage { status: error.status().as_u16(), body };
            prop_assert_eq!(FrameDecoder.decode(&mut bytes).unwrap(), Some(terminal.clone().into()));
            let mut decoder = Decoder::default();
            decoder.push(&SessionMessage::from(terminal).encode());
            let refused = decoder.next().unwrap_err();
            prop_assert!(matches!(refused, Error::Coded(Code::BadFrame, _)));
        }
    }

    #[test]
    fn batches_in_json_are_theirs_to_the_letter(batch in our_batch()) {
        for (ours, their_format) in [(Format::Raw, TheirFormat::Raw), (Format::Base64, TheirFormat::Base64)] {
            let expected = their_json::ReadBatch::encode(their_format, their_batch(&batch));
            let written = serde_json::to_value(ReadBatch { format: ours, batch: &batch }).unwrap();
            prop_assert_eq!(written, serde_json::to_value(expected).unwrap());
        }
    }

    #[test]
    fn inputs_in_json_are_read_and_refused_as_they_would(
        timestamp: Option<u64>, match_seq_num: Option<u64>, name in "[a-zA-Z0-9+/=]{0,8}", value in ".{0,9}", body in ".{0,30}",
    ) {
        let header = their_json::Header(name, value);
        let record = their_json::AppendRecord { timestamp, headers: vec![header], body };
        let input = their_json::AppendInput { records: vec![record], match_seq_num, fencing_token: None };
        let json = serde_json::to_vec(&input).unwrap();
        for (ours, their_format) in [(Format::Raw, TheirFormat::Raw), (Format::Base64, TheirFormat::Base64)] {
            let read = append_input(&json, ours);
            let checked = input.clone().decode(their_format);
            prop_assert_eq!(read.is_ok(), checked.is_ok(), "{:?} {:?}", read, checked);
        }
    }

    #[test]
    fn configurations_go_both_ways(config in basin_config()) {
        // Ours shown, theirs read, theirs written, ours read.
        let shown: their_config::BasinConfig = through_json(&BasinConfig::from(config));
        let read: config::BasinConfig = through_json::<BasinConfig>(&shown).try_into().unwrap();
        prop_assert_eq!(read, config);
        let shown: their_config::StreamConfig = through_json(&StreamConfig::from(config.default_stream_config));
        let header = shown.to_header_value();
        let read: config::StreamConfigLayer =
            parse::<StreamConfig>(header.as_bytes()).unwrap().try_into().unwrap();
        prop_assert_eq!(read, config.default_stream_config);
        // A creation by theirs.
        let create = their_basin::CreateBasinRequest {
            basin: "orders-eu".parse().unwrap(),
            config: Some(through_json(&BasinConfig::from(config))),
            location: None,
        };
        let (name, read): (BasinName, config::BasinConfig) =
            through_json::<CreateBasin>(&create).try_into().unwrap();
        prop_assert_eq!((name.as_str(), read), ("orders-eu", config));
    }
}

#[test]
fn patches_of_theirs_keep_clear_and_set() {
    use s2_common::maybe::Maybe;
    let clear = their_config::StreamReconfiguration {
        storage_class: Maybe::Specified(None),
        retention_policy: Maybe::Unspecified,
        timestamping: Maybe::Specified(Some(their_config::TimestampingReconfiguration {
            mode: Maybe::Specified(Some(their_config::TimestampingMode::Arrival)),
            uncapped: Maybe::Unspecified,
        })),
        delete_on_empty: Maybe::Specified(None),
    };
    let patch: config::StreamConfigPatch = through_json::<StreamReconfiguration>(&clear).try_into().unwrap();
    assert_eq!(
        patch,
        config::StreamConfigPatch {
            storage_class: config::Patch::Clear,
            retention_policy: config::Patch::Keep,
            timestamping_mode: config::Patch::Set(TimestampingMode::Arrival),
            timestamping_uncapped: config::Patch::Keep,
            delete_on_empty_min_age_secs: config::Patch::Clear,
        }
    );
    let of_basin = their_config::BasinReconfiguration {
        default_stream_config: Maybe::Specified(Some(clear)),
        stream_cipher: Maybe::Unspecified,
        create_stream_on_append: Maybe::Specified(true),
        create_stream_on_read: Maybe::Unspecified,
    };
    let read: config::BasinConfigPatch = through_json::<BasinReconfiguration>(&of_basin).try_into().unwrap();
    assert_eq!(read.default_stream_config, patch);
    assert_eq!((read.create_stream_on_append, read.create_stream_on_read), (Some(true), None));
}

#[test]
fn basins_streams_and_locations_are_read_by_theirs() {
    let basin = stream::BasinInfo {
        name: BasinName::try_from("orders-eu").unwrap(),
        created_at_ms: 1_700_000_000_123,
        deleted_at_ms: Some(1_700_000_001_000),
    };
    let page = stream::Page { items: vec![basin], has_more: true };
    let read: their_basin::ListBasinsResponse = through_json(&ListBasins::new(page, "aws:eu-west-1"));
    assert!(read.has_more);
    assert_eq!(read.basins[0].name.as_ref(), "orders-eu");
    assert_eq!(read.basins[0].location.as_ref().unwrap().as_ref(), "aws:eu-west-1");
    assert!(read.basins[0].deleted_at.unwrap() > read.basins[0].created_at);

    let one = stream::StreamInfo { name: StreamName::try_from("a/é").unwrap(), created_at_ms: 5_000 };
    let page = stream::Page { items: vec![one], has_more: false };
    let read: their_json::ListStreamsResponse = through_json(&ListStreams::from(page));
    assert_eq!(read.streams[0].name.as_ref(), "a/é");
    assert_eq!(read.streams[0].created_at.unix_timestamp(), 5);
    assert!(read.streams[0].deleted_at.is_none() && read.streams[0].cipher.is_none());

    let read: TheirLocationInfo = through_json(&LocationInfo::new("local", StorageClass::Express));
    assert_eq!((read.name.as_ref(), read.is_private), ("local", false));
    assert_eq!(read.default_storage_class.unwrap(), "express");
}

#[test]
fn our_codes_are_theirs_with_the_same_status() {
    for code in [
        Code::BadHeader,
        Code::BadPath,
        Code::BadQuery,
        Code::BadJson,
        Code::BadProto,
        Code::BadFrame,
        Code::BasinNotFound,
        Code::StreamNotFound,
        Code::RequestTimeout,
        Code::BasinDeletionPending,
        Code::ResourceAlreadyExists,
        Code::TransactionConflict,
        Code::Invalid,
        Code::RateLimited,
        Code::ClientHangup,
        Code::Other,
        Code::Storage,
        Code::NotImplemented,
        Code::ServerDraining,
    ] {
        let theirs: ErrorCode = code.as_str().parse().unwrap_or_else(|_| panic!("{code:?}"));
        assert_eq!(theirs.status().as_u16(), code.status().as_u16(), "{code:?}");
    }
    for error in [Error::SeqNumMismatch(7), Error::FencingTokenMismatch("t".to_owned())] {
        let body: Value = serde_json::from_slice(&error.body()).unwrap();
        let read: their_json::AppendConditionFailed = through_json(&body);
        assert_eq!(serde_json::to_value(read).unwrap(), body);
    }
}
