//! A Redis server of a test's own.

use redis::Value;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

/// Longer than anything here takes on a slow machine; a test that waits so long has found a fault. The longest are elections of
/// Sentinels: each that ends without a majority is repeated after seconds, and 22 s were seen on a quiet machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Looks again and again, at most [`PATIENCE`] long, until there is something to see.
pub(crate) async fn wait_for<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < until, "timed out waiting for {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// A server that runs as a child process with a directory of its own; killed, by its id, when it is dropped.
pub(crate) struct Server {
    child: Child,
    port: u16,
    arguments: Vec<String>,
    directory: TempDir,
}

impl Server {
    /// Starts an empty server that keeps nothing, with more arguments if need be. `None`, and a word about it, where there
    /// is no `redis-server`; in CI it must be there.
    pub(crate) async fn start(arguments: &[&str]) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let mut directory = tempfile::tempdir().expect("a directory for the server");
        // Another process may take the port between the look and the start: then it ends, and another port is tried.
        for _ in 0..10 {
            let port = free_port();
            let child = spawn(port, &arguments, &directory);
            let mut server = Self { child, port, arguments: arguments.clone(), directory };
            if server.comes_up().await {
                return Some(server);
            }
            directory = tempfile::tempdir().expect("a directory for the server");
        }
        panic!("the server does not start with {arguments:?}");
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its address for a user.
    pub(crate) fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.port)
    }

    /// Its port.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Sends one command over a connection of its own; the error as the server put it.
    pub(crate) async fn try_ask(&self, command: &[&str]) -> redis::RedisResult<Value> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut packed = redis::cmd(command[0]);
        packed.arg(&command[1..]);
        packed.query_async(&mut connection).await
    }

    /// [`Self::try_ask`] where nothing may go wrong.
    pub(crate) async fn ask(&self, command: &[&str]) -> Value {
        self.try_ask(command).await.unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// The answer as text.
    pub(crate) async fn text(&self, command: &[&str]) -> String {
        redis::from_redis_value(self.ask(command).await).expect("the answer is text")
    }

    /// A number of `INFO`.
    pub(crate) async fn figure(&self, name: &str) -> u64 {
        let info = self.text(&["INFO"]).await;
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|figure| figure.trim().parse().ok()).unwrap_or_else(|| panic!("INFO has no {name}"))
    }

    /// How many commands of a kind it has taken since it started, those in scripts too.
    pub(crate) async fn calls(&self, command: &str) -> u64 {
        let stats = self.text(&["INFO", "commandstats"]).await;
        let start = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next()?.parse().ok());
        line.unwrap_or(0)
    }

    /// How many commands scripts have called, all kinds together.
    pub(crate) async fn calls_of_scripts(&self) -> u64 {
        let stats = self.text(&["INFO", "commandstats"]).await;
        let is_of_clients = |name: &str| {
            let name = name.split('|').next().unwrap_or_default();
            [
                "evalsha",
                "eval",
                "script",
                "info",
                "ping",
                "hello",
                "client",
                "select",
                "subscribe",
                "ssubscribe",
                "config",
            ]
            .contains(&name)
        };
        let kinds = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
        let of_scripts = kinds.filter(|(name, _)| !is_of_clients(name));
        of_scripts.filter_map(|(_, rest)| rest.split(',').next()?.parse::<u64>().ok()).sum()
    }

    /// Kills it: nothing is saved and no process is told.
    pub(crate) fn kill(&mut self) {
        // An error means that it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again at the same port, without waiting until it is ready, with further arguments.
    pub(crate) fn start_again_with(&mut self, arguments: &[&str]) {
        self.kill();
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self.child = spawn(self.port, &self.arguments, &self.directory);
    }

    /// Kills it if it still runs, and starts it again, empty, at the same port.
    pub(crate) async fn restart(&mut self) {
        self.start_again_with(&[]);
        assert!(self.comes_up().await, "the server does not start again");
    }

    /// Makes it stand still: connections stay open, no process answers.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill -{name} fails");
    }

    /// Waits until it answers, and it is this one that answers; `false` if it ends instead.
    async fn comes_up(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        while self.child.try_wait().expect("the child can be asked").is_none() {
            let info = timeout(Duration::from_secs(1), self.try_ask(&["INFO", "server"])).await;
            match info {
                Ok(Ok(info)) => {
                    let info: String = redis::from_redis_value(info).expect("INFO is text");
                    if info.contains(&format!("process_id:{}\r", self.child.id())) {
                        return true;
                    }
                }
                // It lives, and wants a password.
                Ok(Err(error)) if error.code() == Some("NOAUTH") => return true,
                Ok(Err(_)) | Err(_) => {}
            }
            assert!(Instant::now() < until, "the server does not answer");
            sleep(Duration::from_millis(2)).await;
        }
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(port: u16, arguments: &[String], directory: &TempDir) -> Child {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]);
    command.arg(directory.path()).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("redis-server starts")
}

/// A port at which no process listens.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it has an address").port()
}

/// Whether there is a `redis-server`; a word about it if not.
#[track_caller]
pub(crate) fn is_installed() -> bool {
    let mut command = Command::new("redis-server");
    firstcome_test_servers::machine_has("redis-server", command.arg("--version").stdout(Stdio::null()).status().is_ok())
}
