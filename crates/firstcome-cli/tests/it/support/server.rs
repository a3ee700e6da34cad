//! A running service.

use super::http::Client;
use super::program::{self, PROGRAM, command};
use super::{PATIENCE, wait_for};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};

/// A service that runs as a child process; killed, by its id, when it is dropped.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    lines: Receiver<String>,
    seen: Vec<String>,
    errors: Arc<Mutex<String>>,
}

impl Server {
    /// Starts the service in development mode over `directory/data`.
    #[track_caller]
    pub(crate) fn start(directory: &Path) -> Self {
        Self::start_with(directory, &[])
    }

    /// [`Self::start`] with more arguments.
    #[track_caller]
    pub(crate) fn start_with(directory: &Path, arguments: &[&str]) -> Self {
        let mut serve = command(PROGRAM, directory);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data", "data", "--dev"]).args(arguments);
        Self::spawn(&mut serve)
    }

    /// Starts any command that ends up as the service, and waits until it listens.
    #[track_caller]
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the service starts");
        let stdout = child.stdout.take().expect("its output is piped");
        let stderr = child.stderr.take().expect("its errors are piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let errors = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&errors);
        std::thread::spawn(move || collect(stderr, &sink));
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self { child, address: unknown, lines, seen: Vec::new(), errors };
        let line = server.line("listening on http");
        let address = line.split_once("://").map(|(_, address)| address).unwrap_or_default();
        server.address = address.parse().expect("an address follows");
        server
    }

    /// Waits for a line of its output that begins like this.
    #[track_caller]
    pub(crate) fn line(&mut self, beginning: &str) -> String {
        if let Some(line) = self.seen.iter().find(|line| line.starts_with(beginning)) {
            return line.clone();
        }
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.starts_with(beginning) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("the service does not say {beginning:?}"),
                Err(RecvTimeoutError::Disconnected) => {
                    // The errors come through another pipe, which may still be read.
                    let status = program::wait(&mut self.child);
                    panic!("the service ended with {status} and never said {beginning:?}: {}", self.errors());
                }
            }
        }
    }

    /// The key of this name, `admin` or `service`, that its first start has left in a file.
    #[track_caller]
    pub(crate) fn first_key(&mut self, name: &str) -> String {
        let line = self.line("keys of the first start");
        let path = line.split(' ').next_back().expect("a path");
        let text = std::fs::read_to_string(path).expect("its owner can read it");
        let key = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
        key.expect("a key of this name")
    }

    /// Everything that it has written to its output, once it has ended.
    pub(crate) fn output(&mut self) -> String {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.seen.push(line);
        }
        self.seen.join("\n")
    }

    /// What it has logged so far.
    pub(crate) fn errors(&self) -> String {
        self.errors.lock().expect("nobody panics with it").clone()
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// A caller with a connection of its own.
    pub(crate) const fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// Kills it: no handler runs, nothing is flushed.
    pub(crate) fn kill(&mut self) {
        // An error means that it has ended by itself.
        let _ = self.child.kill();
        program::wait(&mut self.child);
    }

    /// Asks it to stop, without waiting.
    pub(crate) fn terminate(&self) {
        program::signal(self.child.id(), "TERM");
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        program::wait(&mut self.child)
    }

    /// Asks it to stop and demands that it ends well.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        self.terminate();
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{}", self.errors());
    }

    /// Waits until it has logged this.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, text: &str) {
        wait_for(text, || self.errors().contains(text).then_some(()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn collect(mut stderr: impl Read, sink: &Mutex<String>) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut chunk) {
        let text = String::from_utf8_lossy(&chunk[..count]).into_owned();
        sink.lock().expect("nobody panics with it").push_str(&text);
    }
}
