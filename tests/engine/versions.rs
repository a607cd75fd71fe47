//! A document that a newer Leat has written is read, never written.

use leat::service::Error;
use leat::types::config::BasinConfig;

use crate::world::{World, basin};

/// Raises `min_writer` of a stored document and mends its checksum.
async fn raise_min_writer(world: &World, prefix: &str) {
    let key = world.process().service_list(prefix).await.remove(0).key;
    let mut bytes = world.store.get(&key).await.expect("read").expect("there").bytes.to_vec();
    bytes[6] += 1;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..8]), &bytes[12..]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    world.store.put(&key, bytes.into()).await.expect("written");
}

#[tokio::test]
async fn a_stream_of_a_newer_writer_is_read_and_not_appended_to() {
    let world = World::new();
    world.process_with_basin().await.append("s", &["a"]).await.expect("created");
    raise_min_writer(&world, "manifest/").await;
    let process = world.process();
    assert_eq!(process.bodies("s").await, ["a"]);
    let refused = process.append("s", &["b"]).await;
    assert!(
        matches!(&refused, Err(Error::Storage { message, .. }) if message.contains("update Leat")),
        "{refused:?}"
    );
    assert_eq!(process.bodies("s").await, ["a"]);
}

#[tokio::test]
async fn a_basin_of_a_newer_writer_is_not_changed() {
    let world = World::new();
    let process = world.process_with_basin().await;
    raise_min_writer(&world, "basins/").await;
    let refused = process.service.ensure_basin(&basin(), BasinConfig::default()).await;
    assert!(
        matches!(&refused, Err(Error::Storage { message, .. }) if message.contains("update Leat")),
        "{refused:?}"
    );
}
