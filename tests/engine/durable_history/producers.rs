//! Clients with a producer id: they send several appends at once, and again what was not answered, here or there.

use std::collections::VecDeque;

use bytes::Bytes;
use leat::service::durable::Post;
use leat::types::ledger::{Producer, Refusal, Then};

use super::calls::{Sent, body};
use super::model::Append;
use super::{History, Waits, content_type};

/// How often a client sends what was not answered.
const SENDS_MAX: usize = 3;

/// An append of a client that is not known to be in the stream.
#[derive(Clone, Debug)]
struct Pending {
    number: u64,
    seq: u64,
    body: Bytes,
    closes: bool,
}

/// A client in one epoch.
#[derive(Clone, Debug, Default)]
struct Epoch {
    epoch: u64,
    next: u64,
    pending: VecDeque<Pending>,
}

/// A client, and what is left of it from an earlier epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    now: Epoch,
    old: Option<Epoch>,
}

impl Epoch {
    /// What follows it. What it has sent and not got in is given up.
    fn above(&mut self, epoch: u64) {
        *self = Self { epoch: self.epoch.max(epoch) + 1, ..Self::default() };
    }
}

impl History {
    fn take(&self, slot: usize, client: usize) -> Option<Client> {
        self.clients.lock().expect("no panic")[slot][client].take()
    }

    fn put(&self, slot: usize, id: usize, client: Client) {
        self.clients.lock().expect("no panic")[slot][id] = Some(client);
    }

    pub(super) async fn produce(
        &self,
        processes: ([usize; 2], Waits),
        (slot, id): (usize, usize),
        (sizes, closes): (Vec<usize>, bool),
    ) {
        let Some(mut client) = self.take(slot, id) else { return };
        let count = sizes.len();
        for (i, size) in sizes.into_iter().enumerate() {
            self.add(slot, id, &mut client.now, (size, closes && i + 1 == count));
        }
        self.send_all(processes, (slot, id), &mut client.now).await;
        self.put(slot, id, client);
    }

    /// Begins a new epoch, as a client does that has started again.
    pub(super) fn bump(&self, slot: usize, id: usize) {
        let Some(mut client) = self.take(slot, id) else { return };
        let old = client.now.clone();
        client.now.above(0);
        client.old = Some(old);
        self.put(slot, id, client);
    }

    /// The former one goes on with what it had, and one more. If there is none, the client starts again first, and
    /// the new one is heard of before the old one.
    pub(super) async fn haunt(&self, by: usize, slot: usize, id: usize) {
        let Some(mut client) = self.take(slot, id) else { return };
        if client.old.is_none() {
            client.old = Some(client.now.clone());
            client.now.above(0);
            self.add(slot, id, &mut client.now, (3, false));
            self.send_all(([by, by], Waits::Always), (slot, id), &mut client.now).await;
        }
        if let Some(old) = &mut client.old {
            let before = old.epoch;
            self.add(slot, id, old, (3, false));
            self.send_all(([by, by], Waits::Always), (slot, id), old).await;
            // Told of the newer one, it ends.
            client.old.take_if(|old| old.epoch != before);
        }
        self.put(slot, id, client);
    }

    fn add(&self, slot: usize, id: usize, epoch: &mut Epoch, (size, closes): (usize, bool)) {
        let sizes = match slot.is_multiple_of(2) {
            // A close alone.
            _ if closes && size < 20 => Vec::new(),
            true => vec![size, 1],
            false => vec![size],
        };
        let append =
            Append { producer: Some((id, epoch.epoch, epoch.next)), closes, ..Append::to(slot, sizes.len()) };
        let number = self.model().begin(append);
        let body = if sizes.is_empty() { Bytes::new() } else { body(slot, number, &sizes) };
        epoch.pending.push_back(Pending { number, seq: epoch.next, body, closes });
        epoch.next += 1;
    }

    /// Sends what is pending, all of it at once, until it is in or will never be.
    async fn send_all(
        &self,
        (processes, waits): ([usize; 2], Waits),
        (slot, id): (usize, usize),
        epoch: &mut Epoch,
    ) {
        for send in 0..SENDS_MAX {
            let waits = if send == 0 { waits } else { Waits::Always };
            let by = (processes[send % 2], waits);
            let all = epoch.pending.iter().map(|pending| {
                let Pending { number, seq, body, closes } = pending.clone();
                let producer = Producer::new(&format!("client-{id}"), epoch.epoch, seq).expect("legal");
                let post = Post {
                    content_type: (!body.is_empty()).then(|| content_type(slot)),
                    body,
                    producer: Some(producer),
                    then: if closes { Then::Close } else { Then::Open },
                    ..Post::default()
                };
                self.send(by, number, post)
            });
            let outcomes = futures::future::join_all(all).await;
            let first = epoch.pending.front().map(|pending| pending.seq);
            let mut is_over = None;
            for (at, outcome) in outcomes.iter().enumerate().rev() {
                match outcome {
                    // Nobody has heard of it.
                    _ if matches!(waits, Waits::InVain) => {}
                    Sent::In => {
                        epoch.pending.remove(at);
                    }
                    Sent::Unclear | Sent::Busy => {}
                    Sent::Refused(Refusal::StaleEpoch { epoch }) => is_over = Some(*epoch),
                    // Those before it come once more.
                    Sent::Refused(Refusal::Gap { expected, .. }) if Some(*expected) >= first => {}
                    Sent::Refused(_) | Sent::Failed => is_over = is_over.or(Some(0)),
                }
            }
            if let Some(of) = is_over {
                // Only what was said about the newest attempts is known: what is unclear stays so.
                epoch.above(of);
                return;
            }
            if epoch.pending.is_empty() {
                return;
            }
        }
    }
}
