//! A backup is taken while people claim, the service is killed, and the backup is restored: what was told before it holds,
//! and what was told after it is forgotten, as the page of guarantees says.

use crate::keys::shown;
use crate::killed::ToldClaim;
use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, firstcome, is_installed, rows, run};
use crate::support::server::Server;
use crate::support::{machine_has, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;

const THREADS: u32 = 4;
/// Claims before the backup, and again after it.
const SOME: usize = 150;

/// Each claim that was told, by its serial.
type Ledger = BTreeMap<u64, (String, ToldClaim)>;

/// Claims until the service goes away, and writes each answer down.
fn claim_on(mut client: Client, thread: u32, ledger: &Mutex<Ledger>) {
    for number in 0.. {
        let user = format!("person-{thread}-{number}");
        let Ok(answer) = client.claim("launch", &user, Some(&user)) else { return };
        assert_eq!(answer.status, 201, "{}", answer.text());
        let claim = answer.json();
        let serial = claim["serial"].as_u64().expect("a serial");
        let told = (user, ToldClaim::new(&claim));
        assert!(ledger.lock().expect("no test has failed").insert(serial, told).is_none(), "serial {serial} twice");
    }
}

fn told(ledger: &Mutex<Ledger>) -> usize {
    ledger.lock().expect("no test has failed").len()
}

/// Takes a lock and gives it back. Returns its fence.
#[track_caller]
fn fence(client: &mut Client) -> u64 {
    let body = json!({"owner": "ann", "wait_ms": 0, "lease_ms": 60_000});
    let lock = client.call("POST", "/v1/locks/door/acquire", Some(&body)).json();
    let handle = json!({"handle": lock["handle"]});
    assert_eq!(client.call("POST", "/v1/locks/door/release", Some(&handle)).status, 200, "{lock}");
    lock["fence"].as_u64().unwrap_or_else(|| panic!("a fence: {lock}"))
}

/// The receipt of a claim, once a head covers it.
fn receipt(server: &Server, user: &str) -> String {
    wait_for("a head that covers the claim", || {
        let answer = server.client().get(&format!("/v1/coupons/launch/claims/{user}/receipt"));
        (answer.status == 200).then(|| answer.text())
    })
}

fn claims(server: &Server) -> Ledger {
    let claims = server.client().claims("launch");
    let entry = |claim: &Value| {
        let user = claim["user"].as_str().expect("a user").to_owned();
        (claim["serial"].as_u64().expect("a serial"), (user, ToldClaim::new(claim)))
    };
    claims.iter().map(entry).collect()
}

#[test]
fn a_backup_under_load_keeps_what_was_told_before_it_and_forgets_what_was_told_after_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let mut server = Server::start_with(here, &["--coupon", "launch=1000000"]);
    let ledger = Mutex::new(Ledger::new());
    let (fence_before, mut before, mut after, mut fence_after) = (fence(&mut server.client()), Ledger::new(), 0, 0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (client, ledger) = (server.client(), &ledger);
            scope.spawn(move || claim_on(client, thread, ledger));
        }
        wait_for("claims before the backup", || (SOME <= told(&ledger)).then_some(()));
        before = ledger.lock().expect("no test has failed").clone();
        firstcome(here, &["backup", "--data", "data", "--to", "yesterday"]).well();
        after = told(&ledger);
        wait_for("claims after the backup", || (after + SOME <= told(&ledger)).then_some(()));
        fence_after = fence(&mut server.client());
        let (last, _) = ledger.lock().expect("no test has failed").last_entry().expect("a claim").get().clone();
        fs::write(here.join("receipt"), receipt(&server, &last)).expect("it is written");
        fs::write(here.join("heads"), server.client().get("/v1/coupons/launch/heads").text()).expect("it is written");
        server.kill();
    });
    let ledger = ledger.into_inner().expect("no test has failed");
    assert!(fence_before < fence_after);
    let mode = fs::metadata(here.join("yesterday")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it holds secrets");
    assert!(!here.join("yesterday.part").exists(), "nothing is left beside it");

    fs::remove_dir_all(here.join("data")).expect("the disk is lost");
    firstcome(here, &["restore", "--from", "yesterday", "--data", "data"]).well();
    firstcome(here, &["verify", "--data", "data"]).well();
    let server = Server::start(here);
    let restored = claims(&server);
    let kept = restored.len() as u64;
    assert!(restored.iter().eq(ledger.range(..=kept)), "one moment of one order: {kept} of {}", ledger.len());
    assert!(before.iter().all(|(serial, _)| restored.contains_key(serial)), "what was told before it is kept");
    assert!(restored.len() < ledger.len(), "what was told after it is forgotten");

    // A serial told after the backup is told again, to another user and with another code. A fence never is.
    let mut client = server.client();
    let claim = client.claim("launch", "zoe", None).expect("it is answered").json();
    assert_eq!(claim["serial"], kept + 1);
    let (_, lost) = &ledger[&(kept + 1)];
    assert_ne!(ToldClaim::new(&claim), *lost, "another code");
    assert!(fence_after < fence(&mut client), "a fence told after the backup stays the lower one");
    // A visitor who kept the heads of before can prove that the service has signed two stories.
    fs::write(here.join("new"), receipt(&server, "zoe")).expect("it is written");
    firstcome(here, &["verify", "--receipt", "receipt", "--heads", "heads"]).well();
    let said = firstcome(here, &["verify", "--receipt", "new", "--heads", "heads"]).with(1);
    assert!(said.contains("signed two different heads"), "{said}");
    server.stop();
}

#[test]
fn a_backup_goes_through_a_pipe_and_any_tar_reads_it() {
    let tools = ["tar", "sha256sum"].into_iter().all(is_installed);
    if !machine_has("tar and sha256sum", tools) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    // With keys of its own, which the directory keeps.
    let mut serve = command(PROGRAM, here);
    let mut server =
        Server::spawn(serve.args(["serve", "--listen", "127.0.0.1:0", "--data", "data", "--coupon", "launch=5"]));
    let key = shown(&mut server, "admin");
    let claim = Client::with_key(server.address(), &key).claim("launch", "ann", None).expect("it is answered").json();
    let pipe = "set -o pipefail
        $0 backup --data data --to - --staging . | $0 restore --from - --data new
        $0 backup --data data --to whole.tar
        mkdir unpacked && cd unpacked && tar xf ../whole.tar && sha256sum --strict -c SHA256SUMS && ls";
    let listed = run(command("/bin/bash", here).args(["-e", "-c", pipe, PROGRAM])).well();
    for name in ["manifest.json", "keys.toml", "firstcome.db", "locks.db"] {
        assert!(listed.contains(&format!("{name}: OK")), "{listed}");
    }
    let manifest = fs::read_to_string(here.join("unpacked").join("manifest.json")).expect("it is there");
    let manifest: Value = serde_json::from_str(&manifest).expect("it is JSON");
    assert_eq!(manifest["coupons"], json!([{"name": "launch", "limit": 5, "issued": 1}]), "{manifest:#}");
    assert_eq!(manifest["files"][1]["checked"], "invariants", "{manifest:#}");
    let left = fs::read_dir(here).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("backup")).collect();
    assert!(left.is_empty(), "no copies are left: {left:?}");
    server.kill();

    // The same store, with the same keys.
    let export = |data: &str| rows(&firstcome(here, &["export", "--data", data]).well());
    assert_eq!(export("new"), export("data"));
    let mut serve = command(PROGRAM, here);
    let server = Server::spawn(serve.args(["serve", "--listen", "127.0.0.1:0", "--data", "new"]));
    let again = Client::with_key(server.address(), &key).claim("launch", "ann", None).expect("it is answered");
    assert_eq!((again.status, ToldClaim::new(&again.json()["claim"])), (409, ToldClaim::new(&claim)));
    server.stop();
}

#[test]
fn a_directory_of_locks_alone_and_one_of_an_older_version_are_backed_up_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    firstcome(here, &["lock", "door", "--store", "locks", "--create", "--", "true"]).well();
    firstcome(here, &["backup", "--data", "locks", "--to", "locks.tar"]).well();
    firstcome(here, &["restore", "--from", "locks.tar", "--data", "new"]).well();
    firstcome(here, &["lock", "door", "--store", "new", "--", "true"]).well();

    let steps: String = ["0001_coupons", "0002_rooms", "0003_market", "0004_bound_codes", "0005_appearances"]
        .map(|step| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../firstcome-sqlite/src/{step}.sql"));
            fs::read_to_string(path).expect("the step is there")
        })
        .concat();
    fs::create_dir(here.join("data")).expect("a directory");
    let older = rusqlite::Connection::open(here.join("data").join("firstcome.db")).expect("it opens");
    older.execute_batch(&steps).expect("the tables are made");
    older.pragma_update(None, "application_id", 0x4643_4f4d).expect("it is marked");
    older.pragma_update(None, "user_version", 5).expect("it is marked");
    drop(older);
    firstcome(here, &["backup", "--data", "data", "--to", "older.tar"]).well();
    firstcome(here, &["restore", "--from", "older.tar", "--data", "older"]).well();
    let said = firstcome(here, &["verify", "--data", "older"]).with(3);
    assert!(said.contains("schema version 5"), "as it was: {said}");
    let mut serve = command(PROGRAM, here);
    Server::spawn(serve.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--data", "older"])).stop();
    firstcome(here, &["verify", "--data", "older"]).well();
}
