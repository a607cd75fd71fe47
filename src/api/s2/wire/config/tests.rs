//! Tables of configurations in, out and patched.

use super::super::parse;
use super::*;
use crate::types::config::{BasinConfigPatch, StreamConfigLayer, StreamConfigPatch};

fn stream(json: &str) -> Result<StreamConfigLayer> {
    parse::<StreamConfig>(json.as_bytes())?.try_into()
}

fn basin(json: &str) -> Result<config::BasinConfig> {
    parse::<BasinConfig>(json.as_bytes())?.try_into()
}

fn stream_patch(json: &str) -> Result<StreamConfigPatch> {
    parse::<StreamReconfiguration>(json.as_bytes())?.try_into()
}

fn basin_patch(json: &str) -> Result<BasinConfigPatch> {
    parse::<BasinReconfiguration>(json.as_bytes())?.try_into()
}

fn show(config: impl Into<StreamConfig>) -> String {
    serde_json::to_string(&config.into()).unwrap()
}

#[test]
fn a_stream_config_is_read_with_every_part_absent_null_or_given() {
    let nothing = StreamConfigLayer::default();
    for empty in [
        "{}",
        r#"{"storage_class":null,"retention_policy":null,"timestamping":null,"delete_on_empty":null}"#,
        r#"{"timestamping":{},"unknown":{"deep":[1]}}"#,
        r#"{"timestamping":{"mode":null,"uncapped":null}}"#,
    ] {
        assert_eq!(stream(empty), Ok(nothing), "{empty}");
    }
    let full = r#"{"storage_class":"express","retention_policy":{"age":18446744073709551615},
        "timestamping":{"mode":"client-require","uncapped":true},"delete_on_empty":{"min_age_secs":5}}"#;
    let layer = StreamConfigLayer {
        storage_class: Some(config::StorageClass::Express),
        retention_policy: Some(config::RetentionPolicy::Age(u64::MAX)),
        timestamping_mode: Some(config::TimestampingMode::ClientRequire),
        timestamping_uncapped: Some(true),
        delete_on_empty_min_age_secs: Some(5),
    };
    assert_eq!(stream(full), Ok(layer));
    assert_eq!(
        stream(r#"{"retention_policy":{"infinite":{}}}"#).unwrap().retention_policy,
        Some(config::RetentionPolicy::Infinite)
    );
    assert_eq!(stream(r#"{"delete_on_empty":{}}"#).unwrap().delete_on_empty_min_age_secs, Some(0));
}

#[test]
fn a_stream_config_with_a_wrong_part_is_refused_by_the_right_code() {
    for (json, status, field) in [
        ("[]", 400, "body"),
        (r#"{"storage_class":1}"#, 400, "storage_class"),
        (r#"{"storage_class":"turbo"}"#, 422, "`standard` or `express`, got `turbo`"),
        (r#"{"storage_class":""}"#, 422, "storage_class"),
        (r#"{"retention_policy":{"age":0}}"#, 422, "retention_policy.age"),
        (r#"{"retention_policy":{"age":-1}}"#, 400, "retention_policy.age"),
        (r#"{"retention_policy":{"age":18446744073709551616}}"#, 400, "retention_policy.age"),
        (r#"{"retention_policy":{"age":1.5}}"#, 400, "retention_policy.age"),
        (r#"{"retention_policy":{"age":1,"infinite":{}}}"#, 400, "retention_policy"),
        (r#"{"retention_policy":{"infinite":null}}"#, 400, "retention_policy.infinite"),
        (r#"{"retention_policy":"infinite"}"#, 400, "retention_policy"),
        (r#"{"retention_policy":{}}"#, 400, "retention_policy"),
        (r#"{"timestamping":{"mode":"server"}}"#, 400, "timestamping.mode"),
        (r#"{"timestamping":{"uncapped":1}}"#, 400, "timestamping.uncapped"),
        (r#"{"timestamping":[]}"#, 400, "timestamping"),
        (r#"{"delete_on_empty":{"min_age_secs":null}}"#, 400, "delete_on_empty.min_age_secs"),
        (r#"{"delete_on_empty":[5]}"#, 400, "delete_on_empty"),
        (r#"{"storage_class":null,"storage_class":null}"#, 400, "storage_class"),
    ] {
        let error = stream(json).expect_err(json);
        assert_eq!(error.status(), status, "{json}");
        let message = String::from_utf8(error.body()).unwrap();
        assert!(message.contains(field), "{json}: {message}");
    }
}

#[test]
fn a_stream_config_is_shown_with_all_its_keys() {
    assert_eq!(
        show(StreamConfigLayer::default()),
        r#"{"storage_class":null,"retention_policy":null,"timestamping":null,"delete_on_empty":null}"#
    );
    let partial = StreamConfigLayer {
        timestamping_uncapped: Some(false),
        delete_on_empty_min_age_secs: Some(0),
        retention_policy: Some(config::RetentionPolicy::Infinite),
        ..Default::default()
    };
    assert_eq!(
        show(partial),
        r#"{"storage_class":null,"retention_policy":{"infinite":{}},"timestamping":{"mode":null,"uncapped":false},"delete_on_empty":{"min_age_secs":0}}"#
    );
    assert_eq!(
        show(config::StreamConfig::default()),
        r#"{"storage_class":"standard","retention_policy":{"age":604800},"timestamping":{"mode":"client-prefer","uncapped":false},"delete_on_empty":{"min_age_secs":0}}"#
    );
    assert_eq!(stream(&show(partial)), Ok(partial));
}

#[test]
fn a_basin_config_is_read_and_shown() {
    for empty in ["{}", r#"{"default_stream_config":null,"stream_cipher":null}"#] {
        assert_eq!(basin(empty), Ok(config::BasinConfig::default()), "{empty}");
    }
    let shown = serde_json::to_string(&BasinConfig::from(config::BasinConfig::default())).unwrap();
    assert_eq!(
        shown,
        r#"{"default_stream_config":null,"stream_cipher":null,"create_stream_on_append":false,"create_stream_on_read":false}"#
    );
    let given = basin(r#"{"default_stream_config":{"delete_on_empty":{}},"create_stream_on_read":true}"#);
    let config = given.unwrap();
    assert_eq!(config.default_stream_config.delete_on_empty_min_age_secs, Some(0));
    assert!(config.create_stream_on_read && !config.create_stream_on_append);
    let shown = serde_json::to_string(&BasinConfig::from(config)).unwrap();
    assert!(shown.contains(r#""delete_on_empty":{"min_age_secs":0}"#), "{shown}");
}

#[test]
fn a_basin_config_with_a_wrong_part_is_refused_by_the_right_code() {
    for (json, status, part) in [
        (r#"{"stream_cipher":"aegis-256"}"#, 422, "encryption is not available yet"),
        (r#"{"stream_cipher":"aes-256-gcm"}"#, 422, "encryption is not available yet"),
        (r#"{"stream_cipher":"rot13"}"#, 400, "stream_cipher"),
        (r#"{"create_stream_on_append":null}"#, 400, "create_stream_on_append"),
        (r#"{"create_stream_on_read":"true"}"#, 400, "create_stream_on_read"),
        (r#"{"default_stream_config":[]}"#, 400, "default_stream_config"),
        (
            r#"{"default_stream_config":{"timestamping":{"mode":"x"}}}"#,
            400,
            "default_stream_config.timestamping.mode",
        ),
    ] {
        for error in [basin(json).expect_err(json), basin_patch(json).expect_err(json)] {
            assert_eq!(error.status(), status, "{json}");
            let message = String::from_utf8(error.body()).unwrap();
            assert!(message.contains(part), "{json}: {message}");
        }
    }
}

#[test]
fn a_patch_tells_absent_from_null_from_a_value() {
    assert_eq!(stream_patch("{}"), Ok(StreamConfigPatch::default()));
    let all_null =
        r#"{"storage_class":null,"retention_policy":null,"timestamping":null,"delete_on_empty":null}"#;
    assert_eq!(stream_patch(all_null), Ok(StreamConfigPatch::CLEAR));
    let mixed = stream_patch(
        r#"{"storage_class":"standard","timestamping":{"mode":null,"uncapped":true},"delete_on_empty":{}}"#,
    );
    assert_eq!(
        mixed,
        Ok(StreamConfigPatch {
            storage_class: Patch::Set(config::StorageClass::Standard),
            retention_policy: Patch::Keep,
            timestamping_mode: Patch::Clear,
            timestamping_uncapped: Patch::Set(true),
            delete_on_empty_min_age_secs: Patch::Keep,
        })
    );
    let nested = stream_patch(r#"{"delete_on_empty":{"min_age_secs":null}}"#).unwrap();
    assert_eq!(nested.delete_on_empty_min_age_secs, Patch::Clear);
    for (bad, status) in [
        (r#"{"retention_policy":{"age":0}}"#, 422),
        (r#"{"storage_class":"turbo"}"#, 422),
        (r#"{"timestamping":{"mode":1}}"#, 400),
        (r#"{"timestamping":[null,null]}"#, 400),
        ("[]", 400),
    ] {
        assert_eq!(stream_patch(bad).expect_err(bad).status(), status, "{bad}");
    }
}

#[test]
fn a_basin_patch_nests() {
    assert_eq!(basin_patch("{}"), Ok(BasinConfigPatch::default()));
    assert_eq!(
        basin_patch(r#"{"default_stream_config":null,"stream_cipher":null,"create_stream_on_append":true}"#),
        Ok(BasinConfigPatch {
            default_stream_config: StreamConfigPatch::CLEAR,
            create_stream_on_append: Some(true),
            create_stream_on_read: None,
        })
    );
    let nested = basin_patch(r#"{"default_stream_config":{"timestamping":null}}"#).unwrap();
    assert_eq!(
        nested.default_stream_config,
        StreamConfigPatch {
            timestamping_mode: Patch::Clear,
            timestamping_uncapped: Patch::Clear,
            ..Default::default()
        }
    );
}
