//! Installs what the tests need. Does nothing where it is there already.

use crate::shell::{self, Outcome};

/// Programs that tests start, and the Debian packages that hold them.
const NEEDED: [(&str, &str); 4] =
    [("cc", "build-essential"), ("strace", "strace"), ("unshare", "util-linux"), ("redis-server", "redis-server")];

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
    let mut arguments = vec!["install", "-y", "-qq", "--no-install-recommends"];
    arguments.extend(missing);
    shell::run("env", &[&["DEBIAN_FRONTEND=noninteractive", "apt-get"], arguments.as_slice()].concat())
}
