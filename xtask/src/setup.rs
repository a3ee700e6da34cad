//! Installs what the tests need. Does nothing if it is already there.

use crate::shell::{self, Outcome};
use std::process::Command;

/// The programs that tests start, and the Debian packages that contain them.
const NEEDED: [(&str, &str); 21] = [
    ("cc", "build-essential"),
    ("valgrind", "valgrind"),
    ("strace", "strace"),
    // A test runs the README's commands unchanged.
    ("curl", "curl"),
    ("pgrep", "procps"),
    ("unshare", "util-linux"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("redis-server", "redis-server"),
    ("initdb", "postgresql"),
    // Only the server, without a service.
    ("mariadbd", "mariadb-server-core"),
    // `mariadb` comes with it. A test backs a database up and restores it as the documentation says.
    ("mariadb-dump", "mariadb-client"),
    // What sites have in front of them.
    ("nginx", "nginx"),
    ("haproxy", "haproxy"),
    ("caddy", "caddy"),
    // A browser for the pages of rooms.
    ("chromium", "chromium"),
    ("chromedriver", "chromium-driver"),
    ("etcd", "etcd-server"),
    ("etcdctl", "etcd-client"),
    // Judge the unit and the alerts in `ops/`.
    ("systemd-analyze", "systemd"),
    ("promtool", "prometheus"),
];

/// Installs packages without starting their services, because tests start their own servers.
const NO_SERVICES: &str = "\
    if [ ! -e /usr/sbin/policy-rc.d ]; then \
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT; trap 'exit 1' HUP INT TERM; \
        printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d; \
    fi; \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \"$@\"";

pub(crate) fn run() -> Outcome {
    need(&NEEDED)
}

/// Installs what makes a fresh Debian, into which the package is installed.
pub(crate) fn debootstrap() -> Outcome {
    need(&[("debootstrap", "debootstrap")])
}

/// How a tool is built: it runs for seconds, and its own settings would have one processor optimise it for minutes.
const QUICK_BUILD: [&str; 3] =
    ["CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16", "CARGO_PROFILE_RELEASE_LTO=false", "CARGO_PROFILE_RELEASE_OPT_LEVEL=1"];

/// Installs a tool of cargo, if no version of it is there.
pub(crate) fn cargo_tool(program: &str, version: &str) -> Outcome {
    if shell::has(program) {
        return Ok(());
    }
    let install = ["cargo", "install", "--quiet", "--locked", program, "--version", version];
    shell::run("env", &[&QUICK_BUILD[..], &install[..]].concat())
}

/// Installs the Debian packages of the programs that are missing.
pub(crate) fn need(programs: &[(&str, &str)]) -> Outcome {
    let missing: Vec<&str> =
        programs.iter().filter(|(program, _)| !shell::has(program)).map(|(_, package)| *package).collect();
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

/// The exit code of `bench/peers/install` for a missing toolchain.
const NO_TOOLCHAIN: i32 = 3;
/// The directory in which the tests look for the installed libraries.
const PEERS: &str = "target/peers";
/// The languages of these libraries.
const LANGUAGES: [&str; 5] = ["python", "node", "go", "java", "java-site"];

/// Those that only the benchmark `field` uses.
const FIELD_LANGUAGES: [&str; 2] = ["go-field", "java-field"];

/// Installs the lock libraries of other projects, for tests of compatibility. Quick if nothing has changed.
pub(crate) fn peers() -> Outcome {
    install(&LANGUAGES)
}

/// Installs the libraries that only the benchmark `field` uses.
pub(crate) fn field_peers() -> Outcome {
    install(&FIELD_LANGUAGES)
}

fn install(languages: &[&str]) -> Outcome {
    for language in languages {
        println!("\n— bench/peers/install {PEERS} {language}");
        let mut command = Command::new("bench/peers/install");
        let status = command.args([PEERS, *language]).current_dir(shell::root()).status();
        match status.map_err(|error| format!("cannot run bench/peers/install: {error}"))?.code() {
            Some(0) => {}
            Some(NO_TOOLCHAIN) => println!("not installed: {language}; tests that need it are skipped outside CI"),
            _ => return Err(format!("failed: bench/peers/install {PEERS} {language}")),
        }
    }
    Ok(())
}
