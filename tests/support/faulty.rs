//! A store that misbehaves on demand: faults by operation and key, as a network and a bucket produce them.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use leat::store::{ETag, Error, Fetched, ListQuery, Listed, Object, Operation, Result, Store};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The write is applied, its answer lost.
    DropAfterApply,
    /// Nothing is applied and the answer is unclear, as for a 503.
    Unavailable,
    /// A 409 that hides no write.
    Conflict,
    /// The answer is lost at once, the write is applied this much later.
    ApplyLate(Duration),
    /// The request takes this much longer.
    Delay(Duration),
    /// The request is done at once, its answer arrives this much later.
    AnswerLate(Duration),
    /// No answer ever, and nothing is applied.
    Hang,
    /// The request waits for [`Faulty::release`].
    Held,
}

/// Which requests a fault meets.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    operation: Operation,
    prefix: String,
    skip: usize,
    times: usize,
    fault: Fault,
}

/// A store with faults.
#[derive(Clone, Debug)]
pub(crate) struct Faulty {
    inner: Arc<dyn Store>,
    rules: Arc<Mutex<Vec<Rule>>>,
    log: Arc<Mutex<Vec<(Operation, String)>>>,
    dying: Arc<Mutex<Option<(usize, Fault)>>>,
    /// What the next pause is made of; 0 for none.
    pauses: Arc<AtomicU64>,
    released: Arc<tokio::sync::watch::Sender<bool>>,
}

impl Faulty {
    /// A store without faults so far.
    pub(crate) fn over(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            rules: Arc::default(),
            log: Arc::default(),
            dying: Arc::default(),
            pauses: Arc::default(),
            released: Arc::default(),
        }
    }

    /// Holds every such request until [`Faulty::release`].
    pub(crate) fn hold(&self, operation: Operation, prefix: &str) {
        self.released.send_replace(false);
        self.inject(operation, prefix, usize::MAX, Fault::Held);
    }

    /// Lets go what is held, and ends all faults.
    pub(crate) fn release(&self) {
        self.heal();
        self.released.send_replace(true);
    }

    /// Completes once this many such requests were made, held or not.
    pub(crate) async fn seen(&self, times: usize, operation: Operation, prefix: &str) {
        while self.count(operation, prefix) < times {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Such requests so far.
    pub(crate) fn count(&self, operation: Operation, prefix: &str) -> usize {
        self.log().iter().filter(|(op, key)| *op == operation && key.starts_with(prefix)).count()
    }

    /// The next `times` requests of this operation on keys with this prefix meet the fault.
    pub(crate) fn inject(&self, operation: Operation, prefix: &str, times: usize, fault: Fault) {
        self.inject_after((0, times), operation, prefix, fault);
    }

    /// The same, after `skip` such requests have passed.
    #[allow(clippy::too_many_arguments, reason = "each says what a request must be to meet the fault")]
    pub(crate) fn inject_after(
        &self,
        (skip, times): (usize, usize),
        operation: Operation,
        prefix: &str,
        fault: Fault,
    ) {
        self.rules.lock().expect("no panic").push(Rule {
            operation,
            prefix: prefix.to_owned(),
            skip,
            times,
            fault,
        });
    }

    /// After `skip` more requests, whatever they are, one meets the fault, and none after it is ever answered or done.
    pub(crate) fn die_after(&self, skip: usize, fault: Fault) {
        *self.dying.lock().expect("no panic") = Some((skip, fault));
    }

    /// Lets others go first, now and then, before and after every request; in an order that the seed tells.
    pub(crate) fn interleave(&self, seed: u64) {
        self.pauses.store(seed | 1, Ordering::Relaxed);
    }

    async fn pause(&self) {
        let next =
            |seed: u64| seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let seed = self.pauses.load(Ordering::Relaxed);
        if seed > 0 {
            self.pauses.store(next(seed).max(1), Ordering::Relaxed);
            for _ in 0..(seed >> 33) % 6 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Ends all faults.
    pub(crate) fn heal(&self) {
        self.rules.lock().expect("no panic").clear();
    }

    /// Every request so far.
    pub(crate) fn log(&self) -> Vec<(Operation, String)> {
        self.log.lock().expect("no panic").clone()
    }

    fn meets(&self, operation: Operation, key: &str) -> Option<Fault> {
        self.log.lock().expect("no panic").push((operation, key.to_owned()));
        match &mut *self.dying.lock().expect("no panic") {
            Some((0, fault)) => return Some(std::mem::replace(fault, Fault::Hang)),
            Some((skip, _)) => *skip -= 1,
            None => {}
        }
        let mut rules = self.rules.lock().expect("no panic");
        let rule = rules
            .iter_mut()
            .find(|r| r.operation == operation && r.times > 0 && key.starts_with(&r.prefix))?;
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        rule.times -= 1;
        Some(rule.fault)
    }

    async fn run<T: Send + 'static>(
        &self,
        operation: Operation,
        key: &str,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let unclear = || Error::Indefinite { operation, key: key.to_owned(), source: "injected".into() };
        match self.meets(operation, key) {
            None => {
                self.pause().await;
                let answer = request.await;
                self.pause().await;
                answer
            }
            Some(Fault::DropAfterApply) => {
                let _ = request.await;
                Err(unclear())
            }
            Some(Fault::Unavailable) => Err(unclear()),
            Some(Fault::Conflict) => Err(Error::Conflict { operation, key: key.to_owned() }),
            Some(Fault::ApplyLate(by)) => {
                tokio::spawn(async move {
                    tokio::time::sleep(by).await;
                    let _ = request.await;
                });
                Err(unclear())
            }
            Some(Fault::Delay(by)) => {
                tokio::time::sleep(by).await;
                request.await
            }
            Some(Fault::AnswerLate(by)) => {
                let answer = request.await;
                tokio::time::sleep(by).await;
                answer
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Held) => {
                let _ = self.released.subscribe().wait_for(|released| *released).await;
                request.await
            }
        }
    }
}

#[async_trait]
impl Store for Faulty {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        let (inner, k) = (self.inner.clone(), key.to_owned());
        self.run(Operation::Get, key, async move { inner.get(&k).await }).await
    }

    async fn get_if_changed(&self, key: &str, etag: &ETag) -> Result<Fetched> {
        let (inner, k, etag) = (self.inner.clone(), key.to_owned(), etag.clone());
        self.run(Operation::Get, key, async move { inner.get_if_changed(&k, &etag).await }).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        let (inner, k) = (self.inner.clone(), key.to_owned());
        self.run(Operation::GetRange, key, async move { inner.get_range(&k, range).await }).await
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        let (inner, k) = (self.inner.clone(), key.to_owned());
        self.run(Operation::Put, key, async move { inner.put(&k, bytes).await }).await
    }

    async fn create(&self, key: &str, bytes: Bytes) -> Result<ETag> {
        let (inner, k) = (self.inner.clone(), key.to_owned());
        self.run(Operation::Create, key, async move { inner.create(&k, bytes).await }).await
    }

    async fn replace(&self, key: &str, bytes: Bytes, etag: &ETag) -> Result<ETag> {
        let (inner, k, etag) = (self.inner.clone(), key.to_owned(), etag.clone());
        self.run(Operation::Replace, key, async move { inner.replace(&k, bytes, &etag).await }).await
    }

    async fn copy(&self, from: &str, to: &str) -> Result<bool> {
        let (inner, source, target) = (self.inner.clone(), from.to_owned(), to.to_owned());
        self.run(Operation::Copy, to, async move { inner.copy(&source, &target).await }).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let (inner, k) = (self.inner.clone(), key.to_owned());
        self.run(Operation::Delete, key, async move { inner.delete(&k).await }).await
    }

    async fn list(&self, query: ListQuery) -> Result<Vec<Listed>> {
        let (inner, prefix) = (self.inner.clone(), query.prefix.clone());
        self.run(Operation::List, &prefix, async move { inner.list(query).await }).await
    }
}
