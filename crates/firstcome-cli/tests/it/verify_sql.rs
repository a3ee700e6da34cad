//! `firstcome verify --sql`: what it refuses to look at, and its exit code for auctions that is sound and one that is not.

use crate::support::machine_has;
use crate::support::program::{PROGRAM, command, firstcome, run};
use crate::support::server::Server;
use firstcome_test_servers::{Durability, Kind, Options, Server as Database};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

/// Says one thing to a database, behind the service's back.
async fn say(url: &str, text: &str) {
    let text = AssertSqlSafe(text.to_owned());
    if url.starts_with("postgres") {
        let mut connection = PgConnection::connect(url).await.expect("it answers");
        sqlx::raw_sql(text).execute(&mut connection).await.expect("it is done");
    } else {
        let mut connection = MySqlConnection::connect(url).await.expect("it answers");
        sqlx::raw_sql(text).execute(&mut connection).await.expect("it is done");
    }
}

#[test]
fn an_address_that_is_none_or_leads_nowhere_is_refused_without_its_password() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    for (url, code, word) in [
        ("sqlite://s3cret", 2, "the address must be postgres://"),
        ("postgres://ann:s3cret@host:port/shop", 2, "the address must be postgres://"),
        ("postgres://ann:s3cret@127.0.0.1:1/shop", 3, "cannot be used now"),
        ("mysql://ann:s3cret@127.0.0.1:1/shop", 3, "cannot be used now"),
    ] {
        let said = firstcome(here, &["verify", "--sql", url]).with(code);
        assert!(said.contains(word) && !said.contains("s3cret"), "{url}: {said}");
    }
    let both = ["verify", "--data", "data", "--sql", "postgres://127.0.0.1:1/shop"];
    assert!(firstcome(here, &both).with(2).contains("cannot be used with"));
    // The same environment may serve all commands: what stands in the command decides, else the servers.
    let by_environment = |arguments: &[&str]| {
        let mut verify = command(PROGRAM, here);
        verify.args(["verify"]).args(arguments);
        verify.env("FIRSTCOME_DATA", "data").env("FIRSTCOME_SQL", "postgres://127.0.0.1:1/shop");
        run(&mut verify)
    };
    assert!(by_environment(&[]).with(3).contains("cannot be used now"));
    assert!(by_environment(&["--sql", "mysql://127.0.0.1:1/shop"]).with(3).contains("cannot be used now"));
    assert!(by_environment(&["--data", "other"]).with(2).contains("no store at other"));
}

#[test]
fn an_auction_store_in_a_database_is_played_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for kind in [Kind::Postgres, Kind::MariaDb] {
        if !machine_has(&kind.to_string(), Database::is_installed(kind)) {
            continue;
        }
        let options = Options::new(Durability::Durable);
        let database = runtime.block_on(Database::start(kind, &options)).expect("it starts");
        let verify = ["verify", "--json", "--sql", database.url()];
        let said = firstcome(here, &verify).with(3);
        assert!(said.contains("no tables of auctions of firstcome"), "{said}");

        let mut serve = command(PROGRAM, here);
        serve.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--data", "data", "--sql", database.url()]);
        let server = Server::spawn(&mut serve);
        let mut client = server.client();
        let mut post = |path: &str, body: &Value| {
            let answer = client.try_call("POST", path, Some(path), Some(body)).expect("it is answered");
            assert!([200, 201].contains(&answer.status), "{path}: {}", answer.text());
        };
        post("/v1/members/ann/points/charge", &json!({"amount": 100}));
        let settings = json!({"owner": "own", "kind": "fixed_price", "price": 30});
        let put = server.client().call("PUT", "/v1/listings/vase", Some(&settings));
        assert_eq!(put.status, 201, "{}", put.text());
        post("/v1/listings/vase/purchase", &json!({"buyer": "ann"}));
        // Also beside the service.
        let report: Value = serde_json::from_str(&firstcome(here, &verify).well()).expect("JSON");
        assert_eq!((report["breaches"].as_u64(), report["checks"].as_array().map(Vec::len)), (Some(0), Some(12)));
        server.stop();

        runtime.block_on(say(database.url(), "UPDATE firstcome_member SET total=total+1 WHERE name='ann'"));
        let ended = firstcome(here, &verify);
        assert!(ended.stdout.contains("member ann"), "{}", ended.stdout);
        let said = ended.with(1);
        assert!(said.contains("2 breaches found"), "{said}");
    }
}
