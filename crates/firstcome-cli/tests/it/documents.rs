//! Story: a reader copies the commands out of the README and the guides. The tests take them from the text and run them
//! unchanged, except for addresses, one duration, and the scripts that a reader brings along.

use crate::support::program::{Ended, PATH, PROGRAM, command, run, run_for, signal, wait};
use crate::support::server::Server;
use crate::support::world::World;
use crate::support::{machine_has, wait_for};
use firstcome_test_servers::{Durability, Kind, Options, Server as Database};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const README: &str = "README.md";
const QUICK_START: &str = "docs/quick-start.md";
const LOCKS: &str = "docs/locks.md";
const STORES: &str = "docs/stores.md";

/// The block of commands in this document that begins with this line.
fn block(document: &str, first: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{document}: {error}"));
    let mut blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks
        .find(|block| block.starts_with(first))
        .unwrap_or_else(|| panic!("no block of {document} begins with {first:?}"))
        .to_owned()
}

/// A service that was started with the command of the README, on a free port.
fn service(here: &Path) -> Server {
    let start = block(README, "cargo run --release -- serve");
    assert_eq!(start, block(QUICK_START, "cargo run --release -- serve"), "one command starts it in both documents");
    let arguments = start.trim().strip_prefix("cargo run --release -- ").expect("it is one command").split(' ');
    Server::spawn(command(PROGRAM, here).args(arguments).args(["--listen", "127.0.0.1:0"]))
}

/// A shell that ends at the first command that fails. Its script comes by a file, as nothing of it may be seen in the list of
/// processes, where a document looks for commands.
fn shell(here: &Path, script: &str) -> Command {
    let tools = here.join("tools");
    fs::create_dir_all(&tools).expect("a directory");
    let program = tools.join("firstcome");
    if !program.exists() {
        symlink(PROGRAM, program).expect("a link");
    }
    let file = tempfile::Builder::new().suffix(".sh").tempfile_in(&tools).expect("a file");
    let (_, file) = file.keep().expect("it stays");
    fs::write(&file, script).expect("a script");
    let mut bash = command("bash", here);
    bash.args(["-eu", "-o", "pipefail"]).arg(file).env("PATH", format!("{}:{PATH}", tools.display()));
    bash
}

/// A script that a reader has under this name.
fn own_script(here: &Path, name: &str, text: &str) {
    let file = here.join("tools").join(name);
    fs::create_dir_all(here.join("tools")).expect("a directory");
    fs::write(&file, format!("#!/bin/sh\n{text}\n")).expect("a script");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// The answers, each on a line of its own.
fn answers(ended: Ended) -> Vec<Value> {
    let output = ended.well();
    let answer = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}\n{output}"));
    output.lines().map(answer).collect()
}

#[test]
fn the_examples_of_the_readme_run() {
    if !machine_has("curl", crate::support::program::is_installed("curl")) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    fs::create_dir(here.join("locks")).expect("a directory");
    let service = service(here);
    let address = service.address().to_string();
    let play = |first: &str| {
        let script = block(README, first).replace("localhost:8080", &address);
        run_for(shell(here, &script).env("FIRSTCOME_STORE", "locks"), Duration::from_secs(60))
    };

    let told = answers(play("# 201 with serial 1"));
    assert_eq!((&told[0]["serial"], &told[0]["user"]), (&1.into(), &"ann".into()), "{told:?}");
    let told = answers(play("# at most 50 visitors"));
    let [room, joined] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((&room["room"], &joined["number"]), (&"sale".into(), &1.into()), "{room} {joined}");
    let told = answers(play("# a price that does not change"));
    let [charged, listing, sold] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((&charged["available"], &listing["state"]), (&500.into(), &"running".into()), "{charged} {listing}");
    assert_eq!((&sold["buyer"], &sold["price"]), (&"bob".into(), &100.into()), "{sold}");
    let told = play("firstcome lock report").well();
    let lines: Vec<&str> = told.lines().collect();
    let fence = lines[0].strip_prefix("fence ").and_then(|fence| fence.parse::<u64>().ok());
    assert!(fence.is_some(), "{told}");
    let said = ["beside other readers, in turns with writers", "at most three at once"];
    assert_eq!(lines[1..], said, "{told}");
}

#[test]
fn the_quick_start_runs() {
    if !machine_has("curl", crate::support::program::is_installed("curl")) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let service = service(here);
    let address = service.address().to_string();
    let play = |first: &str| {
        let script = block(QUICK_START, first).replace("localhost:8080", &address);
        run_for(&mut shell(here, &script), Duration::from_secs(300))
    };

    let told = answers(play("# the first claim"));
    let [ann, again, bob, retried, coupon, claims, friday] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((&ann["serial"], &ann["user"]), (&1.into(), &"ann".into()), "{ann}");
    assert!(ann["code"].is_string(), "{ann}");
    assert_eq!(again["code"], "already_issued");
    assert_eq!(again["claim"]["code"], ann["code"], "the very same claim");
    assert_eq!((&bob["serial"], bob), (&2.into(), retried));
    assert_eq!((&coupon["issued"], &coupon["remaining"]), (&2.into(), &98.into()), "{coupon}");
    assert_eq!(claims["items"].as_array().map(Vec::len), Some(2), "{claims}");
    assert_eq!((&friday["limit"], &friday["state"]), (&1000.into(), &"scheduled".into()), "{friday}");

    let drop = play("api=localhost:8080/v1; json='content-type: application/json'\ncurl -s -X PUT $api/rooms");
    let joined: Value = serde_json::from_str(drop.stderr.trim()).expect("the ticket is shown");
    assert!(joined["ticket"].is_string(), "{joined}");
    let told = answers(drop);
    let [room, seats, .., place, claim, after] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((&room["room"], &seats["room"]), (&"sale".into(), &"sale".into()), "{room} {seats}");
    assert!(place["pass"].is_string(), "{place}");
    assert_eq!(claim["serial"], 1, "{claim}");
    assert_eq!(after["active"], 0, "the slot is free: {after}");

    let told = answers(play("api=localhost:8080/v1; json='content-type: application/json'\ncurl -s $api/members"));
    let [charged, lamp, bid, member, running, sold, records] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((&charged["available"], &lamp["state"]), (&500.into(), &"running".into()), "{charged} {lamp}");
    assert_eq!((&bid["highest"]["price"], &member["available"]), (&150.into(), &350.into()), "{bid} {member}");
    assert_eq!(running["state"], "running", "{running}");
    assert_eq!(sold["price"], 150, "{sold}");
    assert!(!records["items"].as_array().expect("records").is_empty(), "{records}");
}

#[test]
fn the_commands_for_jobs_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    own_script(here, "backup.sh", "echo backup $FIRSTCOME_FENCE");
    own_script(here, "start-workers.sh", "echo workers $FIRSTCOME_FENCE");
    fs::create_dir(here.join("locks")).expect("a directory");
    // Thirty seconds of waiting show no more than one, and root's own place is not a test's.
    let script = block(LOCKS, "firstcome lock nightly").replace("--min-hold 30s", "--min-hold 1s");
    let output = run(shell(here, &script).env("FIRSTCOME_STORE", "locks")).well();
    let (jobs, fences): (Vec<&str>, Vec<u64>) = output
        .lines()
        .map(|line| line.split_once(' ').expect("a job and its fence"))
        .map(|(job, fence)| (job, fence.parse::<u64>().expect("a fence")))
        .unzip();
    assert_eq!(jobs, ["backup", "backup", "workers"]);
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");

    let mut hangs = shell(here, "exec firstcome lock nightly --lease 2s -- sleep 600");
    let mut hangs = hangs.env("FIRSTCOME_STORE", "locks").spawn().expect("it starts");
    let list = || run(shell(here, "firstcome locks list").env("FIRSTCOME_STORE", "locks")).well();
    wait_for("the holder", || list().contains("nightly").then_some(()));
    let output = run(shell(here, &block(LOCKS, "firstcome locks list")).env("FIRSTCOME_STORE", "locks")).well();
    let told: Vec<Value> =
        serde_json::Deserializer::from_str(&output).into_iter().map(|one| one.expect("JSON")).collect();
    let [all, status, released] = told.as_slice() else { panic!("{output}") };
    assert_eq!((&all["locks"][0]["lock"], &status["holder"]), (&"nightly".into(), &released["holder"]), "{output}");
    assert_eq!(released["released"], true, "{output}");
    assert_eq!(wait(&mut hangs).code(), Some(76), "the holder's command is ended");
}

#[test]
fn the_second_terminal_gets_the_lock_of_a_killed_holder() {
    if !machine_has("redis-server", Database::is_installed(Kind::Redis))
        || !machine_has("pgrep", crate::support::program::is_installed("pgrep"))
    {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let redis = runtime.block_on(Database::start(Kind::Redis, &Options::new(Durability::Quick))).expect("it starts");
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let text = block(QUICK_START, "# both terminals").replace("redis://127.0.0.1:6379", redis.url());
    let (both, third) = text.split_once("\n\n").expect("two kinds of terminals");
    let terminal = |name: &str| {
        let told = fs::File::create(here.join(name)).expect("a file");
        shell(here, both).stdout(told).spawn().expect("it starts")
    };
    let fence_in = |name: &str| -> u64 {
        wait_for("a fence", || fs::read_to_string(here.join(name)).ok()?.trim().strip_prefix("fence ")?.parse().ok())
    };
    let mut first = terminal("first");
    let fence = fence_in("first");
    let mut second = terminal("second");
    run(&mut shell(here, third)).well();
    assert!(fence < fence_in("second"), "a larger fence");
    assert!(!wait(&mut first).success(), "its holder was killed");
    // The bash of the second terminal waits for its command, which is asked to end by name.
    run(&mut shell(here, "kill $(pgrep -of 'firstcome lock report')")).well();
    assert_eq!(wait(&mut second).code(), Some(143));
}

#[test]
fn the_commands_that_deploy_a_cluster_run() {
    let Some(world) = World::start(Kind::Postgres) else { return };
    let here = world.here();
    let mut one_machine = Server::spawn(command(PROGRAM, here).args([
        "serve",
        "--dev",
        "--coupon",
        "launch=100",
        "--listen",
        "127.0.0.1:0",
        "--data",
        "firstcome-data",
    ]));
    one_machine.kill();
    let named = |text: String| {
        let text = text.replace("postgres://owner@db/shop", world.sql.url());
        text.replace("postgres://firstcome@db/shop", world.sql.url()).replace("redis://redis", world.redis.url())
    };
    let nodes = named(block(STORES, "head -c 32 /dev/urandom"));
    let (before, serve) = nodes.split_at(nodes.find("firstcome serve").expect("a node is started"));
    let output = run(&mut shell(here, before)).well();
    assert!(output.contains("secret"), "the doctor has looked: {output}");
    run(&mut shell(here, &named(block(STORES, "firstcome export")))).well();
    let serve = serve.replace("0.0.0.0:8080", "127.0.0.1:0");
    let node = Server::spawn(&mut shell(here, &format!("exec {serve}")));
    let launch = node.client().get("/v1/coupons/launch");
    assert_eq!(launch.status, 200);
    signal(node.process(), "TERM");
}
