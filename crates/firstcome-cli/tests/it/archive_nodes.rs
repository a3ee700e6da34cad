//! From a directory to a deployment of a cluster and back: nothing is lost, and what moved works as before.

use crate::archive::{self, all_claims, judge_the_new_home};
use crate::archive_auction::{calls, everything, post};
use crate::archive_rooms::{Hall, serve};
use crate::killed::kill_within;
use crate::support::Rng;
use crate::support::http::Client;
use crate::support::program::{Ended, PROGRAM, command, firstcome, rows, run};
use crate::support::server::Server;
use crate::support::world::{SECRET, World};
use crate::{archive_auction, support};
use firstcome::edge::Stopwatch;
use firstcome_test_servers::Kind;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// A command over the deployment, by its secret.
fn over(world: &World, arguments: &[&str]) -> Command {
    let mut command = command(PROGRAM, world.here());
    command.args(arguments).args(["--redis", world.redis.url(), "--sql", world.sql.url()]);
    command.env("FIRSTCOME_SECRET", SECRET);
    command
}

/// A command over a directory, by the same secret.
fn beside(here: &Path, arguments: &[&str]) -> Ended {
    run(command(PROGRAM, here).args(arguments).env("FIRSTCOME_SECRET", SECRET))
}

/// Lines in an order that both kinds of stores share: numbers of members are their own.
fn sorted(exported: &str) -> Vec<String> {
    let mut lines: Vec<String> = exported.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// What was there before it moved.
struct Before {
    hall: Hall,
    claims: Vec<Value>,
    auctions: Vec<Value>,
    answers: Vec<Value>,
}

/// Everything that there can be, in a directory `old`, whose service has ended.
fn filled(here: &Path) -> Before {
    let mut server = serve(here, "old");
    let hall = Hall::fill(&mut server);
    let mut client = Client::with_key(server.address(), &hall.admin);
    archive::fill(&mut client);
    let answers = archive_auction::fill(&mut client);
    let (claims, auctions) = (all_claims(&mut client), everything(&mut client));
    server.stop();
    Before { hall, claims, auctions, answers }
}

/// All answers are those of before, at a service that knows the same keys; and it goes on.
fn judge(before: &Before, server: &Server) {
    let mut client = Client::with_key(server.address(), &before.hall.admin);
    before.hall.judge(server);
    let shared = |claims: &[Value]| -> Vec<Value> {
        let without = |claim: &Value| {
            let mut claim = claim.clone();
            claim.as_object_mut().expect("an object").remove("durability");
            claim
        };
        claims.iter().map(without).collect()
    };
    assert_eq!(shared(&all_claims(&mut client)), shared(&before.claims));
    assert_eq!(everything(&mut client), before.auctions);
    for ((path, body), answer) in calls().iter().zip(&before.answers) {
        assert_eq!(post(&mut client, path, body), *answer, "{path}: its key is still known");
    }
}

/// Everything that goes on, goes on.
fn go_on(before: &Before, server: &Server) {
    let mut client = Client::with_key(server.address(), &before.hall.admin);
    judge_the_new_home(&mut client, &before.claims);
    before.hall.go_on(server);
    let charged = client.call("POST", "/v1/members/ann/points/charge", Some(&json!({"amount": 500})));
    assert_eq!(charged.status, 200, "{}", charged.text());
    let low = client.call("POST", "/v1/listings/lamp/bids", Some(&json!({"bidder": "ann", "price": 301})));
    assert_eq!((low.status, low.code().as_str()), (409, "bid_too_low"), "{}", low.text());
    let higher = client.call("POST", "/v1/listings/lamp/bids", Some(&json!({"bidder": "ann", "price": 400})));
    assert_eq!((higher.status, &higher.json()["bid"]), (201, &json!(3)), "{}", higher.text());
    let bob = client.get("/v1/members/bob").json();
    assert_eq!(bob["total"], bob["available"], "what bob had held is free again: {bob}");
    let sold = client.call("POST", "/v1/listings/vase/purchase", Some(&json!({"buyer": "ann"})));
    assert_eq!((sold.status, sold.code().as_str()), (409, "already_sold"), "{}", sold.text());
}

fn everything_moves_and_comes_back(kind: Kind) {
    let Some(world) = World::start(kind) else { return };
    let here = world.here();
    let before = filled(here);
    let plain = firstcome(here, &["export", "--data", "old"]).well();
    beside(here, &["export", "--data", "old", "-o", "wrapped.jsonl"]).well();
    let import = || run(&mut over(&world, &["import", "wrapped.jsonl"]));
    let said = import().with(3);
    assert!(said.contains("firstcome migrate --sql URL"), "{said}");
    world.migrate(world.sql.url());
    import().well();
    let said = import().with(1);
    assert!(said.contains("exists already: import into a store without it"), "{said}");

    // Back at once: the same file.
    run(&mut over(&world, &["export", "-o", "back.jsonl"])).well();
    beside(here, &["import", "--data", "back", "back.jsonl"]).well();
    assert_eq!(sorted(&firstcome(here, &["export", "--data", "back"]).well()), sorted(&plain));
    firstcome(here, &["verify", "--data", "back"]).well();

    let mut node = Server::spawn(&mut world.node());
    judge(&before, &node);
    go_on(&before, &node);
    node.terminate();
    node.wait();
    assert!(!node.output().contains("fc_admin_"), "the keys of callers came along");

    // And back after that, with what has happened since.
    run(&mut over(&world, &["export", "-o", "later.jsonl"])).well();
    beside(here, &["import", "--data", "later", "later.jsonl"]).well();
    firstcome(here, &["verify", "--data", "later"]).well();
    let server = serve(here, "later");
    let mut client = Client::with_key(server.address(), &before.hall.admin);
    assert_eq!(all_claims(&mut client).len(), before.claims.len() + 1);
    let third = client.claim("launch", "cid", None).expect("it is answered");
    assert_eq!((third.status, &third.json()["claim"]["serial"]), (409, &json!(3)), "{}", third.text());
    assert_eq!(
        client.get("/v1/listings/lamp").json()["highest"]["price"],
        400,
        "{}",
        client.get("/v1/listings/lamp").text()
    );
    let ticket = before.hall.tickets[1].as_str().expect("a ticket");
    assert_eq!(client.get(&format!("/v1/rooms/hall/tickets/{ticket}")).json()["state"], "admitted");
    server.stop();
}

#[test]
fn everything_moves_to_postgres_and_comes_back() {
    everything_moves_and_comes_back(Kind::Postgres);
}

#[test]
fn everything_moves_to_mariadb_and_comes_back() {
    everything_moves_and_comes_back(Kind::MariaDb);
}

/// Codes that were told before codes were bound to claims are good wherever their claims go, and no later claim has one of them.
fn codes_of_before_move_along(kind: Kind) {
    let Some(world) = World::start(kind) else { return };
    let here = world.here();
    world.migrate(world.sql.url());
    let server = archive::start(here, "data");
    archive::fill(&mut archive::admin(&server));
    server.stop();
    let (old, codes) = archive::as_before(&firstcome(here, &["export", "--data", "data"]).well());
    std::fs::write(here.join("old.jsonl"), &old).expect("a file");
    // What goes into a deployment is wrapped, and in the form of before too.
    firstcome(here, &["import", "--data", "whole", "old.jsonl"]).well();
    let wrapped = beside(here, &["export", "--data", "whole"]).well();
    let before = wrapped.replacen("\"version\":3", "\"version\":2", 1);
    let before = before.replace(",\"codes_bound_from\":3", "").replace(",\"codes_bound_from\":1", "");
    assert_eq!(wrapped.matches("codes_bound_from").count(), 3);
    assert_eq!(before.matches("codes_bound_from").count(), 0, "{before}");
    std::fs::write(here.join("before.jsonl"), before).expect("a file");
    run(&mut over(&world, &["import", "before.jsonl"])).well();

    let bound_from = |lines: &str| ["launch", "second", "empty"].map(|name| archive::bound_from(lines, name));
    run(&mut over(&world, &["export", "-o", "back.jsonl"])).well();
    beside(here, &["import", "--data", "back", "back.jsonl"]).well();
    assert_eq!(bound_from(&firstcome(here, &["export", "--data", "back"]).well()), [3, 3, 1]);

    let mut node = Server::spawn(world.node().env("FIRSTCOME_ADMIN_KEY", archive::ADMIN));
    archive::judge_old_codes(&mut archive::admin(&node), &codes);
    let told = all_claims(&mut archive::admin(&node));
    node.terminate();
    node.wait();
    run(&mut over(&world, &["verify"])).well();

    run(&mut over(&world, &["export", "-o", "later.jsonl"])).well();
    beside(here, &["import", "--data", "later", "later.jsonl"]).well();
    assert_eq!(bound_from(&firstcome(here, &["export", "--data", "later"]).well()), [3, 3, 1]);
    let server = archive::start(here, "later");
    let codes = |claims: &[Value]| -> Vec<Value> { claims.iter().map(|claim| claim["code"].clone()).collect() };
    assert_eq!(codes(&all_claims(&mut archive::admin(&server))), codes(&told));
    server.stop();
}

#[test]
fn codes_of_before_move_to_postgres_and_back() {
    codes_of_before_move_along(Kind::Postgres);
}

#[test]
fn codes_of_before_move_to_mariadb_and_back() {
    codes_of_before_move_along(Kind::MariaDb);
}

/// What a deployment has, without the secrets of the service.
fn held(world: &World) -> Vec<String> {
    rows(&run(&mut over(world, &["export"])).well())
}

fn what_is_wrong_leaves_nothing(kind: Kind) {
    let Some(world) = World::start(kind) else { return };
    let here = world.here();
    world.migrate(world.sql.url());
    filled(here);
    let wrapped = beside(here, &["export", "--data", "old"]).well();
    let plain = firstcome(here, &["export", "--data", "old"]).well();
    let lines: Vec<&str> = wrapped.lines().collect();
    let at = |part: &str| lines.iter().position(|line| line.contains(part)).expect(part);
    let claim = at("\"serial\":2,");
    let mut doubled = lines.clone();
    doubled.insert(claim, lines[claim]);
    let limited = wrapped.replacen("\"coupon\":\"launch\",\"limit\":3", "\"coupon\":\"launch\",\"limit\":1", 1);
    let richer =
        wrapped.replacen("\"movement\":\"CHARGE\",\"amount\":1000", "\"movement\":\"CHARGE\",\"amount\":1001", 1);
    let unsold = wrapped.replacen("\"buyer\":\"bob\",\"price\":200", "\"buyer\":\"bob\",\"price\":199", 1);
    let no_bid = wrapped.lines().filter(|line| !line.contains("\"bid\":2,\"bidder\"")).map(|line| {
        line.replace(&format!("\"lines\":{}", lines.len() - 2), &format!("\"lines\":{}", lines.len() - 3)) + "\n"
    });
    let secret = SECRET.replace('a', "b");
    for (what, text, secret, words) in [
        ("plain", plain, SECRET, vec!["line 2".to_owned(), "is plain".to_owned()]),
        ("another secret", wrapped.clone(), &secret, vec!["line 2".to_owned(), "cannot be unwrapped".to_owned()]),
        ("cut", lines[..lines.len() - 1].join("\n"), SECRET, vec!["breaks off here".to_owned()]),
        ("doubled", doubled.join("\n"), SECRET, vec![format!("line {}", claim + 2), "serials are not".to_owned()]),
        ("beyond the limit", limited, SECRET, vec![format!("line {}", claim + 1), "limit".to_owned()]),
        ("richer", richer, SECRET, vec!["line ".to_owned(), "a balance is not the sum".to_owned()]),
        ("unsold", unsold, SECRET, vec!["lead to: listing vase".to_owned()]),
        ("no bid", no_bid.collect(), SECRET, vec!["what a member has held".to_owned()]),
    ] {
        std::fs::write(here.join("bad.jsonl"), text).expect("a file");
        // The first of them draws the number of the deployment: with another secret that one would not be its own.
        let ended = if what == "another secret" {
            let fresh = rewrapped(here, secret);
            std::fs::write(here.join("bad.jsonl"), fresh).expect("a file");
            run(&mut over(&world, &["import", "bad.jsonl"]))
        } else {
            run(over(&world, &["import", "bad.jsonl"]).env("FIRSTCOME_SECRET", secret))
        };
        let said = ended.with(1);
        assert!(said.contains("nothing was imported"), "{what}: {said}");
        for word in words {
            assert!(said.contains(&word), "{what}: {word:?} is not in {said:?}");
        }
        assert!(held(&world).is_empty(), "{what}: nothing came in");
    }
    let said = run(over(&world, &["import", "bad.jsonl"]).env("FIRSTCOME_SECRET", secret)).with(3);
    assert!(said.contains("another secret than FIRSTCOME_SECRET"), "{said}");
    // A deployment that has served has other keys of callers; one coupon alone comes in all the same.
    Server::spawn(&mut world.node()).stop();
    std::fs::write(here.join("whole.jsonl"), &wrapped).expect("a file");
    let said = run(&mut over(&world, &["import", "whole.jsonl"])).with(1);
    assert!(said.contains("line 2") && said.contains("another api_key:admin exists already"), "{said}");
    beside(here, &["export", "--data", "old", "--coupon", "launch", "-o", "one.jsonl"]).well();
    let node = Server::spawn(&mut world.node());
    run(&mut over(&world, &["import", "one.jsonl"])).well();
    assert_eq!(held(&world).len(), 3, "a coupon and its two claims");
    let public = Client::new(node.address()).get("/v1/coupons/launch").json();
    assert_eq!((&public["limit"], &public["issued"]), (&json!(3), &json!(2)), "seen by a node that serves: {public}");
    node.stop();
}

/// The same directory, exported for another deployment.
fn rewrapped(here: &Path, secret: &str) -> String {
    run(command(PROGRAM, here).args(["export", "--data", "old"]).env("FIRSTCOME_SECRET", secret)).well()
}

#[test]
fn what_is_wrong_leaves_nothing_in_postgres() {
    what_is_wrong_leaves_nothing(Kind::Postgres);
}

#[test]
fn what_is_wrong_leaves_nothing_in_mariadb() {
    what_is_wrong_leaves_nothing(Kind::MariaDb);
}

fn a_killed_import_leaves_nothing(kind: Kind) {
    const WINNERS: usize = 20_000;
    let Some(world) = World::start(kind) else { return };
    world.migrate(world.sql.url());
    let rows: String = (0..WINNERS).map(|number| format!("person-{number}\n")).collect();
    let import = |name: &str| {
        let text = rows.lines().fold(String::from("coupon,user\n"), |all, user| all + name + "," + user + "\n");
        let file = format!("{name}.csv");
        std::fs::write(world.here().join(&file), text).expect("a file");
        over(&world, &["import", "--coupon", &format!("{name}=20000"), &file])
    };
    let watch = Stopwatch::start();
    run(&mut import("whole")).well();
    let longest = watch.elapsed();
    let mut rng = Rng::new(3);
    for round in 0..support::kill_rounds(4) {
        let name = format!("coupon-{round}");
        kill_within(&mut import(&name), longest, &mut rng);
        let count = || held(&world).iter().filter(|line| line.contains(&format!("\"coupon\":\"{name}\""))).count();
        let left = count();
        assert!(left == 0 || left == WINNERS + 1, "{left} lines of {name}");
        // A commit that was sent may come after the end of who sent it.
        let again = run(&mut import(&name));
        assert!(again.code == Some(0) || again.stderr.contains("exists already"), "{}", again.stderr);
        assert_eq!(count(), WINNERS + 1, "once, and once only");
    }
    let node = Server::spawn(world.node().arg("--dev"));
    let next = node.client().get("/v1/coupons/whole").json();
    assert_eq!((&next["issued"], &next["remaining"]), (&json!(WINNERS), &json!(0)), "{next}");
    node.stop();
}

#[test]
fn an_import_into_postgres_that_is_killed_leaves_all_or_nothing() {
    a_killed_import_leaves_nothing(Kind::Postgres);
}

#[test]
fn an_import_into_mariadb_that_is_killed_leaves_all_or_nothing() {
    a_killed_import_leaves_nothing(Kind::MariaDb);
}

#[test]
fn people_without_a_name_come_along_and_a_caller_that_redis_has_forgotten_comes_back_by_the_ticket() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    let here = world.here();
    world.migrate(world.sql.url());
    let node = Server::spawn(world.node().arg("--dev"));
    let mut client = node.client();
    assert_eq!(client.put_status("/v1/rooms/hall", &json!({"max_active": 1, "paused": true})), 201);
    let mut join = |body: Value| client.call("POST", "/v1/rooms/hall/tickets", Some(&body)).json()["ticket"].clone();
    let tickets = [join(json!({})), join(json!({"user": "ann"})), join(json!({}))];
    node.stop();
    let export = |name: &str| {
        let exported = run(&mut over(&world, &["export", "-o", &format!("{name}.jsonl")]));
        let said = exported.stderr.clone();
        exported.well();
        beside(here, &["import", "--data", name, &format!("{name}.jsonl")]).well();
        firstcome(here, &["verify", "--data", name]).well();
        (std::fs::read_to_string(here.join(format!("{name}.jsonl"))).expect("a file"), said)
    };
    let look = |name: &str| {
        let server = serve(here, name);
        let mut client = server.client();
        let seen: Vec<Value> = tickets
            .iter()
            .map(|ticket| client.get(&format!("/v1/rooms/hall/tickets/{}", ticket.as_str().expect("a ticket"))).json())
            .collect();
        server.stop();
        seen.iter()
            .map(|seen| (seen["number"].clone(), seen["state"].clone(), seen["position"].clone()))
            .collect::<Vec<_>>()
    };
    let place = |number: u32| (json!(number), json!("waiting"), json!(number - 1));
    let (whole, said) = export("whole");
    assert!(said.contains("1 rooms with 3 tickets\n"), "{said}");
    assert!(whole.contains("\"drawn\":3") && !whole.contains("lost_to"), "{whole}");
    assert_eq!(look("whole"), [place(1), place(2), place(3)]);
    world.redis(&["FLUSHALL"]);
    let (forgotten, said) = export("forgotten");
    assert!(said.contains("with 1 tickets (65535 numbers of tickets"), "{said}");
    assert!(
        forgotten.contains("\"number\":1,\"lost_to\":1") && forgotten.contains("\"number\":3,\"lost_to\":65536"),
        "{forgotten}"
    );
    assert_eq!(look("forgotten"), [place(1), place(2), place(3)]);
}
