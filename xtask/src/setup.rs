//! Installs what the tests need. Does nothing where it is there already.

use crate::shell::{self, Outcome};
use std::process::Command;

/// Programs that tests start, and the Debian packages that hold them.
const NEEDED: [(&str, &str); 14] = [
    ("cc", "build-essential"),
    ("valgrind", "valgrind"),
    ("strace", "strace"),
    // The README's commands are run as they stand.
    ("curl", "curl"),
    ("pgrep", "procps"),
    ("unshare", "util-linux"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("redis-server", "redis-server"),
    ("initdb", "postgresql"),
    // The server alone: no service comes with it.
    ("mariadbd", "mariadb-server-core"),
    ("nginx", "nginx"),
    ("etcd", "etcd-server"),
    ("etcdctl", "etcd-client"),
];

/// Keeps the services of packages from being started: tests start servers of their own.
const NO_SERVICES: &str = "\
    if [ ! -e /usr/sbin/policy-rc.d ]; then \
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT; trap 'exit 1' HUP INT TERM; \
        printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d; \
    fi; \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \"$@\"";

pub(crate) fn run() -> Outcome {
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(program, _)| !shell::has(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let root = shell::output("id", &["-u"])?.trim() == "0";
    if !root || !shell::has("apt-get") {
        println!("not installed: {}; tests that need them are skipped outside CI", missing.join(" "));
        return Ok(());
    }
    shell::run("apt-get", &["update", "-qq"])?;
    shell::run("sh", &[&["-c", NO_SERVICES, "install"], missing.as_slice()].concat())
}

/// What `bench/peers/install` ends with if a toolchain is missing.
const NO_TOOLCHAIN: i32 = 3;
/// Where the tests look for what it installs.
const PEERS: &str = "target/peers";
/// Their languages.
const LANGUAGES: [&str; 4] = ["python", "node", "go", "java"];

/// Installs the locks of others with which ours are tried. Quick where nothing has changed.
pub(crate) fn peers() -> Outcome {
    for language in LANGUAGES {
        println!("\n— bench/peers/install {PEERS} {language}");
        let mut command = Command::new("bench/peers/install");
        let status = command.args([PEERS, language]).current_dir(shell::root()).status();
        match status.map_err(|error| format!("cannot run bench/peers/install: {error}"))?.code() {
            Some(0) => {}
            Some(NO_TOOLCHAIN) => println!("not installed: {language}; tests that need it are skipped outside CI"),
            _ => return Err(format!("failed: bench/peers/install {PEERS} {language}")),
        }
    }
    Ok(())
}
