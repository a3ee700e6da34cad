//! Addresses with passwords: from files, and never in what the program says.

use crate::support::http::Client;
use crate::support::program::{Ended, PROGRAM, command, firstcome, run};
use crate::support::server::Server;
use crate::support::wait_for;
use crate::support::world::{SECRET, World};
use firstcome_test_servers::Kind;
use std::fs;
use std::path::Path;

/// What no output may contain.
const CANARY: &str = "canary7";

#[track_caller]
fn silent(ended: Ended, codes: &[i32]) -> Ended {
    assert!(!ended.stdout.contains(CANARY) && !ended.stderr.contains(CANARY), "a password is told: {ended:?}");
    assert!(ended.code.is_some_and(|code| codes.contains(&code)), "{ended:?}");
    ended
}

#[test]
fn an_address_and_its_file_are_not_named_by_the_same_source() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    fs::write(here.join("sql"), "postgres://ann:canary7@127.0.0.1:1/shop\n").expect("a file");
    for command in ["migrate", "verify", "reconcile", "doctor", "serve", "export"] {
        let both = [command, "--sql", "postgres://h/shop", "--sql-file", "sql"];
        let said = firstcome(here, &both).with(2);
        assert!(said.contains("set --sql or --sql-file, not both"), "{command}: {said}");
    }
    let mut by_variables = command(PROGRAM, here);
    by_variables.env("FIRSTCOME_SQL", "postgres://h/shop").env("FIRSTCOME_SQL_FILE", "sql");
    let said = run(by_variables.args(["migrate"])).with(2);
    assert!(said.contains("set FIRSTCOME_SQL or FIRSTCOME_SQL_FILE, not both"), "{said}");
    fs::write(here.join("both.toml"), "sql = \"postgres://h/shop\"\nsql-file = \"sql\"\n").expect("a file");
    let said = firstcome(here, &["config", "check", "--config", "both.toml"]).with(2);
    assert!(said.contains("set sql in the settings file or sql-file, not both"), "{said}");
    let said = firstcome(here, &["lock", "a", "--store", "redis://h", "--store-file", "sql", "--", "true"]).with(2);
    assert!(said.contains("set --store or --store-file, not both"), "{said}");

    // A flag takes precedence over a variable, whichever of both it names.
    let mut nearer = command(PROGRAM, here);
    nearer.env("FIRSTCOME_SQL", "nonsense").args(["migrate", "--sql-file", "sql"]);
    let said = silent(run(&mut nearer), &[3]).stderr;
    assert!(said.contains("cannot be used now"), "the address in the file is asked: {said}");
}

#[test]
fn a_file_of_an_address_contains_one_address() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    for (text, says) in [
        (None, "cannot read address"),
        (Some(""), "address is empty"),
        (Some(" \n"), "address is empty"),
        (Some("postgres://ann:canary7@h/a postgres://ann:canary7@h/b"), "more than one address"),
        (Some("sql = canary7"), "more than one address"),
        (Some("canary7"), "the address must be postgres://"),
    ] {
        if let Some(text) = text {
            fs::write(here.join("address"), text).expect("a file");
        }
        let said = silent(firstcome(here, &["migrate", "--sql-file", "address"]), &[2]).stderr;
        assert!(said.contains(says) && said.lines().count() == 1, "{text:?}: {said}");
    }
}

#[test]
fn a_password_in_the_arguments_is_warned_of_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let warnings = |ended: Ended| silent(ended, &[2, 3]).stderr.matches("list of processes").count();
    let (with, without) = ("postgres://ann:canary7@127.0.0.1:1/shop", "postgres://ann@127.0.0.1:1/shop");
    let said = firstcome(here, &["migrate", "--sql", with]);
    assert!(said.stderr.contains("--sql-file"), "{said:?}");
    for command in ["migrate", "verify", "serve"] {
        assert_eq!(warnings(firstcome(here, &[command, "--sql", with])), 1, "{command}");
        assert_eq!(warnings(firstcome(here, &[command, "--sql", without])), 0, "{command}");
    }
    let mut by_variable = command(PROGRAM, here);
    assert_eq!(warnings(run(by_variable.args(["migrate"]).env("FIRSTCOME_SQL", with))), 0);
    let store = ["lock", "a", "--store", "redis://:canary7@127.0.0.1:1", "--", "true"];
    assert_eq!(warnings(firstcome(here, &store)), 1);
}

#[test]
fn a_key_or_password_in_the_arguments_of_a_drill_is_warned_of() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let warnings = |ended: Ended| silent(ended, &[2, 3]).stderr.matches("list of processes").count();
    let service = ["drill", "coupon", "--people", "10", "--url", "http://127.0.0.1:1"];
    let by_flags = ["--admin-key", "canary7-admin", "--service-key", "canary7-service"];
    let ended = firstcome(here, &[&service[..], &by_flags].concat());
    assert!(ended.stderr.contains("--admin-key-file") && ended.stderr.contains("--service-key-file"), "{ended:?}");
    assert!(ended.stderr.contains("127.0.0.1:1 cannot be reached") && ended.code == Some(3), "{ended:?}");
    assert_eq!(warnings(ended), 2);
    let mut by_variables = command(PROGRAM, here);
    by_variables.args(service).env("FIRSTCOME_DRILL_ADMIN_KEY", "canary7-admin");
    by_variables.env("FIRSTCOME_DRILL_SERVICE_KEY", "canary7-service");
    assert_eq!(warnings(run(&mut by_variables)), 0);
    fs::write(here.join("admin"), "canary7-admin\n").expect("a file");
    fs::write(here.join("service"), "canary7-service\n").expect("a file");
    let by_files = ["--admin-key-file", "admin", "--service-key-file", "service"];
    let ended = firstcome(here, &[&service[..], &by_files].concat());
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert_eq!(warnings(ended), 0);

    let redis = "redis://:canary7@127.0.0.1:1";
    let nodes = ["drill", "coupon", "--nodes", "1"];
    assert_eq!(warnings(firstcome(here, &[&nodes[..], &["--redis", redis]].concat())), 1);
    let mut by_variable = command(PROGRAM, here);
    assert_eq!(warnings(run(by_variable.args(nodes).env("FIRSTCOME_DRILL_REDIS", redis))), 0);
    let sql = ["drill", "auction", "--sql", "postgres://ann:canary7@127.0.0.1:1/shop"];
    assert_eq!(warnings(firstcome(here, &sql)), 1);
}

/// Writes addresses into files, and returns the arguments that name them.
fn named(here: &Path, redis: &str, sql: &str) -> [String; 4] {
    fs::write(here.join("redis"), redis).expect("a file");
    fs::write(here.join("sql"), format!("{sql}\n")).expect("a file");
    ["--redis-file", "redis", "--sql-file", "sql"].map(str::to_owned)
}

#[test]
fn no_error_of_an_address_tells_its_password() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let redis = [
        "redis://:canary7@127.0.0.1:1",
        "redis://ann:canary7@no-such-host.invalid:6379",
        "redis://:canary7@127.0.0.1:port",
        "redis+sentinel://:canary7@127.0.0.1:1/main?sentinel_password=canary7",
        "redis+sentinel://:canary7@127.0.0.1:1",
        "redis+cluster://ann:canary7@127.0.0.1:1",
        "rediss://:canary7@127.0.0.1:1?cacert=absent.pem",
        "redis://:canary7/with/slashes@127.0.0.1:1",
        "redis://:12?canary7@127.0.0.1:1",
        "redis://127.0.0.1:1?pasword=canary7",
        "http://:canary7@127.0.0.1",
        "canary7",
    ];
    let sql = [
        "postgres://ann:canary7@127.0.0.1:1/shop",
        "postgres://ann:canary7@no-such-host.invalid/shop",
        "postgres://ann:canary7@127.0.0.1:port/shop",
        "postgres://ann@127.0.0.1:1/shop?password=canary7",
        "postgres://ann:canary7@127.0.0.1:1/shop?sslmode=canary7",
        "postgres://ann@127.0.0.1:1/shop?pasword=canary7",
        "postgres://ann:12?canary7@127.0.0.1:1/shop",
        "mysql://ann:canary7@127.0.0.1:1/shop",
        "mysql://ann:canary7@127.0.0.1:1/shop?ssl-ca=absent.pem",
        "mysql://ann@127.0.0.1:1/shop?password=canary7",
        "canary7",
    ];
    let pairs = redis.iter().map(|redis| (*redis, sql[0])).chain(sql.iter().map(|sql| (redis[0], *sql)));
    for (redis, sql) in pairs {
        let files = named(here, redis, sql);
        let commands: [&[&str]; 5] =
            [&["serve", "--listen", "127.0.0.1:0"], &["doctor"], &["verify"], &["reconcile"], &["export"]];
        for arguments in commands {
            let mut command = command(PROGRAM, here);
            command.args(arguments).args(&files).env("FIRSTCOME_SECRET", SECRET).env("FIRSTCOME_LOG", "trace");
            silent(run(&mut command), &[1, 2, 3]);
        }
        fs::write(here.join("set.toml"), format!("redis = {redis:?}\nsql = {sql:?}\n")).expect("a file");
        silent(firstcome(here, &["config", "print", "--config", "set.toml"]), &[0]);
        silent(firstcome(here, &["config", "check", "--config", "set.toml"]), &[2]);
        for broken in
            [format!("redis = {redis}\n"), format!("redis = \"{redis}\nsql = 1\n"), format!("redis = [{redis:?}]\n")]
        {
            fs::write(here.join("set.toml"), broken).expect("a file");
            silent(firstcome(here, &["config", "check", "--config", "set.toml"]), &[2]);
        }
        // A text without a scheme is the path of a directory.
        if redis.contains("://") {
            let lock = ["lock", "a", "--wait", "0s", "--store-file", "redis", "--", "true"];
            silent(firstcome(here, &lock), &[2, 3, 75]);
        }
    }
}

#[test]
fn no_error_of_another_address_tells_its_password() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let says = "write the address of a collector as http://127.0.0.1:4318 or https://host:4318";
    for address in ["https://ann:canary7@collector.example", "https://collector.example/?key=canary7", "ann:canary7@h"]
    {
        let mut by_variable = command(PROGRAM, here);
        by_variable.args(["config", "check"]).env("OTEL_EXPORTER_OTLP_ENDPOINT", address);
        fs::write(here.join("set.toml"), format!("otlp-endpoint = {address:?}\n")).expect("a file");
        for ended in [
            run(&mut by_variable),
            firstcome(here, &["serve", "--dev", "--data", "data", "--otlp-endpoint", address]),
            firstcome(here, &["config", "check", "--config", "set.toml"]),
        ] {
            let said = silent(ended, &[2]).stderr;
            assert!(said.contains(says) && said.contains("otlp") && said.trim_end().lines().count() == 1, "{said}");
        }
    }
    let strays: [&[&str]; 3] = [
        &["migrate", "postgres://ann:canary7@127.0.0.1:1/shop"],
        &["redis://ann:canary7@127.0.0.1:1"],
        &["lock", "door", "--store", "redis://ann:canary7@127.0.0.1:1", "true"],
    ];
    for stray in strays {
        let said = silent(firstcome(here, stray), &[2]).stderr;
        assert_eq!(said.trim_end().lines().count(), 1, "{stray:?}: {said}");
    }
    let site = ["gate", "--dev", "--room", "sale", "--max-active", "1", "--upstream", "http://ann:canary7@127.0.0.1:1"];
    let said = silent(firstcome(here, &site), &[2]).stderr;
    assert!(said.contains("must be http:// with a host and a port"), "{said}");
}

#[test]
fn a_parameter_that_is_unknown_is_refused_before_a_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    for (address, says) in [
        ("postgres://ann@127.0.0.1:1/shop?pasword=canary7", "unknown parameter \"pasword\": did you mean password?"),
        ("mysql://ann@127.0.0.1:1/shop?password=canary7", "unknown parameter \"password\": remove it"),
    ] {
        fs::write(here.join("sql"), address).expect("a file");
        let mut serve = command(PROGRAM, here);
        serve.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--data", "data", "--sql-file", "sql"]);
        let ended = silent(run(serve.env("FIRSTCOME_LOG", "trace")), &[2]);
        assert!(ended.stderr.contains(says) && !ended.stderr.contains("ignoring"), "{ended:?}");
        assert!(!ended.stdout.contains("http://") && !ended.stderr.contains("http://"), "it started: {ended:?}");
    }
    fs::write(here.join("redis"), "redis://127.0.0.1:1?db=canary7").expect("a file");
    let lock = ["lock", "a", "--wait", "0s", "--store-file", "redis", "--", "true"];
    let said = silent(firstcome(here, &lock), &[2]).stderr;
    assert!(said.contains("redis://host:port/number"), "{said}");
}

#[test]
fn a_database_that_gives_no_connection_is_named_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let advice = "check that it runs, and the address";
    for address in ["postgres://ann:canary7@127.0.0.1:1/shop", "mysql://ann:canary7@127.0.0.1:1/shop"] {
        fs::write(here.join("sql"), address).expect("a file");
        let commands: [&[&str]; 3] =
            [&["serve", "--dev", "--listen", "127.0.0.1:0", "--data", "data"], &["migrate"], &["verify"]];
        for arguments in commands {
            let mut command = command(PROGRAM, here);
            command.args(arguments).args(["--sql-file", "sql"]);
            let ended = silent(run(&mut command), &[3]);
            let line = ended.stderr.lines().find(|line| line.contains("the server at 127.0.0.1:1 gives no connection"));
            let line = line.unwrap_or_else(|| panic!("{arguments:?}: {ended:?}"));
            assert!(line.ends_with(advice) && line.contains("cannot be used now"), "{arguments:?}: {ended:?}");
        }
    }
    let lock = ["lock", "a", "--wait", "0s", "--store", "postgres://ann@127.0.0.1:1/shop", "--", "true"];
    let said = silent(firstcome(here, &lock), &[3]).stderr;
    assert!(
        said.contains("the server at 127.0.0.1:1 gives no connection") && said.trim_end().ends_with(advice),
        "{said}"
    );
}

#[test]
fn a_node_takes_addresses_from_files_and_tells_no_password_while_a_server_is_away() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    world.migrate(world.sql.url());
    world.redis(&["CONFIG", "SET", "requirepass", CANARY]);
    let redis = world.redis.url().replace("redis://", &format!("redis://default:{CANARY}@"));
    let sql = world.sql.url().replace('@', &format!(":{CANARY}@"));
    let mut serve = command(PROGRAM, world.here());
    serve.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]).args(named(
        world.here(),
        &redis,
        &sql,
    ));
    serve.env("FIRSTCOME_SECRET", SECRET).env("FIRSTCOME_ADMIN_KEY", "given-0123456789-0123456789");
    let mut node = Server::spawn(serve.env("FIRSTCOME_LOG", "debug"));
    let admin = node.line("admin on http://").trim_start_matches("admin on http://").parse().expect("an address");
    let looks = || {
        for path in ["/metrics", "/readyz", "/healthz"] {
            let told = Client::new(admin).get(path).text();
            assert!(!told.contains(CANARY), "{path} tells a password: {told}");
        }
    };
    wait_for("readiness", || (Client::new(admin).get("/readyz").status == 200).then_some(()));
    looks();
    let arguments = fs::read(format!("/proc/{}/cmdline", node.process())).expect("the list of processes");
    assert!(!String::from_utf8_lossy(&arguments).contains(CANARY), "the list of processes");
    // Redis goes away.
    let shutdown = ["-u", &redis, "--no-auth-warning", "SHUTDOWN", "NOSAVE"];
    assert_eq!(run(command("redis-cli", world.here()).args(shutdown)).well(), "");
    wait_for("unreadiness", || (Client::new(admin).get("/readyz").status != 200).then_some(()));
    looks();
    assert!(!node.errors().contains(CANARY), "{}", node.errors());
    node.stop();
}
