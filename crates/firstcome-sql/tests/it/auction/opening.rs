//! What is looked at before auctions opens, and its tables.

use super::{Base, bid, charge, endless, listing, options};
use crate::in_time;
use firstcome_sql::{SqlAuctions, SqlError};
use firstcome_store::AuctionStore;

async fn refusal(base: &Base) -> String {
    match SqlAuctions::open(&base.url).await {
        Err(SqlError::Broken { says }) => says,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it opens"),
    }
}

#[tokio::test]
async fn a_server_that_may_forget_is_refused() {
    let wrong: [(&[&str], &[&str], [&str; 2]); 3] = [
        (&[], &[], ["fsync", "innodb_flush_log_at_trx_commit"]),
        (
            &["fsync=on", "synchronous_commit=off"],
            &["innodb-flush-log-at-trx-commit=2"],
            ["synchronous_commit", "innodb_flush_log_at_trx_commit"],
        ),
        (
            &["fsync=on", "full_page_writes=off"],
            &["innodb-flush-log-at-trx-commit=1", "log-bin=binary", "server-id=1", "sync-binlog=0"],
            ["full_page_writes", "sync_binlog"],
        ),
    ];
    for (postgres, mariadb, names) in wrong {
        for base in Base::both_with([postgres, mariadb]).await {
            let says = refusal(&base).await;
            let name = names[usize::from(!base.is_postgres())];
            assert!(says.contains(name), "{says}");
            SqlAuctions::open_with(&base.url, options()).await.expect("it may forget if that is said");
        }
    }
}

#[tokio::test]
async fn a_durable_server_is_taken() {
    for base in Base::both_durable().await {
        SqlAuctions::open(&base.url).await.expect("it opens");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_isolation_is_ours_no_matter_what_the_server_prefers() {
    for base in Base::both().await {
        if base.is_postgres() {
            base.say("ALTER DATABASE postgres SET default_transaction_isolation TO 'serializable'").await;
        } else {
            base.say("SET GLOBAL tx_isolation='SERIALIZABLE'").await;
        }
        let (one, two) = (base.open().await, base.open().await);
        charge(&one, "ann", 1_000).await;
        charge(&one, "bob", 1_000).await;
        one.put_listing(&listing("lamp"), endless()).await.unwrap().unwrap();
        let lamp = listing("lamp");
        for price in 1..40 {
            let (first, second) =
                tokio::join!(one.place_bid(&lamp, bid("ann", price * 2)), two.place_bid(&lamp, bid("bob", price * 2)));
            let (first, second) = (first.unwrap(), second.unwrap());
            assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
        }
        assert_eq!((one.repeated(), two.repeated()), (0, 0), "nobody met a serialization failure");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_made_once_a_member_that_comes() {
    for base in Base::both().await {
        let opened = (0..6).map(|_| {
            let url = base.url.clone();
            tokio::spawn(async move { SqlAuctions::open_with(&url, options()).await })
        });
        let mut auctions = Vec::new();
        for opening in opened.collect::<Vec<_>>() {
            auctions.push(in_time(opening).await.unwrap().expect("it opens"));
        }
        charge(&auctions[0], "ann", 5).await;
        auctions[1].migrate().await.expect("a second time has no effect");
        assert_eq!(super::balance(&auctions[2], "ann").await, (5, 5));
        assert_eq!(base.number("SELECT version FROM firstcome_schema WHERE part='market'").await, 4);
    }
}

/// This step stands for one of a later version, which finds tables with purged records.
#[tokio::test]
async fn a_step_lets_no_program_in_that_rows_keep_out() {
    for base in Base::both_durable().await {
        drop(base.open().await);
        base.say("DROP TABLE firstcome_anchor,firstcome_renaming").await;
        base.say("UPDATE firstcome_schema SET version=2 WHERE part='market'").await;
        base.say("UPDATE firstcome_schema SET version=3 WHERE part='market:readable_from'").await;
        drop(base.open().await);
        assert_eq!(base.number("SELECT version FROM firstcome_schema WHERE part='market'").await, 4);
        assert_eq!(base.number("SELECT version FROM firstcome_schema WHERE part='market:readable_from'").await, 3);
    }
}

#[tokio::test]
async fn tables_of_a_later_version_are_used_only_if_they_say_that_this_one_may() {
    for base in Base::both_durable().await {
        drop(base.open().await);
        // A program that this one does not know the rules of brought them to version 99, and says that version 2 may use them.
        base.say("UPDATE firstcome_schema SET version=99 WHERE part='market'").await;
        let auctions = base.open().await;
        charge(&auctions, "ann", 5).await;
        auctions.migrate().await.expect("there is nothing to do");
        assert_eq!(base.number("SELECT version FROM firstcome_schema WHERE part='market'").await, 99);
        base.say("UPDATE firstcome_schema SET version=5 WHERE part='market:readable_from'").await;
        let says = refusal(&base).await;
        assert!(says.contains("version 99") && says.contains("version 5"), "{says}");
        // Programs from before that row leave none: then their version counts.
        base.say("DELETE FROM firstcome_schema WHERE part='market:readable_from'").await;
        let says = refusal(&base).await;
        assert!(says.contains("version 99"), "{says}");
    }
}
