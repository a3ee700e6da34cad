//! Combining: what waits for the same row goes through in one transaction, and what comes meanwhile waits for the next.

use super::batch::{Failed, Judged};
use super::database::AuctionDatabase;
use super::judge::{Answer, Command};
use super::proof::Pending;
use super::queues::{Scope, Waiting};
use crate::SqlError;
use crate::base::{Pause, is_passing};
use firstcome_store::AuctionAnswer;
use firstcome_store::StoreError;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Serves a scope. If it goes in the middle, those who wait are told that no caller knows.
struct BatchInProgress {
    database: Arc<AuctionDatabase>,
    scope: Scope,
    done: bool,
}

impl Drop for BatchInProgress {
    fn drop(&mut self) {
        if !self.done {
            self.database.queues.abandon(&self.scope);
        }
    }
}

impl AuctionDatabase {
    /// Queues a command, and waits for its answer. A caller that goes away leaves it done or not done.
    pub(super) async fn command(self: &Arc<Self>, scope: Scope, command: Command) -> AuctionAnswer<Answer> {
        let (tell, told) = oneshot::channel();
        if self.queues.push(&scope, Waiting { command, tell })? {
            // In a task of its own: it serves others too, and must not go away with this caller.
            let serving = BatchInProgress { database: Arc::clone(self), scope, done: false };
            tokio::spawn(serving.serve());
        }
        // Without an answer a caller that served has met a broken invariant.
        told.await.unwrap_or(Err(StoreError::Unknown))
    }

    async fn run(&self, scope: &Scope, mut batch: VecDeque<Waiting>) {
        while !batch.is_empty() {
            let answers = self.answers(scope, batch.make_contiguous()).await;
            for (waiting, answer) in batch.drain(..answers.len()).zip(answers) {
                // A caller that has gone does not hear it.
                let _ = waiting.tell.send(answer);
            }
        }
    }

    /// Runs a batch until it is done, or its time is over. Answers the first commands, at least one.
    ///
    /// A conflict with others is never a refusal: all of the batch is judged again on what is there then.
    async fn answers(&self, scope: &Scope, batch: &[Waiting]) -> Vec<AuctionAnswer<Answer>> {
        let until = Instant::now() + self.options.patience;
        let mut pause = Pause::new();
        loop {
            let error = match self.attempt(scope, batch, until).await {
                Ok(judged) => return self.told(judged),
                Err(Failed::NoConnection(error)) => return failed(batch, &error),
                Err(Failed::NotDone(error)) => error,
                Err(Failed::Unknown(pending)) => match self.find_out(&pending, until).await {
                    Some(true) => {
                        let Pending { judged, told, .. } = *pending;
                        if let Some((told, looks)) = told {
                            self.watch.note(told, looks);
                        }
                        return self.told(judged);
                    }
                    Some(false) => SqlError::Serialization { says: "it was not committed".to_owned() },
                    None => return unknown(&pending),
                },
            };
            self.counts.repeated.fetch_add(1, Ordering::Relaxed);
            if !is_passing(&error) || !pause.again(until).await {
                return failed(batch, &error);
            }
        }
    }

    fn told(&self, judged: Judged) -> Vec<AuctionAnswer<Answer>> {
        for answer in judged.iter().flatten() {
            match answer {
                Answer::Advanced { closed, defaulted } => {
                    self.counts.closed.fetch_add((*closed).into(), Ordering::Relaxed);
                    self.counts.defaulted.fetch_add((*defaulted).into(), Ordering::Relaxed);
                }
                Answer::Put(_) => self.due.notify_one(),
                Answer::Sale { closed, .. } => {
                    self.counts.closed.fetch_add((*closed).into(), Ordering::Relaxed);
                }
                Answer::Bid(_) | Answer::Moved(_) => {}
            }
        }
        judged.into_iter().map(Ok).collect()
    }

    /// Whether a batch was committed whose commit was not answered; `None` if that cannot be known in time.
    async fn find_out(&self, pending: &Pending, until: Instant) -> Option<bool> {
        let until = until.max(Instant::now() + self.options.connections.answer_timeout);
        let mut pause = Pause::new();
        loop {
            match self.look(pending, until).await {
                Ok(done) => return done,
                Err(error) if is_passing(&error) && pause.again(until).await => {}
                Err(_) => return None,
            }
        }
    }
}

impl BatchInProgress {
    async fn serve(mut self) {
        while let Some(batch) = self.database.queues.take(&self.scope) {
            self.database.run(&self.scope, batch).await;
        }
        self.done = true;
    }
}

fn failed(batch: &[Waiting], error: &SqlError) -> Vec<AuctionAnswer<Answer>> {
    batch.iter().map(|_| Err(error.clone().into())).collect()
}

/// Unknown to each whose command had an effect, and to those who repeat one: it may have been in this very batch. Refusals may
/// rest on those effects, so they have no answer.
fn unknown(pending: &Pending) -> Vec<AuctionAnswer<Answer>> {
    let without = SqlError::unreachable("it is not known whether what this rests on was committed");
    let tell = |judged: &Result<Answer, _>| match judged {
        Err(_) => Err(without.clone().into()),
        Ok(_) => Err(StoreError::Unknown),
    };
    pending.judged.iter().map(tell).collect()
}
