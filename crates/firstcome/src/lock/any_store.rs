//! A lock store as a trait object, so that the driver is compiled once for all stores.

use super::driver::Shared;
use firstcome_store::core::id::LockName;
use firstcome_store::core::lock::{Answer, Call, ClientId, Step};
use firstcome_store::{Guarantees, LockInbox, LockStore, StoreError, TimedLockView};
use std::pin::Pin;
use std::sync::Arc;

pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A [`LockStore`] as a trait object.
pub(super) trait AnyStore: Send + Sync {
    fn guarantees(&self) -> Guarantees;
    fn take(self: Arc<Self>, step: Step) -> BoxFuture<Result<Answer, StoreError>>;
    /// Takes the step of a call, and passes its answer on. One future, because each hand-over makes two of them.
    fn finish(self: Arc<Self>, shared: Arc<Shared>, call: Call) -> BoxFuture<()>;
    fn view(self: Arc<Self>, name: LockName) -> BoxFuture<Result<TimedLockView, StoreError>>;
    fn attach(&self, client: ClientId, inbox: LockInbox);
    fn detach(&self, client: ClientId);
}

impl<S: LockStore> AnyStore for S {
    fn guarantees(&self) -> Guarantees {
        LockStore::guarantees(self)
    }

    fn take(self: Arc<Self>, step: Step) -> BoxFuture<Result<Answer, StoreError>> {
        Box::pin(async move { LockStore::take(&*self, step).await })
    }

    fn finish(self: Arc<Self>, shared: Arc<Shared>, Call { id, step }: Call) -> BoxFuture<()> {
        Box::pin(async move {
            let answer = LockStore::take(&*self, step).await;
            shared.finish(id, answer);
        })
    }

    fn view(self: Arc<Self>, name: LockName) -> BoxFuture<Result<TimedLockView, StoreError>> {
        Box::pin(async move { LockStore::view(&*self, &name).await })
    }

    fn attach(&self, client: ClientId, inbox: LockInbox) {
        LockStore::attach(self, client, inbox);
    }

    fn detach(&self, client: ClientId) {
        LockStore::detach(self, client);
    }
}
