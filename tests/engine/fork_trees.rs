//! Forks of forks of streams whose index has several levels: each holds what its source held, once, whatever of it is
//! copied by the store, read ahead or read, and wherever it ends. `LEAT_HISTORY_CASES` sets the number of trees.

use leat::engine;
use leat::service::durable::{Creation, Error, ForkOf, Post, ReadFrom, StreamSnapshot};
use leat::storage::manifest::Shape;
use leat::types::ledger::ContentType;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::durable::at;
use crate::random::cases;
use crate::world::{Process, World};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// What happens next; sizes are those of the messages of one append.
#[derive(Clone, Debug)]
enum Op {
    Append(Index, Vec<usize>),
    Fork { source: Index, at: Index, beyond: u64, own: Vec<usize> },
    Snapshot(Index, Index),
    Sweep,
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let few = |least| prop::collection::vec(prop_oneof![3 => 0usize..300, 1 => 0usize..4_000], least..6);
    // More than what is read at once, after some of these.
    let many = || prop::collection::vec(0usize..40, 200..500);
    let sizes = |least| prop_oneof![3 => few(least), 1 => many()];
    let fork = (any::<Index>(), any::<Index>(), prop_oneof![2 => Just(0), 1 => 1u64..4], sizes(0));
    prop_oneof![
        10 => (any::<Index>(), sizes(1)).prop_map(|(stream, sizes)| Op::Append(stream, sizes)),
        4 => fork.prop_map(|(source, at, beyond, own)| Op::Fork { source, at, beyond, own }),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(stream, at)| Op::Snapshot(stream, at)),
        1 => Just(Op::Sweep),
        1 => Just(Op::Restart),
    ]
}

/// What a stream is to hold: messages, and whether more of the same append follow each.
#[derive(Clone, Debug, Default)]
struct Model {
    start: usize,
    messages: Vec<(String, bool)>,
}

impl Model {
    /// An append of as many messages as sizes; its body.
    fn append(&mut self, sizes: &[usize], count: &mut u64) -> String {
        let texts: Vec<_> = sizes
            .iter()
            .map(|size| {
                *count += 1;
                format!("\"{count}{}\"", "x".repeat(*size))
            })
            .collect();
        for (index, text) in texts.iter().enumerate() {
            self.messages.push((text.clone(), index + 1 < texts.len()));
        }
        if texts.is_empty() { String::new() } else { format!("[{}]", texts.join(",")) }
    }

    /// What a fork begins with, if it may begin there.
    fn fork(&self, at: usize, beyond: usize) -> Option<Self> {
        let end = at + beyond;
        let is_legal = at >= self.start
            && end <= self.messages.len()
            && (beyond == 0 || self.messages[at..end - 1].iter().all(|(_, more)| *more));
        let mut messages = self.messages.get(..end).filter(|_| is_legal)?.to_vec();
        if let Some(last) = messages.last_mut() {
            last.1 = false;
        }
        Some(Self { start: self.start, messages })
    }
}

fn json() -> Option<ContentType> {
    Some(ContentType::new("application/json").expect("legal"))
}

async fn check(process: &Process, name: &str, model: &Model) {
    let mut reader = process
        .service
        .durable_reader(&at(name), ReadFrom::At(model.start as u64))
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut read = Vec::new();
    while !reader.is_at_tail() {
        for message in reader.messages(20_000).await.expect("readable") {
            assert_eq!(message.seq_num, (model.start + read.len()) as u64, "{name}");
            read.push(String::from_utf8(message.body.to_vec()).expect("text"));
        }
    }
    let expected: Vec<_> = model.messages[model.start..].iter().map(|(text, _)| text.clone()).collect();
    assert!(read == expected, "{name}: {} messages, not {}", read.len(), expected.len());
}

async fn grow(copied_bytes_min: u64, ops: Vec<Op>) {
    let shape = Shape {
        inline_bytes_standard: 2_048,
        refs_max: 4,
        page_refs_max: 4,
        copied_bytes_min,
        ..Shape::default()
    };
    let options = engine::Options { shape, ..engine::Options::default() };
    let world = World { options, ..World::timed() };
    let mut process = world.process();
    let mut streams = vec![Model::default()];
    let mut count = 0;
    let first = Creation { content_type: json(), ..Creation::default() };
    process.create("s-0", &first).await.expect("created");
    for op in ops {
        match op {
            Op::Append(stream, sizes) => {
                let stream = stream.index(streams.len());
                let body = streams[stream].append(&sizes, &mut count).into();
                let post = Post { content_type: json(), body, ..Post::default() };
                process.service.post(&at(&format!("s-{stream}")), post).await.expect("appended");
            }
            Op::Fork { source, at: place, beyond, own } => {
                let source = source.index(streams.len());
                let place = place.index(streams[source].messages.len() + 1);
                let expected = streams[source].fork(place, beyond as usize);
                let mut model = expected.clone().unwrap_or_default();
                let body = model.append(&own, &mut count).into();
                let of = ForkOf { source: at(&format!("s-{source}")), at: Some(place as u64), beyond };
                let creation = Creation { body, fork: Some(of), ..Creation::default() };
                let name = format!("s-{}", streams.len());
                match process.create(&name, &creation).await {
                    Ok(_) => {
                        assert!(expected.is_some(), "{name} at {place} and {beyond}");
                        check(&process, &name, &model).await;
                        streams.push(model);
                    }
                    Err(Error::BeyondTail { .. } | Error::Trimmed { .. } | Error::Invalid(_)) => {
                        assert!(expected.is_none(), "{name} at {place} and {beyond}");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Op::Snapshot(stream, place) => {
                let stream = stream.index(streams.len());
                let model = &mut streams[stream];
                model.start += place.index(model.messages.len() + 1 - model.start);
                let content_type = ContentType::octets();
                let snapshot =
                    StreamSnapshot { at: model.start as u64, content_type, bytes: "snapshot".into() };
                let stands = process.service.put_snapshot(&at(&format!("s-{stream}")), &snapshot).await;
                stands.expect("stands");
            }
            Op::Sweep => {
                world.clock.advance_ms(2 * DAY_MS);
                process.sweep().await.expect("swept");
            }
            Op::Restart => process = world.process(),
        }
    }
    let cold = world.process();
    for (index, model) in streams.iter().enumerate() {
        check(&cold, &format!("s-{index}"), model).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(24),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_fork_holds_what_its_source_held(
        copied_bytes_min in prop_oneof![Just(1), Just(3_000), Just(256 * 1024)],
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(grow(copied_bytes_min, ops));
    }
}
