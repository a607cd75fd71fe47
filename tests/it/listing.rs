//! Listings: order, prefix, start, limit, pages.

use serde_json::{Value, json};

use crate::support::server::ServerOptions;
use crate::world::{World, encode};

fn names(page: &Value, kind: &str) -> Vec<String> {
    let items = page[kind].as_array().expect("a list");
    items.iter().map(|item| item["name"].as_str().expect("a name").to_owned()).collect()
}

async fn streams(world: &World, query: &str) -> (Vec<String>, bool) {
    let page = world.get(&format!("/streams?{query}")).send().await.is(200).json();
    (names(&page, "streams"), page["has_more"].as_bool().expect("a flag"))
}

async fn filled() -> (World, Vec<String>) {
    let world = World::new().await;
    let mut all: Vec<String> = [
        "prod-1",
        "prod-2",
        "prod-3",
        "staging-1",
        "staging-2",
        "staging-3",
        "staging",
        "staging/",
        "staging/1",
        "staging!",
        "é1",
        "é2",
        "e",
        "Z",
        "z",
        "staging-10",
    ]
    .map(str::to_owned)
    .to_vec();
    for name in &all {
        world.stream(name).await;
    }
    all.sort_unstable();
    (world, all)
}

#[tokio::test]
async fn streams_are_listed_in_the_order_of_their_bytes() {
    let (world, all) = filled().await;
    assert_eq!(streams(&world, "").await, (all, false));
}

#[tokio::test]
async fn a_prefix_and_a_start_choose_what_is_listed() {
    let (world, all) = filled().await;
    for (prefix, after) in [
        ("staging-", ""),
        ("staging-", "prod-api"),
        ("staging-", "staging-1"),
        ("staging-", "staging-10"),
        ("staging-", "staging-2x"),
        ("staging-", "zzz"),
        ("staging/", ""),
        ("staging", "staging"),
        ("staging", "staging!"),
        ("é", ""),
        ("é", "é1"),
        ("", "prod-2"),
        ("", "é2"),
        ("nothing", ""),
        ("staging-1", "staging-"),
        ("Z", ""),
    ] {
        let expected: Vec<_> =
            all.iter().filter(|n| n.starts_with(prefix) && n.as_str() > after).cloned().collect();
        let query = format!("prefix={}&start_after={}", encode(prefix), encode(after));
        assert_eq!(streams(&world, &query).await, (expected, false), "{prefix:?} {after:?}");
    }
}

#[tokio::test]
async fn pages_of_any_size_visit_each_name_once_and_know_when_they_end() {
    let (world, all) = filled().await;
    for limit in [1, 2, 3, 5, all.len() - 1, all.len(), all.len() + 1] {
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let query = format!("limit={limit}&start_after={}", encode(&after));
            let (page, has_more) = streams(&world, &query).await;
            assert!(page.len() <= limit);
            seen.extend(page);
            assert_eq!(has_more, seen.len() < all.len(), "limit {limit} after {after:?}");
            if !has_more {
                break;
            }
            after.clone_from(seen.last().unwrap());
        }
        assert_eq!(seen, all, "limit {limit}");
    }
}

#[tokio::test]
async fn a_limit_of_none_zero_or_too_many_is_a_thousand() {
    let world = World::new().await;
    let names: Vec<_> = (0..1003).map(|n| format!("s{n:04}")).collect();
    for some in names.chunks(100) {
        futures::future::join_all(some.iter().map(|name| world.stream(name))).await;
    }
    for query in ["", "limit=0", "limit=1000", "limit=1001", "limit=18446744073709551615"] {
        let (page, has_more) = streams(&world, query).await;
        assert_eq!((page.len(), has_more), (1000, true), "{query}");
        assert_eq!(page, names[..1000], "{query}");
    }
    assert_eq!(streams(&world, "start_after=s0999").await, (names[1000..].to_vec(), false));
    assert_eq!(streams(&world, "start_after=s0002").await, (names[3..].to_vec(), false));
    assert!(streams(&world, "start_after=s0001").await.1);
}

#[tokio::test]
async fn creations_and_deletions_between_pages_hide_nothing_that_stayed() {
    let (world, all) = filled().await;
    let mut seen = Vec::new();
    let mut after = String::new();
    let mut round = 0;
    loop {
        let (page, has_more) = streams(&world, &format!("limit=3&start_after={}", encode(&after))).await;
        seen.extend(page.clone());
        if !has_more {
            break;
        }
        after.clone_from(page.last().unwrap());
        // One comes before the place, one after it; the last name seen goes and comes back.
        world.stream(&format!("A{round}")).await;
        world.stream(&format!("zz{round}")).await;
        world.delete(&format!("/streams/{}", encode(&after))).send().await.is(202);
        world.stream(&after).await;
        round += 1;
        assert!(round < 50);
    }
    for name in &all {
        assert_eq!(seen.iter().filter(|n| *n == name).count(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_listing_of_a_missing_basin_is_not_found() {
    World::bare().get("/streams").send().await.refused(404, "basin_not_found", "basin");
}

#[tokio::test]
async fn basins_are_listed_like_streams() {
    let server = ServerOptions::on("memory:").start();
    let world = World::on(&server, "unused-basin");
    let empty = world.get("/basins").send().await.is(200).json();
    assert_eq!(empty, json!({"basins": [], "has_more": false}));
    let all = ["a-basin-1", "a-basin-10", "a-basin-2", "b-basin-1", "b-basin-2"];
    for name in ["b-basin-2", "a-basin-10", "a-basin-1", "b-basin-1", "a-basin-2"] {
        world.post("/basins").json(&json!({"basin": name})).send().await.is(201);
    }
    let basins = async |query: &str| {
        let page = world.get(&format!("/basins?{query}")).send().await.is(200).json();
        (names(&page, "basins"), page["has_more"].as_bool().expect("a flag"))
    };
    let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    assert_eq!(basins("").await, (owned(&all), false));
    assert_eq!(basins("prefix=b-").await, (owned(&all[3..]), false));
    assert_eq!(basins("prefix=b-&start_after=a").await, (owned(&all[3..]), false));
    assert_eq!(basins("prefix=a-&start_after=b").await, (vec![], false));
    assert_eq!(basins("start_after=a-basin-1&limit=2").await, (owned(&all[1..3]), true));
    assert_eq!(basins("start_after=a-basin-1&limit=4").await, (owned(&all[1..]), false));
    assert_eq!(basins("limit=0").await, (owned(&all), false));
    // A deleted one is not counted, so that a page never lies about what follows.
    world.delete("/basins/b-basin-2").send().await.is(202);
    for _ in 0..200 {
        if basins("prefix=b-").await.0 == ["b-basin-1"] {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(basins("limit=4").await, (owned(&all[..4]), false));
    assert_eq!(basins("start_after=b-basin-1").await, (vec![], false));
    for (query, part) in [
        ("prefix=B", "`prefix`"),
        ("start_after=-a", "`start_after`"),
        ("limit=x", "`limit`"),
        ("limit=-1", "`limit`"),
    ] {
        world.get(&format!("/basins?{query}")).send().await.refused(400, "bad_query", part);
    }
}
