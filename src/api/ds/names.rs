//! Names of the headers of the Durable Streams API (*pure*).

use http::HeaderName;

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub(crate) const $name: HeaderName = HeaderName::from_static($text);)*
    };
}

names! {
    /// Where the stream goes on after an answer.
    NEXT_OFFSET = "stream-next-offset";
    /// Keeps caches from answering a live read with an old answer.
    CURSOR = "stream-cursor";
    /// That an answer reaches the end of what there is.
    UP_TO_DATE = "stream-up-to-date";
    /// That nothing follows, or that nothing is to follow.
    CLOSED = "stream-closed";
    /// Seconds of life beyond the last use.
    TTL = "stream-ttl";
    /// The end of a stream's life.
    EXPIRES_AT = "stream-expires-at";
    /// A writer's own mark of progress.
    WRITER_SEQ = "stream-seq";
    /// Who appends.
    PRODUCER_ID = "producer-id";
    /// A higher one shuts the lower ones out.
    PRODUCER_EPOCH = "producer-epoch";
    /// Which append of the epoch.
    PRODUCER_SEQ = "producer-seq";
    /// Which append would get in.
    PRODUCER_EXPECTED_SEQ = "producer-expected-seq";
    /// Which append came.
    PRODUCER_RECEIVED_SEQ = "producer-received-seq";
    /// How events carry what is no text.
    SSE_ENCODING = "stream-sse-data-encoding";
    /// What a fork is a copy of.
    FORKED_FROM = "stream-forked-from";
    /// The first message that a fork does not take.
    FORK_OFFSET = "stream-fork-offset";
    /// How much it takes beyond.
    FORK_SUB_OFFSET = "stream-fork-sub-offset";
    /// What a stream's snapshot does not stand for any more.
    SNAPSHOT_OFFSET = "stream-snapshot-offset";
    /// Who may be shown an answer.
    RESOURCE_POLICY = "cross-origin-resource-policy";
    /// The last event that a browser has seen.
    LAST_EVENT_ID = "last-event-id";
}
