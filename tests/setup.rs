//! `leat setup` and access to AWS: the built binary against an S3-compatible server, and against one that refuses.

#![allow(clippy::disallowed_methods, reason = "tests read their own environment and clock")]

#[path = "support/mod.rs"]
mod support;

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leat::storage::key::{self, Incarnation, StreamHash, StreamKind};
use leat::types::name::{BasinName, BucketName};
use support::ministack::MiniStack;
use support::refusing::{Refusal, Refusing};
use support::server::ServerOptions;

/// A text with `Days` for each rule: what somebody else set up before.
const FOREIGN_RULE: &str = "<LifecycleConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Rule>\
    <ID>backups</ID><Filter><And><Prefix>backups/</Prefix><Tag><Key>keep</Key><Value>short</Value></Tag></And>\
    </Filter><Status>Enabled</Status><Expiration><Days>30</Days></Expiration></Rule></LifecycleConfiguration>";

/// The lines of `leat setup`, and how it ended.
struct Ran {
    code: Option<i32>,
    out: String,
    log: String,
}

impl Ran {
    /// The line of a step.
    fn step(&self, step: &str) -> &str {
        let is_of = |line: &&str| line.get(7..).is_some_and(|rest| rest.starts_with(step));
        self.out
            .lines()
            .find(is_of)
            .unwrap_or_else(|| panic!("no line of {step} in:\n{}{}", self.out, self.log))
    }

    /// Checks exit code and summary.
    fn ends(&self, code: i32, summary: &str) {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.log);
        assert!(self.step("setup").contains(summary), "{}", self.out);
    }
}

/// Runs the binary with nothing of the test's own `LEAT_*` and `AWS_*`, nor of its user's profiles.
fn leat(args: &[&str], variables: &[(String, String)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leat"));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("LEAT_") || name.starts_with("AWS_")) {
            command.env_remove(name);
        }
    }
    for name in ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"] {
        command.env(name, "there-is-no-such-file");
    }
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    command.args(args).envs(variables.iter().map(|(name, value)| (name, value)));
    command.output().expect("the binary runs")
}

async fn setup(store: &str, flags: &[&str], variables: &[(String, String)]) -> Ran {
    let (store, variables) = (store.to_owned(), variables.to_vec());
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    // The doubles run on this runtime.
    let ran = tokio::task::spawn_blocking(move || {
        let mut args = vec!["setup", "--store", &store];
        args.extend(flags.iter().map(String::as_str));
        leat(&args, &variables)
    });
    let output = ran.await.expect("it ran");
    Ran {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        log: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

async fn ministack() -> Arc<MiniStack> {
    tokio::task::spawn_blocking(MiniStack::shared).await.expect("it starts")
}

/// What reaches the server at this address.
fn variables(url: &str) -> Vec<(String, String)> {
    [("AWS_ENDPOINT_URL", url), ("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
}

/// One request of the S3 API, not signed; status and body.
async fn s3(server: &MiniStack, method: &str, target: &str, body: &str) -> (u16, String) {
    leat::serve::install_crypto();
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let method = method.parse().expect("a method");
    let url = format!("http://{}/{target}", server.address);
    let mut request = client.request(method, url).body(body.to_owned());
    if target.starts_with("locked") {
        request = request.header("x-amz-bucket-object-lock-enabled", "true");
    }
    let answer = request.send().await.expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("a body"))
}

/// All that a set-up may change: what the bucket is, and which objects are in it, with their versions.
async fn state(server: &MiniStack, bucket: &str) -> Vec<(u16, String)> {
    let mut state = Vec::new();
    for about in ["", "?lifecycle", "?publicAccessBlock", "?versioning", "?encryption", "?policy", "?acl"] {
        state.push(s3(server, "GET", &format!("{bucket}{about}"), "").await);
    }
    for part in &mut state {
        // Errors name the request they answer.
        if part.0 >= 400 {
            part.1.clear();
        }
    }
    state
}

async fn version(server: &MiniStack, key: &str) -> String {
    let url = format!("http://{}/{key}", server.address);
    let answer = reqwest::Client::new().head(url).send().await.expect("an answer");
    assert_eq!(answer.status(), 200, "{key}");
    answer.headers()["etag"].to_str().expect("text").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_bucket_is_set_up_once_and_serves() {
    let server = ministack().await;
    let variables = server.variables();
    let store = "s3://fresh-bucket/team/leat";
    assert_eq!(s3(&server, "HEAD", "fresh-bucket", "").await.0, 404);

    let first = setup(store, &[], &variables).await;
    first.ends(0, "the store is set up; steps that changed something: 4");
    assert!(first.step("bucket").contains("created `fresh-bucket` in us-east-1"), "{}", first.out);
    assert!(first.step("probe").contains("passed and recorded"), "{}", first.out);
    let (_, block) = s3(&server, "GET", "fresh-bucket?publicAccessBlock", "").await;
    assert_eq!(block.matches(">true<").count(), 4, "{block}");
    let (_, rules) = s3(&server, "GET", "fresh-bucket?lifecycle", "").await;
    for part in [
        "<ID>leat-inbox:team/leat</ID>",
        "<Prefix>team/leat/inbox/</Prefix>",
        "<Days>1</Days>",
        "<ID>leat-uploads:team/leat</ID>",
        "<Prefix>team/leat/</Prefix>",
        "<DaysAfterInitiation>1</DaysAfterInitiation>",
    ] {
        assert!(rules.contains(part), "{part} in {rules}");
    }
    for class in ["4d", "32d", "400d"] {
        assert!(rules.contains(&format!("<Prefix>team/leat/data/{class}/</Prefix>")), "{class} in {rules}");
    }
    assert!(!rules.contains("data/inf/") && !rules.contains("manifest/"), "{rules}");
    let record = version(&server, "fresh-bucket/team/leat/meta/store").await;

    let before = state(&server, "fresh-bucket").await;
    let second = setup(store, &[], &variables).await;
    second.ends(0, "nothing changed: everything was set up already");
    assert!(!second.out.contains("done"), "{}", second.out);
    assert_eq!(state(&server, "fresh-bucket").await, before);

    let options = ServerOptions::on(store).variables(&variables);
    let running = tokio::task::spawn_blocking(move || options.start()).await.expect("it starts");
    assert_eq!(version(&server, "fresh-bucket/team/leat/meta/store").await, record, "it is known already");
    drop(running);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_others_are_kept() {
    let server = ministack().await;
    s3(&server, "PUT", "shared-bucket", "").await;
    assert_eq!(s3(&server, "PUT", "shared-bucket?lifecycle", FOREIGN_RULE).await.0, 200);
    let ran = setup("s3://shared-bucket", &[], &server.variables()).await;
    ran.ends(0, "the store is set up");
    assert!(ran.step("lifecycle").contains("kept 1 rules of others"), "{}", ran.out);
    setup("s3://shared-bucket/second", &[], &server.variables()).await.ends(0, "the store is set up");
    let (_, rules) = s3(&server, "GET", "shared-bucket?lifecycle", "").await;
    assert_eq!(rules.matches("<Rule>").count(), 11, "{rules}");
    for part in ["<ID>backups</ID>", "<Prefix>backups/</Prefix>", "<Key>keep</Key>", "<Days>30</Days>"] {
        assert!(rules.contains(part), "{part} in {rules}");
    }
    for id in ["leat-inbox", "leat-uploads", "leat-inbox:second", "leat-uploads:second"] {
        assert!(rules.contains(&format!("<ID>{id}</ID>")), "{id} in {rules}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_versioned_bucket_is_refused_until_its_old_versions_expire() {
    let server = ministack().await;
    s3(&server, "PUT", "versioned-bucket", "").await;
    let on = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    assert_eq!(s3(&server, "PUT", "versioned-bucket?versioning", on).await.0, 200);
    let refused = setup("s3://versioned-bucket/leat", &[], &server.variables()).await;
    refused.ends(1, "the store is not set up; steps to put right: 1");
    let line = refused.step("versioning");
    assert!(line.starts_with("FAILED") && line.contains("NoncurrentDays 1"), "{line}");
    assert!(refused.step("probe").contains("put right first"), "{}", refused.out);

    let (_, rules) = s3(&server, "GET", "versioned-bucket?lifecycle", "").await;
    let rule = "<Rule><ID>old-versions</ID><Filter><Prefix>leat/</Prefix></Filter><Status>Enabled</Status>\
        <NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration></Rule>\
        </LifecycleConfiguration>";
    let rules = rules.replace("</LifecycleConfiguration>", rule);
    assert_eq!(s3(&server, "PUT", "versioned-bucket?lifecycle", &rules).await.0, 200);
    let accepted = setup("s3://versioned-bucket/leat", &[], &server.variables()).await;
    accepted.ends(0, "the store is set up");
    assert!(accepted.step("versioning").starts_with("ok"), "{}", accepted.out);
    let elsewhere = setup("s3://versioned-bucket/other", &[], &server.variables()).await;
    elsewhere.ends(1, "the store is not set up");
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_and_keys_per_request_are_refused() {
    let server = ministack().await;
    s3(&server, "PUT", "locked-bucket", "").await;
    let locked = setup("s3://locked-bucket", &[], &server.variables()).await;
    locked.ends(1, "the store is not set up; steps to put right: 2");
    assert!(locked.step("object lock").contains("Object Lock is enabled"), "{}", locked.out);
    assert!(locked.step("versioning").starts_with("FAILED"), "{}", locked.out);

    s3(&server, "PUT", "kms-bucket", "").await;
    let kms = |bucket_key: bool| {
        format!(
            "<ServerSideEncryptionConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Rule>\
             <ApplyServerSideEncryptionByDefault><SSEAlgorithm>aws:kms</SSEAlgorithm>\
             </ApplyServerSideEncryptionByDefault><BucketKeyEnabled>{bucket_key}</BucketKeyEnabled></Rule>\
             </ServerSideEncryptionConfiguration>"
        )
    };
    assert_eq!(s3(&server, "PUT", "kms-bucket?encryption", &kms(false)).await.0, 200);
    let refused = setup("s3://kms-bucket", &[], &server.variables()).await;
    refused.ends(1, "the store is not set up; steps to put right: 1");
    assert!(refused.step("encryption").contains("aws:kms without a bucket key"), "{}", refused.out);
    assert_eq!(s3(&server, "PUT", "kms-bucket?encryption", &kms(true)).await.0, 200);
    let accepted = setup("s3://kms-bucket", &[], &server.variables()).await;
    assert!(accepted.step("encryption").contains("aws:kms with a bucket key"), "{}", accepted.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_changes_nothing() {
    let server = ministack().await;
    let missing = setup("s3://dry-missing", &["--dry-run"], &server.variables()).await;
    missing.ends(0, "nothing changed; steps to be done: 4");
    assert_eq!(s3(&server, "HEAD", "dry-missing", "").await.0, 404);

    s3(&server, "PUT", "dry-bucket", "").await;
    s3(&server, "PUT", "dry-bucket?lifecycle", FOREIGN_RULE).await;
    let before = state(&server, "dry-bucket").await;
    let ran = setup("s3://dry-bucket/p", &["--dry-run"], &server.variables()).await;
    ran.ends(0, "nothing changed; steps to be done: 3");
    assert!(ran.step("lifecycle").starts_with("would"), "{}", ran.out);
    assert_eq!(state(&server, "dry-bucket").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_call_names_the_least_it_needs() {
    let server = ministack().await;
    s3(&server, "PUT", "denied-bucket", "").await;
    let table = [
        ("HEAD", "/denied-bucket", "bucket", "s3:ListBucket"),
        ("PUT", "/new-denied-bucket", "bucket", "s3:CreateBucket"),
        ("GET", "publicAccessBlock", "public access", "s3:GetBucketPublicAccessBlock"),
        ("PUT", "publicAccessBlock", "public access", "s3:PutBucketPublicAccessBlock"),
        ("GET", "lifecycle", "lifecycle", "s3:GetLifecycleConfiguration"),
        ("PUT", "lifecycle", "lifecycle", "s3:PutLifecycleConfiguration"),
        ("GET", "versioning", "versioning", "s3:GetBucketVersioning"),
        ("GET", "object-lock", "object lock", "s3:GetBucketObjectLockConfiguration"),
        ("GET", "encryption", "encryption", "s3:GetEncryptionConfiguration"),
        ("PUT", "meta/probe", "probe", "s3:PutObject"),
    ];
    for (method, about, step, action) in table {
        let refusal = Refusal { method, about, status: 403, code: "AccessDenied" };
        let double = Refusing::before(&server.address, &[refusal]).await;
        let bucket = if action == "s3:CreateBucket" { "new-denied-bucket" } else { "denied-bucket" };
        let ran = setup(&format!("s3://{bucket}"), &[], &variables(&double.url)).await;
        ran.ends(1, "the store is not set up; steps to put right: 1");
        let line = ran.step(step);
        assert!(line.starts_with("FAILED") && line.contains(action), "{method} {about}: {}", ran.out);
        assert!(line.contains(&format!("arn:aws:s3:::{bucket}")), "{method} {about}: {line}");
        // Undone, so that the next in the table has something to do again.
        for about in ["lifecycle", "publicAccessBlock"] {
            s3(&server, "DELETE", &format!("denied-bucket?{about}"), "").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_store_lacks_is_skipped() {
    let server = ministack().await;
    s3(&server, "PUT", "plain-bucket", "").await;
    let refusals = ["publicAccessBlock", "lifecycle", "versioning", "object-lock", "encryption"]
        .map(|about| Refusal { method: "GET", about, status: 501, code: "NotImplemented" });
    let double = Refusing::before(&server.address, &refusals).await;
    let ran = setup("s3://plain-bucket", &[], &variables(&double.url)).await;
    ran.ends(0, "steps that changed something: 1");
    assert_eq!(ran.out.matches("skip   ").count(), 5, "{}", ran.out);
    assert!(ran.step("probe").starts_with("done"), "{}", ran.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_and_the_memory_are_only_probed() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("file://{}", folder.path().join("data").display());
    let ran = setup(&store, &[], &[]).await;
    ran.ends(0, "steps that changed something: 1");
    assert!(ran.step("bucket").contains("none"), "{}", ran.out);
    assert!(folder.path().join("data/meta/store").exists());
    setup(&store, &[], &[]).await.ends(0, "nothing changed");
    let dry = format!("file://{}", folder.path().join("other").display());
    setup(&dry, &["--dry-run"], &[]).await.ends(0, "nothing changed; steps to be done: 1");
    assert!(!folder.path().join("other").exists());
    setup("memory:", &[], &[]).await.ends(0, "steps that changed something: 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_bucket_is_refused_with_what_to_do() {
    let ran = setup("s3://logs--euc1-az1--x-s3/p", &[], &variables("http://127.0.0.1:9")).await;
    ran.ends(1, "the store is not set up");
    assert!(ran.step("bucket").contains("directory bucket") && ran.out.contains("p/inbox/"), "{}", ran.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_report_can_be_read_by_programs() {
    let ran = setup("memory:", &["--format", "json"], &[]).await;
    let lines: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let text = |line: &serde_json::Value, field: &str| line[field].as_str().expect("text").to_owned();
    let steps: Vec<_> = lines.iter().map(|line| text(line, "step") + " " + &text(line, "outcome")).collect();
    assert_eq!(steps, ["bucket skipped", "probe done", "setup done"]);
    assert!(lines.iter().all(|line| line["what"].is_string()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_gives_credentials_region_and_endpoint() {
    let server = ministack().await;
    let double = Refusing::before(&server.address, &[]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let keys = "[team]\naws_access_key_id = FROMPROFILE\naws_secret_access_key = hush\n";
    let config = format!("[profile team]\nregion = eu-central-1\nendpoint_url = {}\n", double.url);
    let profile = [
        ("AWS_SHARED_CREDENTIALS_FILE", file("credentials", keys)),
        ("AWS_CONFIG_FILE", file("config", &config)),
        ("AWS_PROFILE", "team".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value));
    // The set-up asks by the SDK, the probe by the store's own client; both must have found the profile.
    let ran = setup("s3://profile-bucket", &[], &profile).await;
    ran.ends(0, "the store is set up");
    assert!(ran.step("bucket").contains("eu-central-1"), "{}", ran.out);
    assert_eq!(double.signers(), ["FROMPROFILE"]);
    assert!(!ran.log.contains("hush") && !ran.out.contains("hush"));

    // Variables go first, and an empty one is none.
    let mut variables = profile.to_vec();
    for (name, value) in [("AWS_ACCESS_KEY_ID", "FROMVARIABLES"), ("AWS_SECRET_ACCESS_KEY", "hush")] {
        variables.push((name.to_owned(), value.to_owned()));
    }
    for name in ["AWS_REGION", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"] {
        variables.push((name.to_owned(), String::new()));
    }
    setup("s3://profile-bucket", &[], &variables).await.ends(0, "nothing changed");
    assert_eq!(double.signers(), ["FROMPROFILE", "FROMVARIABLES"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_may_name_a_command_that_knows_credentials() {
    let server = ministack().await;
    let double = Refusing::before(&server.address, &[]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let answer = folder.path().join("answer");
    let given = r#"{"Version":1,"AccessKeyId":"FROMCOMMAND","SecretAccessKey":"hush"}"#;
    std::fs::write(&answer, given).expect("written");
    let config = folder.path().join("config");
    let profile = format!("[default]\ncredential_process = cat {}\n", answer.display());
    std::fs::write(&config, profile).expect("written");
    let variables =
        [("AWS_CONFIG_FILE", config.display().to_string()), ("AWS_ENDPOINT_URL", double.url.clone())]
            .map(|(name, value)| (name.to_owned(), value));
    setup("s3://command-bucket", &[], &variables).await.ends(0, "the store is set up");
    assert_eq!(double.signers(), ["FROMCOMMAND"]);
}

/// What a container's or an instance's credentials look like; they are good for an hour.
fn role_credentials(key_id: &str) -> String {
    let clock = leat::types::time::Clock::system();
    let expiration = leat::types::time::rfc3339(clock.local_ms() + 3_600_000);
    format!(
        r#"{{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"{key_id}","SecretAccessKey":"hush","Token":"t",
            "LastUpdated":"2026-11-30T00:00:00Z","Expiration":"{expiration}"}}"#
    )
}

/// A metadata service of an instance and of a container; its address, and the number of requests so far.
async fn metadata() -> (String, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let answer = move |uri: axum::http::Uri| async move {
        counted.fetch_add(1, Ordering::SeqCst);
        let headers = [("x-aws-ec2-metadata-token-ttl-seconds", "21600")];
        match uri.path() {
            "/latest/api/token" => Ok((headers, "token".to_owned())),
            "/latest/meta-data/iam/security-credentials/" => Ok((headers, "role".to_owned())),
            "/latest/meta-data/iam/security-credentials/role" => {
                Ok((headers, role_credentials("FROMINSTANCE")))
            }
            "/container" => Ok((headers, role_credentials("FROMCONTAINER"))),
            _ => Err(axum::http::StatusCode::NOT_FOUND),
        }
    };
    let app = axum::Router::new().fallback(answer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machine_is_asked_only_if_nothing_else_tells() {
    let server = ministack().await;
    let (metadata, asked) = metadata().await;
    let double = Refusing::before(&server.address, &[]).await;
    let with = |more: &[(&str, &str)]| {
        let mut variables = vec![
            ("AWS_ENDPOINT_URL", double.url.clone()),
            ("AWS_EC2_METADATA_DISABLED", "false".to_owned()),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.clone()),
        ];
        variables.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Vec<_>>()
    };
    let keys = [("AWS_ACCESS_KEY_ID", "FROMVARIABLES"), ("AWS_SECRET_ACCESS_KEY", "hush")];
    setup("s3://machine-bucket", &[], &with(&keys)).await.ends(0, "the store is set up");
    assert_eq!(asked.load(Ordering::SeqCst), 0, "variables tell");
    let container = format!("{metadata}/container");
    let container = with(&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", &container)]);
    setup("s3://machine-bucket", &[], &container).await.ends(0, "nothing changed");
    let of_container = asked.load(Ordering::SeqCst);
    assert!(of_container > 0);
    let ran = setup("s3://machine-bucket", &[], &with(&[])).await;
    ran.ends(0, "nothing changed");
    assert!(!ran.log.contains("hush"), "{}", ran.log);
    let of_instance = asked.load(Ordering::SeqCst) - of_container;
    assert!(of_instance < 12, "{of_instance} requests for dozens of the probe's");
    assert_eq!(double.signers(), ["FROMCONTAINER", "FROMINSTANCE", "FROMVARIABLES"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_endpoint_of_a_profile_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config");
    std::fs::write(&path, "[default]\nendpoint_url = ftp://127.0.0.1\n").expect("written");
    let variables = [
        ("AWS_CONFIG_FILE", path.to_str().expect("text")),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let args = ["--store", "s3://bucket", "--listen", "127.0.0.1:0"];
    let output = tokio::task::spawn_blocking(move || leat(&args, &variables)).await.expect("it ran");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("`ftp://127.0.0.1`"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_credentials_one_line_says_so_within_seconds() {
    let server = ministack().await;
    let only_endpoint = vec![("AWS_ENDPOINT_URL".to_owned(), format!("http://{}", server.address))];
    for endpoint in [only_endpoint, Vec::new()] {
        let begun = Instant::now();
        let args = ["--store", "s3://bucket", "--listen", "127.0.0.1:0", "--log=error"];
        let output = tokio::task::spawn_blocking(move || leat(&args, &endpoint)).await.expect("it ran");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}: {said}", begun.elapsed());
        let errors: Vec<_> = said.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "{said}");
        assert!(errors[0].contains("no AWS credentials: set AWS_ACCESS_KEY_ID"), "{said}");
    }
    let only_endpoint = [("AWS_ENDPOINT_URL".to_owned(), format!("http://{}", server.address))];
    let ran = setup("s3://bucket", &[], &only_endpoint).await;
    ran.ends(1, "the store is not set up");
    assert!(ran.step("bucket").contains("no AWS credentials: set AWS_ACCESS_KEY_ID"), "{}", ran.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_with_single_sign_on_is_told_the_way_around() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config");
    let profile = "[default]\nsso_session = s\nsso_account_id = 1\nsso_role_name = r\n\
        [sso-session s]\nsso_region = us-east-1\nsso_start_url = https://127.0.0.1\n";
    std::fs::write(&config, profile).expect("written");
    let config = config.display().to_string();
    let variables = [("AWS_CONFIG_FILE", config.as_str()), ("AWS_ENDPOINT_URL", "http://127.0.0.1:9")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let ran = setup("s3://bucket", &[], &variables).await;
    assert!(ran.step("bucket").contains("aws configure export-credentials"), "{}", ran.out);
    let args = ["--store", "s3://bucket", "--listen", "127.0.0.1:0"];
    let output = tokio::task::spawn_blocking(move || leat(&args, &variables)).await.expect("it ran");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("aws configure export-credentials"), "{said}");
}

#[test]
fn the_bucket_policy_guards_every_register() {
    let policy = include_str!("../infra/bucket-policy.yaml");
    let hash = StreamHash::new(StreamKind::S2, Incarnation::fresh(), "s");
    let basin = BasinName::try_from("some-basin").expect("legal");
    let bucket = BucketName::try_from("some-bucket").expect("legal");
    for register in [key::manifest(&hash), key::basin(&basin), key::bucket(&bucket)] {
        let folder = register.split('/').next().expect("a folder");
        assert!(policy.contains(&format!("${{Prefix}}/{folder}/*")), "{register}");
    }
    assert!(policy.contains(&format!("${{Prefix}}/{}", key::STORE)));
}
