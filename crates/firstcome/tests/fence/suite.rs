//! One suite for all that remember fences. The oracle is the rule in pure code.

use crate::server::Server;
use crate::stores::{Store, Verdict};
use crate::{databases, token};
use firstcome::FenceToken;
use firstcome::fence::accepts;
use firstcome_store::edge::rng::Rng;
use std::collections::BTreeMap;
use tokio::task::JoinSet;

const BIGGEST: u64 = (1 << 53) - 1;

/// Shows tokens one after the other, and compares each verdict, and what is remembered then, with the oracle's.
#[derive(Default)]
struct Oracle {
    remembered: BTreeMap<String, FenceToken>,
}

impl Oracle {
    async fn agrees(&mut self, store: &Store, shown: FenceToken) -> Verdict {
        let expected = accepts(self.remembered.get(shown.lock()), &shown);
        assert_eq!(store.show(&shown).await, expected.into(), "{shown} after {:?}", self.remembered.get(shown.lock()));
        if expected {
            self.remembered.insert(shown.lock().to_owned(), shown.clone());
        }
        let remembered = self.remembered.get(shown.lock()).map(row);
        assert_eq!(store.remembered(shown.lock()).await, remembered, "after {shown}");
        expected.into()
    }
}

fn row(token: &FenceToken) -> (i64, String) {
    (token.fence().get().cast_signed(), token.owner().into())
}

async fn holds(store: &Store) {
    use Verdict::{Accepted, Refused};
    let long = "n".repeat(128);
    let rows = [
        ("a", 5, "ann", Accepted),  // The first.
        ("a", 5, "ann", Accepted),  // The same again.
        ("a", 4, "ann", Refused),   // Older.
        ("a", 4, "bob", Refused),   // Older, of another.
        ("a", 5, "bob", Refused),   // Equal, of another.
        ("a", 5, "Ann", Refused),   // Names that differ in case are two.
        ("a", 5, "ann#", Refused),  // And those that begin alike.
        ("a", 6, "bob", Accepted),  // Newer, of another.
        ("a", 5, "ann", Refused),   // What was accepted before.
        ("a", 7, "bob", Accepted),  // Newer, of the same.
        ("a", 10, "bob", Accepted), // Not compared as texts.
        ("a", 9, "bob", Refused),
        ("b", 1, "ann", Accepted), // Another lock knows nothing of it.
        ("A", 1, "ann", Accepted), // Nor does one that differs in case.
        ("a:b@c-d.e_f", 3, "host-1@x:7#0123456789abcdef", Accepted),
        ("a:b@c-d.e_f", 2, "host-1@x:7#0123456789abcdef", Refused),
        (&long, BIGGEST - 1, &long, Accepted),
        (&long, BIGGEST, &long, Accepted), // Numbers of 53 bits are told apart to the last one.
        (&long, BIGGEST - 1, &long, Refused),
        (&long, BIGGEST, "ann", Refused),
    ];
    let mut oracle = Oracle::default();
    for (lock, fence, owner, expected) in rows {
        assert_eq!(oracle.agrees(store, token(lock, fence, owner)).await, expected, "{lock} {fence} {owner}");
    }
    // More than anybody thinks of: few fences and owners, so that they meet.
    let mut rng = Rng::from_seed(7);
    for _ in 0..150 {
        let (lock, owner) = (*rng.pick(&["random-1", "random-2"]), *rng.pick(&["ann", "bob", "cid"]));
        oracle.agrees(store, token(lock, rng.range(1, 12), owner)).await;
    }
    together(store).await;
}

/// Fifty tasks show tokens at once. The journal is written under the lock of the row, so its order is that of the commits.
async fn together(store: &Store) {
    let mut rng = Rng::from_seed(11);
    let mut tasks = JoinSet::new();
    let mut highest = 0;
    for _ in 0..50 {
        let (store, fence) = (store.clone(), BIGGEST - rng.range(1, 40));
        let owner = *rng.pick(&["ann", "bob"]);
        highest = highest.max(fence);
        tasks.spawn(async move { store.show(&token("crowd", fence, owner)).await });
    }
    let verdicts = tasks.join_all().await;
    let journal = store.journal("crowd").await;
    let mut remembered: Option<FenceToken> = None;
    for (fence, owner) in &journal {
        let next = token("crowd", fence.cast_unsigned(), owner);
        assert!(accepts(remembered.as_ref(), &next), "{next} was accepted after {remembered:?}");
        remembered = Some(next);
    }
    let accepted = verdicts.iter().filter(|verdict| **verdict == Verdict::Accepted).count();
    assert_eq!(journal.len(), accepted, "a line for each that was told");
    let remembered = remembered.expect("somebody was first");
    assert_eq!(remembered.fence().get(), highest);
    assert_eq!(store.remembered("crowd").await, Some(row(&remembered)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_refuses_by_the_rule() {
    let Some((_server, pool)) = databases::postgres().await else { return };
    let [table, columns] = Store::postgres(pool).await;
    holds(&table).await;
    forget_journal(&columns).await;
    holds(&columns).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_refuses_by_the_rule() {
    let Some((_server, pool)) = databases::mariadb().await else { return };
    let [table, columns] = Store::mariadb(pool).await;
    holds(&table).await;
    forget_journal(&columns).await;
    holds(&columns).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_refuses_by_the_rule() {
    let [table, columns] = Store::sqlite();
    holds(&table).await;
    forget_journal(&columns).await;
    holds(&columns).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_refuses_by_the_rule() {
    let Some(server) = Server::start(&[]).await else { return };
    let connection = crate::in_redis::connect(&server).await;
    holds(&Store::Redis(connection)).await;
}

async fn forget_journal(store: &Store) {
    match store {
        Store::PostgresColumns(pool) => drop(sqlx::query("DELETE FROM journal").execute(pool).await.unwrap()),
        Store::MariadbColumns(pool) => drop(sqlx::query("DELETE FROM journal").execute(pool).await.unwrap()),
        Store::SqliteColumns(connection) => {
            connection.lock().unwrap().execute("DELETE FROM journal", []).unwrap();
        }
        _ => {}
    }
}
