//! Locks and auctions on databases as the library has them. What they promise is tested where they are: in `firstcome-store`.
#![cfg(unix)]

#[path = "../../../firstcome-sql/tests/it/databases.rs"]
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod databases;
#[path = "../../../firstcome-sql/tests/it/server.rs"]
mod server;

use databases::{mariadb_with, postgres_with};
use firstcome::core::auction::{ListingSettings, Rejection};
use firstcome::core::id::MemberName;
use firstcome::core::points::Amount;
use firstcome::lock::{OpenLocksError, SqlOptions, session};
use firstcome::sql::SqlAuctions;
use firstcome::{Demand, Error, Guarantees, Guard, InputError, LockError, Locks, Store};
#[cfg(feature = "cluster")]
use firstcome_test_servers::{Durability, Kind, Options, Server};
use server::PATIENCE;
use std::future::Future;
use std::time::Duration;

/// Stops a test that hangs.
async fn in_time<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), test).await.expect("the test hangs")
}

async fn play(locks: Locks) {
    let guard = locks.lock("a").wait(PATIENCE).acquire().await.expect("it is free");
    let contended = locks.lock("a").try_acquire().await.unwrap_err();
    assert!(matches!(contended, LockError::Contended { .. }), "{contended}");
    let contended = locks.lock("a").wait(Duration::ZERO).acquire().await.unwrap_err();
    assert!(matches!(contended, LockError::Contended { .. }), "{contended}");
    assert_eq!(locks.guarantees(), Guarantees::SQL_SESSION);
    let unordered = locks.lock("b").fenced().ordered().try_acquire().await.unwrap_err();
    assert!(matches!(unordered, LockError::NotGuaranteed { demand: Demand::Ordered }), "{unordered}");
    let late = locks.lock("a").wait(Duration::from_millis(100)).acquire().await.unwrap_err();
    assert!(matches!(late, LockError::TimedOut { position: None }), "{late}");
    assert!(matches!(locks.lock("a b").try_acquire().await, Err(LockError::Input(InputError::Name { .. }))));
    let too_long = locks.lock("b").wait(Duration::from_secs(3_601)).acquire().await;
    assert!(matches!(too_long, Err(LockError::Input(InputError::Value { field: "wait", .. }))));
    let (first, token) = (guard.fence().unwrap(), guard.token().unwrap());
    assert_eq!((token.lock(), token.fence()), ("a", first));
    guard.release().await.expect("it was held to the end");
    let read = locks
        .lock("a")
        .with(async |guard| (guard.fence().unwrap(), guard.token().unwrap()))
        .await
        .expect("held to the end");
    assert!(first < read.0 && read.1 != token);
    let guard = locks.lock("a").try_acquire().await.expect("it was given back");
    assert!(!guard.is_lost() && format!("{guard:?}").contains("Guard(a, fence "));
    // A session has no lease, so none is promised: the request fails before it is sent.
    for request in [locks.lock("c").lease(Duration::from_secs(30)), locks.lock("c").fixed()] {
        let refused = request.try_acquire().await.unwrap_err();
        assert!(matches!(refused, LockError::Unsupported { .. }) && refused.code() == "unsupported", "{refused}");
    }
    assert!(matches!(guard.renew(Duration::from_secs(30)).await, Err(LockError::Unsupported { .. })));
    assert!(matches!(locks.view("a").await, Err(LockError::Unsupported { .. })));
    assert_eq!((guard.deadline(), guard.remaining()), (None, Duration::MAX));
    assert!(0 < session::id(&guard).expect("a session"));
    // The last guard of a hold releases it.
    let again = guard.reenter().await.expect("it is held");
    guard.release().await.expect("another guard remains");
    assert!(matches!(locks.lock("a").try_acquire().await, Err(LockError::Contended { .. })));
    again.release().await.expect("held to the end");
    let several = locks.all(["d", "a", "d"]).wait(Duration::from_secs(60)).acquire().await.expect("all are free");
    assert_eq!(several.guards().iter().map(Guard::name).collect::<Vec<_>>(), ["a", "d"]);
    let handed = locks.lock("e").acquire().await.expect("it is free").hand_out().await.map(drop).unwrap_err();
    assert!(matches!(handed, LockError::Unsupported { .. }), "{handed}");
}

#[tokio::test]
async fn locks_of_sessions_have_the_words_of_the_others() {
    in_time(async {
        if let Some(server) = postgres_with(&[]).await {
            play(Locks::postgres_with(server.url(), patient()).await.expect("it will do")).await;
            assert!(Locks::mysql(server.url()).await.is_err(), "another kind");
        }
        if let Some(server) = mariadb_with(&[]).await {
            play(Locks::mysql_with(server.url(), patient()).await.expect("it will do")).await;
            assert!(
                Locks::postgres(server.url()).await.is_err() && Locks::postgres_leases(server.url()).await.is_err()
            );
        }
    })
    .await;
}

#[tokio::test]
async fn an_address_opens_the_locks_that_it_names() {
    in_time(async {
        let open = async |address: &str| {
            let locks = Locks::connect(address).sql(patient()).await.expect("it will do");
            let guard = locks.lock("a").fenced().acquire().await.expect("it is free");
            guard.release().await.expect("held to the end");
            let leader = locks.elect("scheduler").campaign().await.expect("no other process leads");
            let other = locks.elect("scheduler").try_campaign().await.unwrap_err();
            assert!(matches!(other, LockError::Contended { .. }), "{other}");
            let term = leader.term();
            leader.resign().await.expect("led to the end");
            let next = locks.elect("scheduler").try_campaign().await.expect("the lead is free");
            assert!(term < next.term() && !next.is_over());
            locks.guarantees()
        };
        assert_eq!(open("memory:").await, Guarantees::MEMORY);
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(open(&format!("sqlite:{}", directory.path().display())).await, Guarantees::DIRECTORY);
        if let Some(server) = postgres_with(&[]).await {
            assert_eq!(open(server.url()).await, Guarantees::SQL_LEASE);
            assert_eq!(open(&format!("{}?layout=session", server.url())).await, Guarantees::SQL_SESSION);
        }
        if let Some(server) = mariadb_with(&[]).await {
            assert_eq!(open(server.url()).await, Guarantees::SQL_SESSION);
        }
        let refused = Locks::connect("ftp://h").await.map(drop).unwrap_err();
        assert!(matches!(refused, OpenLocksError::Address(_)), "{refused}");
    })
    .await;
}

/// Times that only a hang can reach.
fn patient() -> SqlOptions {
    let mut options = SqlOptions::default();
    options.connect_timeout = PATIENCE;
    options.answer_timeout = PATIENCE;
    options
}

#[tokio::test]
async fn locks_in_rows_are_served_in_the_order_of_arrival_across_processes() {
    let Some(server) = postgres_with(&[]).await else { return };
    in_time(async {
        let one = Locks::postgres_leases_with(server.url(), patient()).await.expect("it will do");
        assert_eq!(one.guarantees(), Guarantees::SQL_LEASE);
        let other = Locks::postgres_leases_with(server.url(), patient()).await.expect("it will do");
        let first = one.lock("a").owner("ann").acquire().await.expect("it is free");
        let mut before = first.fence().unwrap();
        let mut tasks = Vec::new();
        for number in 0..8_u32 {
            let locks = if number % 2 == 0 { other.clone() } else { one.clone() };
            let task = tokio::spawn(async move {
                let guard = locks.lock("a").acquire().await.expect("it is its turn");
                let fence = guard.fence().unwrap();
                guard.release().await.expect("held to the end");
                fence
            });
            server::wait_for("it to be in line", async || {
                let seen = one.view("a").await.expect("the store answers").view;
                (seen.waiters == number + 1).then_some(())
            })
            .await;
            tasks.push(task);
        }
        first.release().await.expect("held to the end");
        for task in tasks {
            let fence = task.await.expect("no task fails");
            assert!(before < fence, "{fence} after {before}");
            before = fence;
        }
        one.quiet().await;
        other.quiet().await;
        one.lock("a").try_acquire().await.expect("it is free").release().await.expect("held to the end");
    })
    .await;
}

/// A slot is long, so that it does not end within the test.
const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);

/// One of many asks gets the slot, also of two processes, and a run that failed lets one other run begin.
async fn one_run_a_slot(processes: [Locks; 2]) {
    let all_ask = async || {
        let mut asking = tokio::task::JoinSet::new();
        for number in 0..20 {
            let once = processes[number % 2].once("report", WEEK);
            asking.spawn(async move { once.begin().await });
        }
        let mut run = None;
        for asked in asking.join_all().await {
            match asked {
                Ok(begun) => assert!(run.replace(begun).is_none(), "a second run"),
                Err(LockError::SlotTaken { next_in, .. }) => assert!(next_in <= WEEK),
                Err(error) => panic!("{error}"),
            }
        }
        run
    };
    let failed = all_ask().await.expect("a run");
    let fence = failed.fence();
    failed.retry().await.expect("it was held to the end");
    let second = all_ask().await.expect("a run after the one that failed");
    assert!(fence < second.fence());
    second.finish().await.expect("it was held to the end");
    assert!(all_ask().await.is_none(), "the slot has had its run");
}

#[tokio::test]
async fn a_job_runs_once_in_its_slot_over_rows_and_over_redis() {
    in_time(async {
        if let Some(server) = postgres_with(&[]).await {
            let open = async || Locks::postgres_leases_with(server.url(), patient()).await.expect("it will do");
            one_run_a_slot([open().await, open().await]).await;
        }
        #[cfg(feature = "cluster")]
        {
            let redis = Server::start(Kind::Redis, &Options::new(Durability::Quick)).await.expect("a server starts");
            let open = async || Locks::redis(redis.url()).await.expect("it will do");
            one_run_a_slot([open().await, open().await]).await;
        }
    })
    .await;
}

#[tokio::test]
async fn auctions_and_points_in_a_database_have_the_words_of_the_others() {
    in_time(async {
        let durable = [
            postgres_with(&["fsync=on", "full_page_writes=on"]).await,
            mariadb_with(&["innodb-flush-log-at-trx-commit=1"]).await,
        ];
        for server in durable.into_iter().flatten() {
            let store = Store::over(SqlAuctions::open(server.url()).await.expect("it will do"));
            let ann = store.member("ann").expect("a name");
            ann.charge(100).expect("an amount").send().await.expect("it is charged");
            let vase = store.listing("vase").expect("a name");
            let (owner, price) = (MemberName::parse("eve").expect("a name"), Amount::new(30).expect("a price"));
            vase.put(ListingSettings::fixed_price(owner, price)).await.expect("it is new");
            let buy = async || vase.purchase("ann").expect("a name").send().await;
            let sale = buy().await.expect("it is there");
            assert_eq!((sale.buyer.as_str(), sale.price), ("ann", price));
            assert_eq!(buy().await, Err(Error::Refused(Rejection::AlreadySold(sale))));
            assert_eq!(ann.balance().await.expect("an answer").available(), 70);
        }
    })
    .await;
}

/// One program over a store in memory, in a directory and on a cluster: what it prints is the same.
#[cfg(feature = "cluster")]
#[tokio::test]
async fn the_example_of_a_sale_says_the_same_over_every_store() {
    // The node refuses servers that forget what they acknowledged.
    let Some(sql) = postgres_with(&["fsync=on", "full_page_writes=on"]).await else { return };
    let redis = Server::start(Kind::Redis, &Options::new(Durability::Quick)).await.expect("a server starts");
    let directory = tempfile::tempdir().expect("a directory for the test");
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "a secret of the test, long enough").expect("the directory takes a file");
    let [data, secret] = [directory.path().join("data"), secret].map(|path| path.display().to_string());
    let tests = std::env::current_exe().expect("a test is a file");
    let example = tests.ancestors().nth(2).expect("it lies in deps").join("examples/shop");
    let wanted = "\
ann has number 1
ann is inside
bob has number 2
bob is inside
cid has number 3
cid is inside
ann has coupon 1
bob has coupon 2
cid has no coupon: sold_out
ann bids 100, bid number 1
bob bids 150, bid number 2
cid does not get 150 through: bid_too_low
the report is ours, with a fence: true
";
    for arguments in [&["memory"][..], &[&data], &[redis.url(), sql.url(), &secret]] {
        let mut command = tokio::process::Command::new(&example);
        let played = command.args(arguments).output();
        let played = in_time(played).await.expect("examples are built with the tests");
        let says = String::from_utf8_lossy(&played.stderr);
        assert_eq!(String::from_utf8_lossy(&played.stdout), wanted, "{arguments:?}: {says}");
        assert!(played.status.success(), "{arguments:?}: {says}");
    }
}

/// The example that rebuilds an auction by hand: what it prints are the rules.
#[tokio::test]
async fn the_example_of_an_auction_built_by_hand_keeps_its_rules() {
    let Some(server) = postgres_with(&[]).await else { return };
    let tests = std::env::current_exe().expect("a test is a file");
    let example = tests.ancestors().nth(2).expect("it lies in deps").join("examples/auction");
    let played = tokio::process::Command::new(example).arg(server.url()).output();
    let played = in_time(played).await.expect("examples are built with the tests");
    let wanted = "\
olga bids 100: the auction is one's own
cid bids 100: not enough points
ann bids 100: yes
ann bids 110: the highest bid is one's own
bob bids 100: the bid is too low
bob bids 150: yes
ann buys: not ended, not won, or sold already
bob buys: yes
bob buys: not ended, not won, or sold already
";
    assert_eq!(String::from_utf8_lossy(&played.stdout), wanted, "{}", String::from_utf8_lossy(&played.stderr));
}
