//! Streams: create, ensure, configuration, inheritance, patches.

use serde_json::{Value, json};

use crate::world::World;

async fn config(world: &World, stream: &str) -> Value {
    world.get(&format!("/streams/{stream}")).send().await.is(200).json()
}

async fn patch(world: &World, stream: &str, body: Value) -> Value {
    let answer = world.patch(&format!("/streams/{stream}")).json(&body).send().await.is(200);
    let shown = answer.json();
    assert_eq!(shown, config(world, stream).await, "a patch answers what a get shows");
    shown
}

async fn patch_basin(world: &World, body: Value) {
    world.patch(&format!("/basins/{}", world.basin)).json(&body).send().await.is(200);
}

#[tokio::test]
async fn a_created_stream_is_shown_with_all_its_fields() {
    let world = World::new().await;
    let answer = world.post("/streams").json(&json!({"stream": "s", "config": null})).send().await.is(201);
    assert_eq!(answer.header("s2-provision-result"), "created");
    let info = answer.json();
    let keys: Vec<_> = info.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["cipher", "created_at", "deleted_at", "name"]);
    assert_eq!(info["name"], "s");
    assert_eq!((&info["cipher"], &info["deleted_at"]), (&Value::Null, &Value::Null));
    let listed = world.get("/streams").send().await.is(200).json();
    assert_eq!(listed, json!({"streams": [info], "has_more": false}));
}

#[tokio::test]
async fn a_configuration_is_resolved_leaf_by_leaf_and_shown_whole() {
    let built_in = json!({
        "storage_class": "standard",
        "retention_policy": {"age": 604_800},
        "timestamping": {"mode": "client-prefer", "uncapped": false},
        "delete_on_empty": {"min_age_secs": 0},
    });
    let world = World::new().await;
    world.stream("plain").await;
    assert_eq!(config(&world, "plain").await, built_in);

    let world = World::with(json!({"default_stream_config": {
        "storage_class": "express",
        "retention_policy": {"infinite": {}},
        "timestamping": {"mode": "arrival", "uncapped": true},
    }}))
    .await;
    world.stream("inherits").await;
    world
        .stream_with(
            "overrides",
            json!({"retention_policy": {"age": 9}, "timestamping": {"uncapped": false}}),
        )
        .await;
    assert_eq!(
        config(&world, "inherits").await,
        json!({
            "storage_class": "express",
            "retention_policy": {"infinite": {}},
            "timestamping": {"mode": "arrival", "uncapped": true},
            "delete_on_empty": {"min_age_secs": 0},
        })
    );
    assert_eq!(
        config(&world, "overrides").await,
        json!({
            "storage_class": "express",
            "retention_policy": {"age": 9},
            "timestamping": {"mode": "arrival", "uncapped": false},
            "delete_on_empty": {"min_age_secs": 0},
        })
    );
}

#[tokio::test]
async fn a_later_change_of_the_basin_leaves_streams_alone() {
    let world = World::with(json!({"default_stream_config": {"retention_policy": {"age": 60}}})).await;
    world.stream("old").await;
    let before = config(&world, "old").await;
    patch_basin(&world, json!({"default_stream_config": {"retention_policy": {"age": 90}}})).await;
    assert_eq!(config(&world, "old").await, before);
    world.stream("new").await;
    assert_eq!(config(&world, "new").await["retention_policy"]["age"], 90);
}

#[tokio::test]
async fn a_cleared_leaf_is_resolved_again_over_the_basin_as_it_is_now() {
    let world = World::with(json!({"default_stream_config": {"retention_policy": {"age": 60}}})).await;
    world.stream_with("s", json!({"retention_policy": {"age": 5}, "storage_class": "express"})).await;
    patch_basin(&world, json!({"default_stream_config": {"retention_policy": {"age": 90}}})).await;
    let after = patch(&world, "s", json!({"retention_policy": null})).await;
    assert_eq!(after["retention_policy"]["age"], 90);
    assert_eq!(after["storage_class"], "express");
    patch_basin(&world, json!({"default_stream_config": null})).await;
    let after = patch(&world, "s", json!({"retention_policy": null, "storage_class": null})).await;
    assert_eq!(after["retention_policy"]["age"], 604_800);
    assert_eq!(after["storage_class"], "standard");
}

#[tokio::test]
async fn a_patch_tells_absent_null_and_value_apart() {
    let world = World::new().await;
    world
        .stream_with(
            "s",
            json!({
                "storage_class": "express", "retention_policy": {"infinite": {}},
                "timestamping": {"mode": "arrival", "uncapped": true}, "delete_on_empty": {"min_age_secs": 7},
            }),
        )
        .await;
    let before = config(&world, "s").await;
    for nothing in [json!({}), json!({"timestamping": {}}), json!({"delete_on_empty": {}, "unknown": 1})] {
        assert_eq!(patch(&world, "s", nothing).await, before);
    }
    let after = patch(&world, "s", json!({"timestamping": {"mode": "client-require"}})).await;
    assert_eq!(after["timestamping"], json!({"mode": "client-require", "uncapped": true}));
    let after = patch(&world, "s", json!({"timestamping": {"uncapped": null}})).await;
    assert_eq!(after["timestamping"], json!({"mode": "client-require", "uncapped": false}));
    let after = patch(&world, "s", json!({"timestamping": null, "delete_on_empty": null})).await;
    assert_eq!(after["timestamping"], json!({"mode": "client-prefer", "uncapped": false}));
    assert_eq!(after["delete_on_empty"], json!({"min_age_secs": 0}));
    assert_eq!(after["retention_policy"], json!({"infinite": {}}));
    let after = patch(&world, "s", json!({"delete_on_empty": {"min_age_secs": 3}})).await;
    assert_eq!(after["delete_on_empty"], json!({"min_age_secs": 3}));
}

#[tokio::test]
async fn a_change_of_storage_class_keeps_the_records() {
    let world = World::new().await;
    world.stream("s").await;
    world.append_bodies("s", &["a", "b"]).await;
    for class in ["express", "standard"] {
        assert_eq!(patch(&world, "s", json!({"storage_class": class})).await["storage_class"], class);
        world.append_bodies("s", &["c"]).await;
    }
    assert_eq!(world.read("s", "seq_num=0").await.bodies(), ["a", "b", "c", "c"]);
}

#[tokio::test]
async fn a_second_create_is_a_conflict_unless_it_repeats_the_first() {
    let world = World::new().await;
    let body = json!({"stream": "s", "config": {"retention_policy": {"age": 60}}});
    let create =
        |token: &str, body: &Value| world.post("/streams").header("s2-request-token", token).json(body);
    let first = create("one", &body).send().await.is(201);
    assert_eq!(first.header("s2-provision-result"), "created");
    let again = create("one", &body).send().await.is(201);
    assert_eq!(again.header("s2-provision-result"), "noop");
    assert_eq!(again.json(), first.json());
    // Also after records and a patch: the token names the call, not the state.
    world.append_bodies("s", &["x"]).await;
    patch(&world, "s", json!({"retention_policy": {"age": 61}})).await;
    assert_eq!(create("one", &body).send().await.is(201).header("s2-provision-result"), "noop");
    let other = json!({"stream": "s"});
    for call in [create("two", &body), create("one", &other), world.post("/streams").json(&body)] {
        call.send().await.refused(409, "resource_already_exists", "`s`");
    }
    assert_eq!(world.tail("s").await, 1);
}

#[tokio::test]
async fn an_ensure_creates_updates_or_leaves_alone() {
    let world = World::with(json!({"default_stream_config": {"storage_class": "express"}})).await;
    let with = json!({"retention_policy": {"age": 60}});
    let created = world.put("/streams/s").json(&with).send().await.is(201);
    assert_eq!(created.header("s2-provision-result"), "created");
    world.append_bodies("s", &["x"]).await;
    // The same configuration, once partial and once whole: what counts is what it resolves to.
    let whole = config(&world, "s").await;
    assert_eq!(whole["storage_class"], "express");
    for same in [&with, &whole] {
        let noop = world.put("/streams/s").json(same).send().await.is(200);
        assert_eq!(noop.header("s2-provision-result"), "noop");
        assert_eq!(noop.json(), created.json());
    }
    let updated = world.put("/streams/s").send().await.is(200);
    assert_eq!(updated.header("s2-provision-result"), "updated");
    assert_eq!(updated.json(), created.json(), "an ensure keeps the time of creation");
    assert_eq!(config(&world, "s").await["retention_policy"]["age"], 604_800);
    assert_eq!(world.read("s", "seq_num=0").await.bodies(), ["x"]);
}

#[tokio::test]
async fn concurrent_creates_have_one_winner_and_concurrent_ensures_all_succeed() {
    let world = World::new().await;
    let body = json!({"stream": "s"});
    let creates = (0..16).map(|_| world.post("/streams").json(&body).send());
    let mut statuses: Vec<_> = futures::future::join_all(creates).await.iter().map(|a| a.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses[0], 201);
    assert!(statuses[1..].iter().all(|status| *status == 409), "{statuses:?}");
    let ensures = (0..16).map(|_| world.put("/streams/t").send());
    let answers = futures::future::join_all(ensures).await;
    let created = answers.iter().filter(|a| a.header("s2-provision-result") == "created").count();
    assert_eq!(created, 1);
    for answer in answers {
        assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    }
    assert_eq!(world.get("/streams").send().await.json()["streams"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn concurrent_repeats_of_one_create_all_succeed() {
    let world = World::bare();
    for (path, body) in
        [("/basins", json!({"basin": world.basin})), ("/streams", json!({"stream": "s", "config": {}}))]
    {
        let creates = (0..8).map(|_| world.post(path).header("s2-request-token", "one").json(&body).send());
        let answers = futures::future::join_all(creates).await;
        let results: Vec<_> =
            answers.into_iter().map(|answer| answer.is(201).header("s2-provision-result")).collect();
        assert_eq!(results.iter().filter(|result| *result == "created").count(), 1, "{results:?}");
        assert_eq!(results.iter().filter(|result| *result == "noop").count(), 7, "{results:?}");
    }
}

#[tokio::test]
async fn concurrent_patches_of_other_leaves_are_all_kept() {
    let world = World::new().await;
    world.stream("s").await;
    let patches = [
        json!({"storage_class": "express"}),
        json!({"retention_policy": {"age": 77}}),
        json!({"timestamping": {"mode": "arrival"}}),
        json!({"timestamping": {"uncapped": true}}),
        json!({"delete_on_empty": {"min_age_secs": 9}}),
    ];
    let on_stream = patches.iter().map(|patch| world.patch("/streams/s").json(patch).send());
    for answer in futures::future::join_all(on_stream).await {
        answer.is(200);
    }
    let whole = json!({
        "storage_class": "express",
        "retention_policy": {"age": 77},
        "timestamping": {"mode": "arrival", "uncapped": true},
        "delete_on_empty": {"min_age_secs": 9},
    });
    assert_eq!(config(&world, "s").await, whole);
    let path = format!("/basins/{}", world.basin);
    let patches = patches.map(|patch| json!({"default_stream_config": patch}));
    let on_basin = patches.iter().map(|patch| world.patch(&path).json(patch).send());
    for answer in futures::future::join_all(on_basin).await {
        answer.is(200);
    }
    assert_eq!(world.get(&path).send().await.json()["default_stream_config"], whole);
}

#[tokio::test]
async fn a_configuration_that_cannot_be_is_refused_by_its_field() {
    let world = World::new().await;
    world.stream("s").await;
    for (config, status, code, part) in [
        (json!({"storage_class": "glacier"}), 422, "invalid", "storage_class"),
        (json!({"storage_class": 1}), 400, "bad_json", "storage_class"),
        (json!({"retention_policy": {"age": 0}}), 422, "invalid", "retention_policy.age"),
        (json!({"retention_policy": {"age": 1.5}}), 400, "bad_json", "retention_policy"),
        (json!({"retention_policy": {"infinite": null}}), 400, "bad_json", "retention_policy"),
        (json!({"retention_policy": {"age": 1, "infinite": {}}}), 400, "bad_json", "retention_policy"),
        (json!({"timestamping": {"mode": "Arrival"}}), 400, "bad_json", "timestamping.mode"),
        (json!({"timestamping": {"uncapped": "yes"}}), 400, "bad_json", "timestamping.uncapped"),
        (json!({"delete_on_empty": 5}), 400, "bad_json", "delete_on_empty"),
        (json!([]), 400, "bad_json", "an object"),
        (json!(null), 400, "bad_json", "an object"),
    ] {
        world.put("/streams/new").json(&config).send().await.refused(status, code, part);
        world.patch("/streams/s").json(&config).send().await.refused(status, code, part);
        if !config.is_null() {
            let create = json!({"stream": "new", "config": config});
            world.post("/streams").json(&create).send().await.refused(status, code, part);
        }
    }
    world.get("/streams/new").send().await.refused(404, "stream_not_found", "`new`");
}
