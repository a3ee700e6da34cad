//! Logs in as users of MySQL 8 do: by `caching_sha2_password` over TLS, at a server that speaks its protocol.
//!
//! MySQL itself is in no registry that this project reaches, and TiDB is not served by the Go proxy. The server here
//! (`xtask/mysql_login`) lacks what a service needs of a database, so a service does not start on it. What is shown is how far the
//! program comes: its login, its session, and what it says of the settings.

use crate::setup;
use crate::shell;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The server. Ends when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts it, and returns its address.
    fn start(directory: &Path, more: &[&str]) -> Result<(Self, String), String> {
        let mut server = Command::new(directory.join("mysql-login/bin/mysql-login"));
        server.args(["own.pem", "own.key"]).args(more).current_dir(directory);
        server.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = Self(server.spawn().map_err(|error| format!("cannot start the server: {error}"))?);
        let mut address = String::new();
        let output = server.0.stdout.take().ok_or("the server has no output")?;
        BufReader::new(output).read_line(&mut address).map_err(|error| error.to_string())?;
        Ok((server, address.trim().to_owned()))
    }
}

/// What a login must lead to.
struct Case {
    what: &'static str,
    password: &'static str,
    parameters: &'static str,
    /// What the server is told beside its certificate.
    server: &'static [&'static str],
    /// What the answer must contain.
    says: &'static str,
}

const CASES: [Case; 5] = [
    Case {
        what: "right password, TLS, name checked",
        password: "s3cret",
        parameters: "ssl-mode=VERIFY_IDENTITY&ssl-ca=DIR/ca.pem",
        server: &[],
        // It came as far as the settings of its session.
        says: "8.0.31",
    },
    Case {
        what: "wrong password, TLS, name checked",
        password: "wrong",
        parameters: "ssl-mode=VERIFY_IDENTITY&ssl-ca=DIR/ca.pem",
        server: &[],
        says: "Access denied for user 'ann'",
    },
    Case {
        what: "right password, plain text",
        password: "s3cret",
        parameters: "ssl-mode=DISABLED",
        server: &[],
        says: "No authentication methods available",
    },
    Case {
        what: "right password, another authority",
        password: "s3cret",
        parameters: "ssl-mode=VERIFY_CA&ssl-ca=DIR/other.pem",
        server: &[],
        says: "not from a trusted authority",
    },
    Case {
        what: "right password, a server that refuses how a session begins",
        password: "s3cret",
        parameters: "ssl-mode=VERIFY_IDENTITY&ssl-ca=DIR/ca.pem",
        server: &["as-it-is"],
        says: "Variable 'innodb_lock_wait_timeout' is a GLOBAL variable",
    },
];

/// Builds the server and the program, and tries each case.
pub(crate) fn run() -> Result<String, String> {
    setup::need(&[("openssl", "openssl"), ("pip3", "python3-pip")])?;
    shell::run("cargo", &["build", "--quiet", "-p", "firstcome-cli"])?;
    let directory = shell::output("mktemp", &["-d", "--tmpdir", "firstcome-login.XXXXXX"])?;
    let directory = directory.trim();
    let told = tried(Path::new(directory));
    let _ = std::fs::remove_dir_all(directory);
    told
}

/// Makes two authorities, and a certificate of the first one for loopback.
fn certificates(here: &str) -> Result<(), String> {
    let script = "cd \"$0\"
        for name in ca other; do
            openssl req -x509 -newkey rsa:2048 -nodes -keyout $name.key -out $name.pem -subj /CN=$name -days 2
        done
        openssl req -newkey rsa:2048 -nodes -keyout own.key -out own.csr -subj /CN=localhost
        echo subjectAltName=IP:127.0.0.1 >own.txt
        openssl x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out own.pem -days 2 -extfile own.txt";
    shell::output("sh", &["-ec", &format!("exec 2>/dev/null; {script}"), here]).map(drop)
}

fn tried(directory: &Path) -> Result<String, String> {
    let here = directory.to_string_lossy().into_owned();
    shell::run("xtask/versions.sh", &[&here, "mysql-login"])?;
    certificates(&here)?;
    let mut report = "go-mysql-server 0.20.0, which says that it is MySQL 8.0.31\n".to_owned();
    let mut is_as_expected = true;
    for case in &CASES {
        let (_server, address) = Server::start(directory, case.server)?;
        let url = format!("mysql://ann:{}@{address}/shop?{}", case.password, case.parameters);
        std::fs::write(directory.join("url"), url.replace("DIR", &here)).map_err(|error| error.to_string())?;
        let told = asked(directory)?;
        let line = told.lines().find(|line| line.contains(case.says));
        is_as_expected &= line.is_some();
        let line = line.map_or_else(
            || format!("NOT {}: {told}", case.says),
            |line| line.trim().trim_start_matches("\"is\": ").into(),
        );
        let _ = writeln!(report, "{}\n    {line}", case.what);
    }
    if is_as_expected { Ok(report) } else { Err(report) }
}

/// Asks `firstcome doctor`. Its Redis is not there, which it says too.
fn asked(directory: &Path) -> Result<String, String> {
    let mut doctor = Command::new(shell::root().join("target/debug/firstcome"));
    doctor.args(["doctor", "--json", "--redis", "redis://127.0.0.1:1", "--sql-file", "url"]).current_dir(directory);
    let told = doctor.output().map_err(|error| format!("cannot run firstcome doctor: {error}"))?;
    Ok(String::from_utf8_lossy(&told.stdout).into_owned())
}
