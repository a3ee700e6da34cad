//! What waits for the same thing, and is served together: everything that has come while one round trip was under way goes into the
//! next.

use firstcome_store::StoreError;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;

/// When to come back to a full lane.
const FULL_RETRY: Duration = Duration::from_millis(250);

/// A bounded queue that a caller serves while it is not empty. Others may too while as much waits as goes into one round trip:
/// then a caller that is asked has the next question when it has answered one.
pub(super) struct Batcher<T> {
    queue: Mutex<Queue<T>>,
    holds_max: usize,
    serves_max: usize,
    servers_max: u32,
}

struct Queue<T> {
    waiting: VecDeque<T>,
    servers: u32,
}

/// Whether a caller that has queued something is to see to it that the lane is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Service {
    /// Enough do.
    UnderWay,
    /// No caller does yet, or one more is to.
    Wanted,
}

impl<T> Batcher<T> {
    /// A lane in which so many may wait, of which so many are served at once, by so many at most.
    pub(super) const fn new(holds_max: usize, serves_max: usize, servers_max: u32) -> Self {
        let waiting = VecDeque::new();
        Self { queue: Mutex::new(Queue { waiting, servers: 0 }), holds_max, serves_max, servers_max }
    }

    /// Queues something; [`StoreError::Overloaded`] if too much waits.
    pub(super) fn push(&self, item: T) -> Result<Service, StoreError> {
        let mut queue = self.queue.lock();
        if self.holds_max <= queue.waiting.len() {
            return Err(StoreError::Overloaded { retry_after: FULL_RETRY });
        }
        queue.waiting.push_back(item);
        let is_full = self.serves_max <= queue.waiting.len();
        let is_wanted = queue.servers == 0 || (queue.servers < self.servers_max && is_full);
        queue.servers += u32::from(is_wanted);
        Ok(if is_wanted { Service::Wanted } else { Service::UnderWay })
    }

    /// Takes what waits, in the order of arrival, as much as is served at once. Empty if nothing does, or another one is
    /// enough for it: then a caller that asked does not serve any more.
    pub(super) fn take(&self) -> Vec<T> {
        let mut queue = self.queue.lock();
        let count = queue.waiting.len().min(self.serves_max);
        let needed = if queue.servers < 2 { 1 } else { self.serves_max };
        if count < needed {
            queue.servers -= 1;
            return Vec::new();
        }
        queue.waiting.drain(..count).collect()
    }

    /// A caller that served has gone in the middle: unless another one does, what waits is dropped, and the next to come is served
    /// again.
    pub(super) fn abandon(&self) {
        let mut queue = self.queue.lock();
        queue.servers -= 1;
        if queue.servers == 0 {
            queue.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_come_sees_to_the_service_and_so_does_the_first_after_its_end() {
        let lane = Batcher::new(9, 3, 1);
        assert_eq!(lane.push(1).ok(), Some(Service::Wanted));
        assert_eq!(lane.push(2).ok(), Some(Service::UnderWay));
        assert_eq!(lane.take(), [1, 2]);
        assert_eq!(lane.push(3).ok(), Some(Service::UnderWay), "the last batch is under way");
        assert_eq!(lane.take(), [3]);
        assert_eq!(lane.take(), []);
        assert_eq!(lane.push(5).ok(), Some(Service::Wanted));
        lane.abandon();
        assert_eq!(lane.push(6).ok(), Some(Service::Wanted));
        assert_eq!(lane.take(), [6]);
    }

    #[test]
    fn one_more_serves_while_a_whole_batch_waits() {
        let lane = Batcher::new(9, 2, 2);
        assert_eq!(lane.push(1).ok(), Some(Service::Wanted));
        assert_eq!(lane.take(), [1]);
        assert_eq!(lane.push(2).ok(), Some(Service::UnderWay));
        assert_eq!(lane.push(3).ok(), Some(Service::Wanted));
        assert_eq!(lane.push(4).ok(), Some(Service::UnderWay), "two are enough");
        assert_eq!(lane.push(5).ok(), Some(Service::UnderWay));
        assert_eq!(lane.take(), [2, 3]);
        assert_eq!(lane.push(6).ok(), Some(Service::UnderWay));
        assert_eq!(lane.take(), [4, 5]);
        assert_eq!(lane.take(), [], "one is enough for less");
        assert_eq!(lane.push(7).ok(), Some(Service::Wanted));
        lane.abandon();
        assert_eq!(lane.take(), [6, 7], "the other one goes on");
        assert_eq!(lane.take(), []);
        assert_eq!(lane.push(8).ok(), Some(Service::Wanted));
    }

    #[test]
    fn a_full_lane_takes_nothing_more() {
        let lane = Batcher::new(2, 1, 1);
        for item in 0..2 {
            assert!(lane.push(item).is_ok());
        }
        assert!(matches!(lane.push(2), Err(StoreError::Overloaded { .. })));
        assert_eq!(lane.take(), [0]);
        assert!(lane.push(3).is_ok());
    }
}
