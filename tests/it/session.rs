//! A client of s2s sessions that shows every frame. Messages are those of the published `s2-api` crate.

use std::io;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::channel::mpsc;
use prost::Message;
use s2_api::v1::stream::proto::{AppendAck, AppendInput, AppendRecord, ReadBatch};
use serde_json::Value;

use crate::world::{Answer, Call, WITHIN, World, http_2, records};

pub const TERMINAL: u8 = 0b1000_0000;
pub const ZSTD: u8 = 0b0010_0000;
pub const GZIP: u8 = 0b0100_0000;

/// An input of one record.
pub fn input(body: impl Into<Bytes>) -> AppendInput {
    let record = AppendRecord { timestamp: None, headers: vec![], body: body.into() };
    AppendInput { records: vec![record], match_seq_num: None, fencing_token: None }
}

/// The same on the condition that its record gets this number.
pub fn input_at(seq_num: u64, body: impl Into<Bytes>) -> AppendInput {
    AppendInput { match_seq_num: Some(seq_num), ..input(body) }
}

/// A frame with this flag and payload.
pub fn frame(flag: u8, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_uint(payload.len() as u64 + 1, 3);
    out.put_u8(flag);
    out.put_slice(payload);
    out.freeze()
}

/// A frame with an input.
pub fn frame_of(input: &AppendInput) -> Bytes {
    frame(0, &input.encode_to_vec())
}

/// A frame that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub flag: u8,
    pub payload: Bytes,
}

impl Frame {
    fn message(&self) -> Vec<u8> {
        match self.flag {
            0 => self.payload.to_vec(),
            ZSTD => zstd::decode_all(&self.payload[..]).expect("zstd"),
            GZIP => {
                let mut plain = Vec::new();
                io::copy(&mut flate2::read::GzDecoder::new(&self.payload[..]), &mut plain).expect("gzip");
                plain
            }
            flag => panic!("flag {flag:#010b}: {}", String::from_utf8_lossy(&self.payload)),
        }
    }

    /// The sequence numbers of the records that an ack is for.
    #[track_caller]
    pub fn acked(&self) -> std::ops::Range<u64> {
        let ack = AppendAck::decode(&self.message()[..]).expect("an ack");
        let (start, end, tail) = (ack.start.expect("start"), ack.end.expect("end"), ack.tail.expect("tail"));
        assert!(tail.seq_num >= end.seq_num && end.timestamp >= start.timestamp, "{ack:?}");
        start.seq_num..end.seq_num
    }

    #[track_caller]
    pub fn batch(&self) -> ReadBatch {
        ReadBatch::decode(&self.message()[..]).expect("a batch")
    }

    /// Asserts a terminal frame and yields its status and body.
    #[track_caller]
    pub fn terminal(&self) -> (u16, Value) {
        assert_eq!(self.flag, TERMINAL, "{self:?}");
        let mut payload = self.payload.clone();
        (payload.get_u16(), serde_json::from_slice(&payload).expect("JSON"))
    }
}

/// A session that was opened.
pub struct Session {
    input: Option<mpsc::UnboundedSender<io::Result<Bytes>>>,
    pub response: reqwest::Response,
    buffer: BytesMut,
}

impl Session {
    /// Sends bytes as they are.
    pub fn push(&self, bytes: impl Into<Bytes>) {
        // Once the server has ended the session, nobody takes any more.
        let _ = self.input.as_ref().expect("open").unbounded_send(Ok(bytes.into()));
    }

    /// Sends an input.
    pub fn append(&self, input: &AppendInput) {
        self.push(frame_of(input));
    }

    /// Says that no more input comes.
    pub fn half_close(&mut self) {
        self.input = None;
    }

    /// Breaks off the request.
    pub fn reset(&mut self) {
        let input = self.input.take().expect("open");
        let _ = input.unbounded_send(Err(io::ErrorKind::ConnectionReset.into()));
    }

    /// The next frame; `None` is the clean end.
    pub async fn next(&mut self) -> Option<Frame> {
        let next = tokio::time::timeout(WITHIN, self.try_next()).await;
        next.expect("a frame in time").expect("the connection holds")
    }

    /// The same, where the server may go away.
    pub async fn try_next(&mut self) -> reqwest::Result<Option<Frame>> {
        loop {
            if self.buffer.len() >= 3 {
                let length = (&self.buffer[..3]).get_uint(3) as usize;
                assert!((1..=2 * 1024 * 1024).contains(&length), "{length}");
                if self.buffer.len() >= 3 + length {
                    let mut frame = self.buffer.split_to(3 + length).freeze();
                    frame.advance(3);
                    return Ok(Some(Frame { flag: frame.get_u8(), payload: frame }));
                }
            }
            match self.response.chunk().await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None => {
                    assert!(self.buffer.is_empty(), "half a frame");
                    return Ok(None);
                }
            }
        }
    }

    /// The next ack.
    pub async fn ack(&mut self) -> std::ops::Range<u64> {
        self.next().await.expect("an ack").acked()
    }

    /// The next batch with records, without those that only say that the session lives.
    pub async fn records(&mut self) -> ReadBatch {
        loop {
            let batch = self.next().await.expect("a batch").batch();
            if !batch.records.is_empty() {
                return batch;
            }
            assert!(batch.tail.is_some(), "an empty batch without a tail");
        }
    }

    /// All frames to the end.
    pub async fn rest(&mut self) -> Vec<Frame> {
        let mut all = Vec::new();
        while let Some(frame) = self.next().await {
            all.push(frame);
        }
        all
    }

    /// Asserts that this many acks of one-record inputs from `from` on and then this end are all there is left.
    #[track_caller]
    pub fn ends_with(frames: &[Frame], from: u64, acks: u64, status: u16, body: &Value) {
        let (last, before) = frames.split_last().expect("a terminal frame");
        let acked: Vec<_> = before.iter().map(|frame| frame.acked().start).collect();
        assert_eq!(acked, (from..from + acks).collect::<Vec<_>>());
        let (got_status, got) = last.terminal();
        assert_eq!(got_status, status, "{got}");
        match body.as_str() {
            Some(code) => assert_eq!(got["code"], code, "{got}"),
            None => assert_eq!(got, *body),
        }
    }
}

impl World {
    /// The same over HTTP/2 on a connection of its own.
    pub fn over_2(&self) -> Self {
        self.over(http_2())
    }

    /// A call that opens an append session.
    pub fn append_call(&self, stream: &str) -> Call {
        self.post(&records(stream)).header("content-type", "s2s/proto")
    }

    /// A call that opens a read session.
    pub fn read_call(&self, stream: &str, query: &str) -> Call {
        self.get(&format!("{}?{query}", records(stream))).header("content-type", "s2s/proto")
    }

    /// Opens an append session.
    pub async fn append_session(&self, stream: &str) -> Session {
        append_session(self.append_call(stream)).await
    }

    /// Opens a read session.
    pub async fn read_session(&self, stream: &str, query: &str) -> Session {
        read_session(self.read_call(stream, query)).await
    }
}

/// Opens an append session by this call.
pub async fn append_session(call: Call) -> Session {
    let (input, body) = mpsc::unbounded();
    let call = call.body(reqwest::Body::wrap_stream(body));
    // At once: before anything is sent.
    let response = tokio::time::timeout(Duration::from_secs(5), call.open()).await;
    opened(response.expect("an answer at once").expect("an answer"), Some(input))
}

/// Opens a read session by this call.
pub async fn read_session(call: Call) -> Session {
    opened(call.open().await.expect("an answer"), None)
}

/// Opens a session that is refused.
pub async fn refused(call: Call) -> Answer {
    let (_input, body) = mpsc::unbounded::<io::Result<Bytes>>();
    call.body(reqwest::Body::wrap_stream(body)).send().await
}

fn opened(response: reqwest::Response, input: Option<mpsc::UnboundedSender<io::Result<Bytes>>>) -> Session {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "s2s/proto");
    assert_eq!(response.headers()["cache-control"], "no-cache, no-transform");
    Session { input, response, buffer: BytesMut::new() }
}
