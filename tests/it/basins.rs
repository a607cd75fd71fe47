//! Basins: create, ensure, configuration, patches.

use serde_json::{Value, json};

use crate::world::World;

/// Asserts an RFC 3339 time in UTC of today's epoch.
fn is_time(value: &Value) {
    let text = value.as_str().expect("text");
    assert!(
        text.len() >= 20 && text.starts_with("20") && text.contains('T') && text.ends_with('Z'),
        "{text}"
    );
}

async fn config(world: &World) -> Value {
    world.get(&format!("/basins/{}", world.basin)).send().await.is(200).json()
}

async fn patch(world: &World, body: Value) -> Value {
    let answer = world.patch(&format!("/basins/{}", world.basin)).json(&body).send().await.is(200);
    let shown = answer.json();
    assert_eq!(shown, config(world).await, "a patch answers what a get shows");
    shown
}

#[tokio::test]
async fn a_created_basin_is_shown_with_all_its_fields() {
    let world = World::bare();
    let answer =
        world.post("/basins").json(&json!({"basin": world.basin, "config": null})).send().await.is(201);
    assert_eq!(answer.header("s2-provision-result"), "created");
    let info = answer.json();
    let keys: Vec<_> = info.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["created_at", "deleted_at", "location", "name", "state"]);
    assert_eq!(info["name"], world.basin);
    assert_eq!(info["state"], "active");
    assert_eq!((&info["location"], &info["deleted_at"]), (&json!("local"), &Value::Null));
    is_time(&info["created_at"]);
    let unset = json!({
        "default_stream_config": null, "stream_cipher": null,
        "create_stream_on_append": false, "create_stream_on_read": false,
    });
    assert_eq!(config(&world).await, unset);
}

#[tokio::test]
async fn a_second_create_is_a_conflict_unless_it_repeats_the_first() {
    let world = World::bare();
    let body = json!({"basin": world.basin, "config": {"create_stream_on_read": true}});
    let create =
        |token: &str, body: &Value| world.post("/basins").header("s2-request-token", token).json(body);
    let first = create("one", &body).send().await.is(201);
    assert_eq!(first.header("s2-provision-result"), "created");
    let again = create("one", &body).send().await.is(201);
    assert_eq!(again.header("s2-provision-result"), "noop");
    assert_eq!(again.json(), first.json());
    let other = json!({"basin": world.basin});
    for call in [create("two", &body), create("one", &other), world.post("/basins").json(&body)] {
        call.send().await.refused(409, "resource_already_exists", &world.basin);
    }
}

#[tokio::test]
async fn a_basin_created_without_a_token_is_never_created_again() {
    let world = World::new().await;
    let body = json!({"basin": world.basin, "config": {}});
    for call in [world.post("/basins"), world.post("/basins").header("s2-request-token", "t")] {
        call.json(&body).send().await.refused(409, "resource_already_exists", &world.basin);
    }
}

#[tokio::test]
async fn an_ensure_creates_updates_or_leaves_alone() {
    let world = World::bare();
    let path = format!("/basins/{}", world.basin);
    let with = json!({"config": {"default_stream_config": {"retention_policy": {"age": 60}}}});
    let created = world.put(&path).json(&with).send().await.is(201);
    assert_eq!(created.header("s2-provision-result"), "created");
    let same = world.put(&path).json(&with).send().await.is(200);
    assert_eq!(same.header("s2-provision-result"), "noop");
    assert_eq!(same.json(), created.json());
    // What is left out is a default, not "as it is".
    let updated = world.put(&path).send().await.is(200);
    assert_eq!(updated.header("s2-provision-result"), "updated");
    assert_eq!(updated.json(), created.json(), "an ensure keeps the time of creation");
    assert_eq!(config(&world).await["default_stream_config"], Value::Null);
    for body in ["{}", r#"{"config":null}"#, ""] {
        let noop = world.put(&path).header("content-type", "application/json").body(body).send().await;
        assert_eq!(noop.is(200).header("s2-provision-result"), "noop", "{body:?}");
    }
}

#[tokio::test]
async fn an_ensure_keeps_the_token_of_the_creation() {
    let world = World::bare();
    let create = || {
        let body = json!({"basin": world.basin});
        world.post("/basins").header("s2-request-token", "kept").json(&body)
    };
    create().send().await.is(201);
    let config = json!({"config": {"create_stream_on_append": true}});
    world.put(&format!("/basins/{}", world.basin)).json(&config).send().await.is(200);
    assert_eq!(create().send().await.is(201).header("s2-provision-result"), "noop");
}

#[tokio::test]
async fn the_default_stream_config_stays_as_partial_as_it_was_given() {
    let given = json!({"delete_on_empty": {"min_age_secs": 0}, "timestamping": {"uncapped": false}});
    let world = World::with(json!({"default_stream_config": given})).await;
    let shown = json!({
        "storage_class": null, "retention_policy": null,
        "timestamping": {"mode": null, "uncapped": false},
        "delete_on_empty": {"min_age_secs": 0},
    });
    assert_eq!(config(&world).await["default_stream_config"], shown);
    let world =
        World::with(json!({"default_stream_config": {"timestamping": {}, "delete_on_empty": null}})).await;
    assert_eq!(config(&world).await["default_stream_config"], Value::Null);
}

#[tokio::test]
async fn a_patch_tells_absent_null_and_value_apart() {
    let world = World::with(json!({
        "default_stream_config": {
            "storage_class": "express",
            "retention_policy": {"age": 60},
            "timestamping": {"mode": "arrival", "uncapped": true},
            "delete_on_empty": {"min_age_secs": 5},
        },
        "create_stream_on_append": true,
    }))
    .await;
    let before = config(&world).await;
    assert_eq!(patch(&world, json!({})).await, before);
    assert_eq!(patch(&world, json!({"default_stream_config": {}})).await, before);

    let nested = json!({"default_stream_config": {
        "timestamping": {"mode": null}, "retention_policy": {"infinite": {}}, "storage_class": null,
    }});
    let after = patch(&world, nested).await;
    assert_eq!(
        after["default_stream_config"],
        json!({
            "storage_class": null,
            "retention_policy": {"infinite": {}},
            "timestamping": {"mode": null, "uncapped": true},
            "delete_on_empty": {"min_age_secs": 5},
        })
    );
    assert_eq!(after["create_stream_on_append"], true);

    let after = patch(&world, json!({"default_stream_config": {"timestamping": null}})).await;
    assert_eq!(after["default_stream_config"]["timestamping"], Value::Null);
    let after = patch(&world, json!({"default_stream_config": null, "create_stream_on_append": false})).await;
    assert_eq!(after["default_stream_config"], Value::Null);
    assert_eq!(after["create_stream_on_append"], false);
}

#[tokio::test]
async fn the_switches_of_a_basin_cannot_be_null() {
    let world = World::new().await;
    let path = format!("/basins/{}", world.basin);
    for field in ["create_stream_on_append", "create_stream_on_read"] {
        let patch = json!({field: null});
        world.patch(&path).json(&patch).send().await.refused(400, "bad_json", field);
        let ensure = json!({"config": {field: null}});
        world.put(&path).json(&ensure).send().await.refused(400, "bad_json", field);
    }
}

#[tokio::test]
async fn a_configuration_that_cannot_be_is_refused_by_its_field() {
    let world = World::new().await;
    let other = World::bare();
    for (config, status, code, part) in [
        (json!({"stream_cipher": "aegis-256"}), 422, "invalid", "stream_cipher"),
        (json!({"stream_cipher": "rot13"}), 400, "bad_json", "stream_cipher"),
        (json!({"default_stream_config": {"storage_class": "turbo"}}), 422, "invalid", "storage_class"),
        (json!({"default_stream_config": {"storage_class": ""}}), 422, "invalid", "storage_class"),
        (
            json!({"default_stream_config": {"retention_policy": {"age": 0}}}),
            422,
            "invalid",
            "retention_policy.age",
        ),
        (
            json!({"default_stream_config": {"retention_policy": {"age": -1}}}),
            400,
            "bad_json",
            "retention_policy",
        ),
        (json!({"default_stream_config": {"retention_policy": {}}}), 400, "bad_json", "retention_policy"),
        (
            json!({"default_stream_config": {"retention_policy": "infinite"}}),
            400,
            "bad_json",
            "retention_policy",
        ),
        (
            json!({"default_stream_config": {"timestamping": {"mode": "mine"}}}),
            400,
            "bad_json",
            "timestamping.mode",
        ),
        (
            json!({"default_stream_config": {"delete_on_empty": {"min_age_secs": -1}}}),
            400,
            "bad_json",
            "min_age_secs",
        ),
        (json!({"default_stream_config": []}), 400, "bad_json", "default_stream_config"),
        (json!({"create_stream_on_append": 1}), 400, "bad_json", "create_stream_on_append"),
    ] {
        let create = json!({"basin": other.basin, "config": config});
        other.post("/basins").json(&create).send().await.refused(status, code, part);
        let path = format!("/basins/{}", other.basin);
        other.put(&path).json(&json!({"config": config})).send().await.refused(status, code, part);
        other.get(&path).send().await.refused(404, "basin_not_found", &other.basin);
        let path = format!("/basins/{}", world.basin);
        world.patch(&path).json(&config).send().await.refused(status, code, part);
    }
    let location = json!({"basin": other.basin, "location": "aws:us-east-1"});
    other.post("/basins").json(&location).send().await.refused(422, "invalid", "location");
}

#[tokio::test]
async fn u64_extremes_in_a_configuration_come_back_as_given() {
    let max = u64::MAX;
    let world = World::with(json!({"default_stream_config": {
        "retention_policy": {"age": max}, "delete_on_empty": {"min_age_secs": max},
    }}))
    .await;
    let shown = config(&world).await;
    assert_eq!(shown["default_stream_config"]["retention_policy"]["age"], max);
    assert_eq!(shown["default_stream_config"]["delete_on_empty"]["min_age_secs"], max);
    world.stream("s").await;
    world.append_bodies("s", &["x"]).await;
    assert_eq!(world.read("s", "seq_num=0").await.seq_nums(), [0]);
    let config = world.get("/streams/s").send().await.is(200).json();
    assert_eq!(config["retention_policy"]["age"], max);
    world.delete("/streams/s").send().await.is(202);
}
