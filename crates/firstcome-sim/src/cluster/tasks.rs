//! Calls that take their time: futures that are polled by hand, in an order that the seed draws.

use crate::rng::Rng;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// One call of a node.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The calls that are under way.
#[derive(Default)]
pub struct Tasks(Vec<(usize, Task)>);

impl Tasks {
    /// Begins a call of a node.
    pub fn spawn(&mut self, node: usize, task: Task) {
        self.0.push((node, task));
    }

    /// How many calls are under way.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no call is under way.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lets one call go on by one step.
    pub fn step(&mut self, rng: &mut Rng) {
        if self.0.is_empty() {
            return;
        }
        let at = rng.index(self.0.len());
        if self.0[at].1.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            drop(self.0.swap_remove(at));
        }
    }

    /// Ends all calls of a node in the middle.
    pub fn kill(&mut self, node: usize) {
        self.0.retain(|(of, _)| *of != node);
    }
}

/// Lets so many steps of others pass.
pub async fn pause(steps: u64) {
    for _ in 0..steps {
        Pause(false).await;
    }
}

struct Pause(bool);

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}
