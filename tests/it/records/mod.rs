//! Records of a stream.

mod append;
mod append_session;
mod auto_create;
mod read;
mod read_session;
mod sse;
