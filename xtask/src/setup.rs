//! Installs what the tests need. Does nothing where it is there already.

use crate::shell::{self, Outcome};

/// Programs that tests start, and the Debian packages that hold them.
const NEEDED: [(&str, &str); 6] = [
    ("cc", "build-essential"),
    ("strace", "strace"),
    ("unshare", "util-linux"),
    ("redis-server", "redis-server"),
    ("initdb", "postgresql"),
    // The server alone: no service comes with it.
    ("mariadbd", "mariadb-server-core"),
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
