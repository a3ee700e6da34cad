//! A machine that trusts no certificate authority: commands say so before they connect, and name the package that brings some.

use crate::support::program::{Ended, PROGRAM, command, run};
use firstcome_test_servers::Authority;
use std::fs;
use std::path::Path;

/// Runs a command on a machine whose authorities are those of this file.
fn with_roots(here: &Path, file: &Path, arguments: &[&str]) -> Ended {
    let mut program = command(PROGRAM, here);
    program.env("SSL_CERT_FILE", file).env("SSL_CERT_DIR", here.join("none"));
    program.env("FIRSTCOME_SECRET", crate::support::world::SECRET);
    run(program.args(arguments))
}

#[test]
fn a_machine_without_authorities_is_told_of_the_package_before_it_connects() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    fs::create_dir(here.join("none")).expect("a directory");
    fs::write(here.join("empty.pem"), "").expect("written");
    let (redis, sql) = ("rediss://127.0.0.1:1", "postgres://ann@127.0.0.1:1/shop");
    let quorum = format!("{redis} rediss://127.0.0.1:2 rediss://127.0.0.1:3");
    let rows: [&[&str]; 6] = [
        &["lock", "a", "--store", redis, "--", "touch", "done"],
        &["lock", "a", "--store", &quorum, "--", "touch", "done"],
        &["locks", "list", "--store", redis],
        &["serve", "--redis", "rediss+sentinel://127.0.0.1:1/main", "--sql", sql],
        &["doctor", "--redis", redis, "--sql", sql],
        &["doctor", "--store", redis],
    ];
    for arguments in rows {
        let told = with_roots(here, &here.join("empty.pem"), arguments).with(2);
        let says = "trusts no certificate authority: install the package ca-certificates, or name a CA";
        assert!(told.contains(says) && told.trim_end().lines().count() == 1, "{arguments:?}: {told}");
    }
    assert!(!here.join("done").exists());
    // With an authority, of the machine or of the address, the server is what is missing.
    let authority = Authority::new().expect("an authority");
    let own = format!("{redis}?cacert={}", authority.ca().display());
    for (file, store) in [(authority.ca(), redis), (here.join("empty.pem"), own.as_str())] {
        let told = with_roots(here, &file, &["lock", "a", "--store", store, "--", "touch", "done"]).with(3);
        assert!(!told.contains("ca-certificates"), "{store}: {told}");
    }
}
