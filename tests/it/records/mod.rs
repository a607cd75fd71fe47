//! Records of a stream.

mod append;
mod auto_create;
mod read;
mod sse;
