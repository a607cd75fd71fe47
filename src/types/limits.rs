//! Every limit of the product, in one list. Units are in the names; bytes unless said.

/// Shortest basin name.
pub const BASIN_NAME_BYTES_MIN: usize = 8;
/// Longest basin name.
pub const BASIN_NAME_BYTES_MAX: usize = 48;
/// Longest stream name, in UTF-8 bytes.
pub const STREAM_NAME_BYTES_MAX: usize = 512;
/// Longest `s2-request-token`.
pub const REQUEST_TOKEN_BYTES_MAX: usize = 36;
/// Longest fencing token, in UTF-8 bytes.
pub const FENCING_TOKEN_BYTES_MAX: usize = 36;

/// Longest name of a location.
pub const LOCATION_BYTES_MAX: usize = 64;

/// Records in one batch, appended or read.
pub const BATCH_RECORDS_MAX: usize = 1_000;
/// Metered bytes of one batch, appended or read.
pub const BATCH_METERED_BYTES_MAX: u64 = 1024 * 1024;
/// Metered bytes of one record.
pub const RECORD_METERED_BYTES_MAX: u64 = 1024 * 1024;

/// Records of one entry into a stream with a ledger.
pub const ENTRY_RECORDS_MAX: usize = 100_000;
/// Bytes of the records of one entry, which is also the longest body of one.
pub const ENTRY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest content type.
pub const CONTENT_TYPE_BYTES_MAX: usize = 256;
/// Longest id of a producer.
pub const PRODUCER_ID_BYTES_MAX: usize = 256;
/// Longest mark of a writer's progress.
pub const WRITER_SEQ_BYTES_MAX: usize = 256;
/// Bytes that a ledger has for the producers heard of last.
pub const LEDGER_PRODUCERS_BYTES_MAX: usize = 12 * 1024;
/// Bytes of all producers that a stream remembers.
pub const PRODUCERS_BYTES_MAX: usize = 1024 * 1024;
/// Bytes that a ledger has for the marks of forks.
pub const LEDGER_FORKS_BYTES_MAX: usize = 8 * 1024;
/// How long a producer is remembered at least after its last append.
pub const PRODUCER_AGE_MS_MIN: u64 = 7 * 24 * 60 * 60 * 1_000;
/// What a ledger may take in a manifest.
pub const LEDGER_BYTES_MAX: usize = 32 * 1024;
/// Shortest bucket name.
pub const BUCKET_NAME_BYTES_MIN: usize = 4;
/// Longest bucket name.
pub const BUCKET_NAME_BYTES_MAX: usize = 64;
/// Longest name of a stream under its bucket's path, and of both together.
pub const BUCKET_STREAM_NAME_BYTES_MAX: usize = 122;

/// Body of one unary request, after decompression.
pub const REQUEST_BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Names in one page of a listing, and its default.
pub const LIST_PAGE_NAMES_MAX: usize = 1_000;
/// Longest `wait` of a unary read.
pub const UNARY_WAIT_SECS_MAX: u32 = 60;

/// Root prefix of all keys in the store.
pub const ROOT_PREFIX_BYTES_MAX: usize = 64;

/// Ids of past commits a register remembers.
pub const RING_COMMITS_MAX: usize = 128;
/// Inline tail of a `standard` stream, in encoded bytes.
pub const INLINE_BYTES_MAX_STANDARD: usize = 32 * 1024;
/// Inline tail of an `express` stream, in encoded bytes.
pub const INLINE_BYTES_MAX_EXPRESS: usize = 8 * 1024;
/// What a manifest may hold beside its inline tail.
pub const MANIFEST_FIXED_BYTES_MAX: usize = 16 * 1024;
/// Refs a manifest keeps per level of its index before it moves the oldest to a page.
pub const MANIFEST_REFS_MAX: usize = 64;
/// Refs in one index page.
pub const PAGE_REFS_MAX: usize = 1_024;
/// Depth of the index tree; 64 · 1,024³ chunks are out of reach of any stream.
pub const INDEX_LEVELS_MAX: usize = 6;
/// Encoded size at which a block of a chunk is closed.
pub const BLOCK_BYTES_TARGET: usize = 64 * 1024;
/// From this size on, a chunk is copied within the store: reading many smaller ones costs less than to copy each of
/// them, and makes fewer of them.
pub const COPIED_BYTES_MIN: u64 = 256 * 1024;
/// Encoded size of one chunk written by one cycle of a writer.
pub const CHUNK_BYTES_MAX: usize = 8 * 1024 * 1024;

/// An upload begun longer ago than this (store time) is made again rather than committed.
pub const UPLOAD_AGE_MS_MAX: u64 = 60 * 60 * 1_000;

/// Bytes of appends one stream may hold queued in one process.
pub const WRITER_QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;
