//! Pages of names.

use leat::types::config::StreamConfigLayer;
use leat::types::name::{BasinNamePart, StreamNamePart};
use leat::types::stream::ListRequest;

use crate::world::{Process, World, basin, name};

pub(crate) fn request(prefix: &str, start_after: &str, limit: usize) -> ListRequest<StreamNamePart> {
    ListRequest {
        prefix: StreamNamePart::parse(prefix, "prefix").expect("legal"),
        start_after: StreamNamePart::parse(start_after, "start_after").expect("legal"),
        limit,
    }
}

async fn page(process: &Process, prefix: &str, after: &str, limit: usize) -> (Vec<String>, bool) {
    let page = process.service.list_streams(&basin(), request(prefix, after, limit)).await.expect("listed");
    (page.items.into_iter().map(|s| s.name.to_string()).collect(), page.has_more)
}

#[tokio::test]
async fn pages_follow_byte_order_and_end_exactly() {
    let process = World::new().process_with_basin().await;
    let mut names = vec![
        "prod-1",
        "prod-2",
        "prod-3",
        "staging-1",
        "staging-2",
        "staging-3",
        "staging",
        "staging/a",
        "é",
        "e\u{301}",
        "😀",
        "a",
        "a/",
        "a//b",
        " ",
    ];
    for n in &names {
        let config = StreamConfigLayer::default();
        process.service.create_stream(&basin(), &name(n), config, None).await.expect("created");
    }
    names.sort_unstable();
    assert_eq!(page(&process, "", "", 1_000).await, (names.iter().map(ToString::to_string).collect(), false));
    for limit in 1..=names.len() + 1 {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let (items, has_more) = page(&process, "", &after, limit).await;
            assert!(items.len() == limit || !has_more);
            seen.extend(items);
            if !has_more {
                break;
            }
            after = seen.last().expect("a page that has more is not empty").clone();
        }
        assert_eq!(seen, names, "limit {limit}");
    }
    let staging = ["staging-1", "staging-2", "staging-3"].map(str::to_owned).to_vec();
    assert_eq!(page(&process, "staging-", "prod-api", 1_000).await, (staging.clone(), false));
    assert_eq!(page(&process, "staging-", "staging-1", 1).await, (vec!["staging-2".to_owned()], true));
    assert_eq!(page(&process, "staging-", "zzz", 1).await, (vec![], false));
    assert_eq!(page(&process, "staging-", "", 3).await, (staging, false));
}

#[tokio::test]
async fn deleted_streams_and_basins_are_not_listed() {
    let process = World::new().process_with_basin().await;
    for n in ["a", "b", "c"] {
        process.append(n, &["x"]).await.expect("created");
    }
    process.service.delete_stream(&basin(), &name("b")).await.expect("deleted");
    assert_eq!(page(&process, "", "", 2).await, (vec!["a".to_owned(), "c".to_owned()], false));
    process.service.delete_basin(&basin()).await.expect("accepted");
    process.service.finish().await;
    let request = ListRequest {
        prefix: BasinNamePart::parse("", "prefix").expect("legal"),
        start_after: BasinNamePart::parse("", "start_after").expect("legal"),
        limit: 10,
    };
    let basins = process.service.list_basins(request).await.expect("listed");
    assert!(basins.items.is_empty() && !basins.has_more);
}
