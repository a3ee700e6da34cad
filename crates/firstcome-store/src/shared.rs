//! Shares one reply among callers that ask the same question at nearly the same time, so that they cost one query.

use crate::edge::draw_hasher;
use crate::error::StoreError;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// A reply, and when its query began.
type SharedAnswer<V> = OnceCell<(Instant, Result<V, StoreError>)>;

/// Keeps replies by key, for as long as they may be used.
///
/// - Callers that ask during a query wait for its reply. Its errors reach them too, and are not kept.
/// - [`Self::forget`] after a write makes the write visible to every later question: no later caller joins a query that
///   began before the write.
/// - Memory is bounded: a full table drops outdated replies, or everything if none is outdated. Callers then ask again.
#[derive(Debug)]
pub struct Shared<K, V> {
    answers: Mutex<HashMap<K, Arc<SharedAnswer<V>>, RandomState>>,
    lasts: Duration,
    count_max: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> Shared<K, V> {
    /// Makes a table of at most `count_max` replies. Each is used for at most `lasts` from when its query began.
    pub fn new(lasts: Duration, count_max: usize) -> Self {
        Self { answers: Mutex::new(HashMap::with_hasher(draw_hasher())), lasts, count_max }
    }

    /// Returns the reply for a key: the one that is kept, the one that is under way, or that of `ask`.
    ///
    /// A query is allocated when it is asked: the future of this call is small, however large that of `ask` is.
    ///
    /// Cancel-safe: if the caller that runs the query drops its future, the next waiting caller asks.
    pub async fn get<A>(&self, key: &K, ask: impl FnOnce() -> A) -> Result<V, StoreError>
    where
        A: Future<Output = Result<V, StoreError>>,
    {
        let asked = self.asked(key);
        let query = || {
            let at = Instant::now();
            let answer = Box::pin(ask());
            async move { (at, answer.await) }
        };
        asked.get_or_init(query).await.1.clone()
    }

    /// Forgets the reply for a key, and the query that is under way.
    pub fn forget(&self, key: &K) {
        self.answers.lock().remove(key);
    }

    /// Returns how many replies are kept or under way. For tests and metrics.
    pub fn count(&self) -> usize {
        self.answers.lock().len()
    }

    fn asked(&self, key: &K) -> Arc<SharedAnswer<V>> {
        let mut answers = self.answers.lock();
        if let Some(asked) = answers.get(key).filter(|asked| self.is_good(asked)) {
            return Arc::clone(asked);
        }
        if self.count_max <= answers.len() {
            answers.retain(|_, asked| self.is_good(asked));
        }
        if self.count_max <= answers.len() {
            answers.clear();
        }
        let asked = Arc::new(OnceCell::new());
        answers.insert(key.clone(), Arc::clone(&asked));
        asked
    }

    fn is_good(&self, asked: &SharedAnswer<V>) -> bool {
        asked.get().is_none_or(|(at, answer)| answer.is_ok() && at.elapsed() < self.lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::Notify;

    const LASTS: Duration = Duration::from_millis(250);

    fn table(count_max: usize) -> Shared<u32, u32> {
        Shared::new(LASTS, count_max)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_used_until_it_is_too_old_or_forgotten() {
        let (shared, asked) = (table(9), AtomicU32::new(0));
        let ask = async || shared.get(&1, async || Ok(asked.fetch_add(1, Ordering::Relaxed))).await.expect("an answer");
        assert_eq!((ask().await, ask().await), (0, 0));
        tokio::time::advance(LASTS).await;
        assert_eq!((ask().await, ask().await), (1, 1));
        shared.forget(&1);
        assert_eq!(ask().await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn callers_share_a_query_that_is_under_way_and_not_one_from_before_a_write() {
        let (shared, gate, asked) = (table(9), Notify::new(), AtomicU32::new(0));
        let ask = async || {
            shared
                .get(&1, async || {
                    let number = asked.fetch_add(1, Ordering::Relaxed);
                    gate.notified().await;
                    Ok(number)
                })
                .await
        };
        let after_a_write = async {
            tokio::task::yield_now().await;
            shared.forget(&1);
            gate.notify_one();
            gate.notify_one();
            let later = ask();
            let more = async { gate.notify_one() };
            tokio::join!(later, more).0
        };
        let (first, second, later) = tokio::join!(ask(), ask(), after_a_write);
        assert_eq!((first.unwrap(), second.unwrap(), later.unwrap()), (0, 0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_is_not_kept() {
        let shared = table(9);
        assert!(shared.get(&1, async || Err(StoreError::Unknown)).await.is_err());
        assert_eq!(shared.get(&1, async || Ok(7)).await.expect("an answer"), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn names_without_end_fill_no_memory() {
        let shared = table(100);
        for key in 0..10_000 {
            shared.get(&key, async || Ok(key)).await.expect("an answer");
            assert!(shared.count() <= 100);
        }
    }
}
