//! Creations and forks, and what each answer says for certain.

use bytes::Bytes;
use leat::service::durable::{Creation, Post, Status};
use leat::types::ledger::{Producer, Then};
use leat::types::stream::Provision;

use super::calls::{body, is_unclear, writer_mark};
use super::model::{Append, Before};
use super::ops::{Maker, Waits, Writer};
use super::{CLIENTS, History, at, content_type};

impl History {
    pub(super) async fn create(
        &self,
        by: usize,
        slot: usize,
        (size, maker): (Option<usize>, Maker),
        creation: Creation,
    ) {
        let sizes: Vec<_> = size.into_iter().collect();
        let closes = creation.then == Then::Close;
        let writer_seq = (maker == Maker::Writer).then(|| self.next_mark(slot, Writer::Fresh));
        let (number, before) = {
            let mut model = self.model();
            let append = Append { closes, in_flight: 1, writer_seq, ..Append::to(slot, sizes.len()) };
            (model.begin(append), model.before())
        };
        let producer = (maker == Maker::Producer).then(|| {
            // An epoch of its own: its number.
            self.model().append(number).producer = Some((CLIENTS, number, 0));
            Producer::new("maker", number, 0).expect("legal")
        });
        let body = if sizes.is_empty() { Bytes::new() } else { body(slot, number, &sizes) };
        let post = Post {
            content_type: (!body.is_empty()).then(|| content_type(slot)),
            body: body.clone(),
            producer: producer.clone(),
            then: creation.then,
            ..Post::default()
        };
        let is_repeated = producer.is_some() && (closes || !body.is_empty());
        let creation = Creation { body, producer, writer_seq: writer_seq.map(writer_mark), ..creation };
        self.create_once(by, slot, (number, &before, sizes.len() as u64), &creation).await;
        if is_repeated {
            // It is in, or gets in now.
            self.send((by, Waits::Always), number, post).await;
        }
    }

    async fn create_once(
        &self,
        by: usize,
        slot: usize,
        (number, before, count): (u64, &Before, u64),
        creation: &Creation,
    ) {
        let began_ms = self.world.clock.now_ms();
        let service = &self.processes[by].service;
        let outcome = self.in_time(by, service.create_durable(&at(slot), creation)).await;
        let mut model = self.model();
        model.append(number).in_flight = 0;
        model.used(slot, None, self.world.clock.now_ms());
        let Some(outcome) = outcome.filter(|outcome| !is_unclear(outcome)) else {
            model.append(number).is_unclear = true;
            return;
        };
        self.turn.created(slot, &self.under, creation, &outcome);
        let Ok((status, provision)) = outcome else { return };
        if provision == Provision::Created {
            let start = creation.fork.is_none().then_some(0);
            model.append(number).placed.insert(status.life.clone(), start);
            self.check_new(before, &status, (creation.fork.is_none(), count));
            model.life(slot, &status.life).made_with = count;
        }
        model.saw_state(slot, before, &status.tag());
        let since_ms = if provision == Provision::Created { began_ms } else { 0 };
        model.lives_for(slot, &status, since_ms);
    }

    fn check_new(&self, before: &Before, status: &Status, (is_new, count): (bool, u64)) {
        assert!(!before.contains_key(&status.life), "a new stream was known: {status:?}");
        assert!(status.tail >= count && (!is_new || status.start == 0), "{status:?}");
    }
}
