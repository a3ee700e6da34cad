//! Telling the processes whose turn it is: within this one directly, else by `NOTIFY` on a channel of each process.

use super::super::SqlOptions;
use firstcome_core::id::LockName;
use firstcome_core::lock::{ClientId, Fence, Grant, Push, Request, Taken};
use firstcome_store::edge::draw_pause;
use firstcome_store::{LockEvent, LockInbox};
use parking_lot::Mutex;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgListener};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// Between two attempts to listen at most.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Who is told what comes.
#[derive(Default)]
pub(super) struct LockNotifier {
    attached: Mutex<BTreeMap<ClientId, LockInbox>>,
    changed: Notify,
}

impl LockNotifier {
    pub(super) fn attach(&self, client: ClientId, inbox: LockInbox) {
        self.attached.lock().insert(client, inbox);
        self.changed.notify_one();
    }

    pub(super) fn detach(&self, client: ClientId) {
        self.attached.lock().remove(&client);
        self.changed.notify_one();
    }

    pub(super) fn is_here(&self, client: ClientId) -> bool {
        self.attached.lock().contains_key(&client)
    }

    /// Tells a client of this process, if it is one.
    pub(super) fn tell(&self, client: ClientId, event: LockEvent) {
        let inbox = self.attached.lock().get(&client).cloned();
        if let Some(inbox) = inbox {
            inbox(event);
        }
    }

    fn clients(&self) -> BTreeSet<ClientId> {
        self.attached.lock().keys().copied().collect()
    }

    /// Listens for ever, over one connection for all clients of this process, as long as there are any.
    pub(super) async fn listen(self: Arc<Self>, options: PgConnectOptions, times: SqlOptions) {
        let pool = times.pool().max_connections(1).connect_lazy_with(options);
        loop {
            while self.clients().is_empty() {
                self.changed.notified().await;
            }
            // No matter what ends it: what comes before the next one hears is found by looking.
            let _ = self.hear(&pool, &times).await;
            sleep(draw_pause(PAUSE_MAX)).await;
        }
    }

    /// Listens until the connection is lost, or no process is left.
    async fn hear(&self, pool: &PgPool, times: &SqlOptions) -> sqlx::Result<()> {
        let late = |_| sqlx::Error::PoolTimedOut;
        let mut listener = timeout(times.connect_timeout, PgListener::connect_with(pool)).await.map_err(late)??;
        // Otherwise no process would be told that something was missed meanwhile.
        listener.eager_reconnect(false);
        let mut heard = BTreeSet::new();
        loop {
            let clients = self.clients();
            if clients.is_empty() {
                return Ok(());
            }
            for gone in heard.difference(&clients) {
                timeout(times.answer_timeout, listener.unlisten(&channel(*gone))).await.map_err(late)??;
            }
            for new in clients.difference(&heard) {
                timeout(times.answer_timeout, listener.listen(&channel(*new))).await.map_err(late)??;
                self.tell(*new, LockEvent::MayHaveMissed);
            }
            heard = clients;
            tokio::select! {
                heard = listener.try_recv() => match heard? {
                    Some(message) => self.deliver(message.payload()),
                    None => return Ok(()),
                },
                () = self.changed.notified() => {}
                // A connection that is dead without a word is found by this alone.
                () = sleep(times.ping_interval) => {
                    let ping = sqlx::Executor::execute(&mut listener, sqlx::raw_sql("SELECT 1"));
                    timeout(times.answer_timeout, ping).await.map_err(late)??;
                }
            }
        }
    }

    fn deliver(&self, payload: &str) {
        if let Some(push) = read(payload) {
            self.tell(push.grant.request.client, LockEvent::Push(push));
        }
    }
}

/// The channel of a process.
fn channel(client: ClientId) -> String {
    format!("firstcome_lock_{:016x}", client.0)
}

/// The statement that tells another process when the transaction is committed. Names hold no quotes.
pub(super) fn notify(push: &Push) -> String {
    let Grant { request, fence, expires_us, .. } = push.grant;
    let channel = channel(request.client);
    format!("NOTIFY {channel}, '{} {:016x}:{} {fence} {expires_us}';", push.name, request.client.0, request.number)
}

/// `NAME REQUEST FENCE EXPIRES_US`.
fn read(payload: &str) -> Option<Push> {
    let mut words = payload.split(' ');
    let name = LockName::parse(words.next()?).ok()?;
    let (client, number) = words.next()?.split_once(':')?;
    let request = Request { client: ClientId(u64::from_str_radix(client, 16).ok()?), number: number.parse().ok()? };
    let fence = Fence::new(words.next()?.parse().ok()?)?;
    let expires_us = words.next()?.parse().ok()?;
    Some(Push { name, grant: Grant { request, fence, expires_us, taken: Taken::Open } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_is_read_as_it_was_written() {
        let request = Request { client: ClientId(u64::MAX), number: 7 };
        let grant = Grant { request, fence: Fence::new(9).unwrap(), expires_us: 11, taken: Taken::Open };
        let push = Push { name: LockName::parse("auction:7").unwrap(), grant };
        let sql = notify(&push);
        assert_eq!(sql.split('\'').nth(1).and_then(read), Some(push), "{sql}");
        assert!(["", "a", "a b:c 1 1", "a 1:1 0 1", "a 1:1 1"].iter().all(|payload| read(payload).is_none()));
    }
}
