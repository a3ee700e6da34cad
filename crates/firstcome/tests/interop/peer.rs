//! A program around another caller's lock, in conversation: a line is a command, answered by a line.

use super::PATIENCE;
use firstcome_test_servers::machine_has;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// What the machine is told about these tests.
#[expect(clippy::disallowed_methods, reason = "the one place where these tests are set up from outside")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Where the programs are: `FIRSTCOME_PEERS`, or `target/peers` in the project.
fn program(name: &str) -> PathBuf {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
    setting("FIRSTCOME_PEERS").map_or_else(beside, PathBuf::from).join("bin").join(name)
}

/// A program that runs. Killed when it is dropped.
pub(crate) struct Peer {
    name: String,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// Answers that no caller has asked for yet, by their handle.
    answers: BTreeMap<String, VecDeque<String>>,
}

impl Peer {
    /// Starts one on a server. `None`, and a word about it, where it is not installed; in CI it must be.
    pub(crate) async fn start(name: &str, url: &str, settings: &[&str]) -> Option<Self> {
        let program = program(name);
        if !machine_has(&format!("{name} (bench/peers/install target/peers)"), program.is_file()) {
            return None;
        }
        let mut command = Command::new(program);
        command.args(["talk", url]).args(settings).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("it can be run");
        let input = child.stdin.take().expect("it reads");
        let output = BufReader::new(child.stdout.take().expect("it writes")).lines();
        let mut peer = Self { name: name.to_owned(), child, input, output, answers: BTreeMap::new() };
        assert_eq!(peer.line().await, "ready", "{name}");
        Some(peer)
    }

    async fn line(&mut self) -> String {
        let line = timeout(PATIENCE, self.output.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("{} says nothing", self.name)).expect("it can be read");
        line.unwrap_or_else(|| panic!("{} has ended", self.name))
    }

    /// Tells it something; its answer may come later.
    pub(crate) async fn report(&mut self, command: &str) {
        self.input.write_all(format!("{command}\n").as_bytes()).await.expect("it listens");
    }

    /// The next answer of a handle.
    pub(crate) async fn answer(&mut self, handle: &str) -> String {
        loop {
            if let Some(answer) = self.answers.get_mut(handle).and_then(VecDeque::pop_front) {
                return answer;
            }
            let line = self.line().await;
            let (of, answer) = line.split_once(' ').unwrap_or((&line, ""));
            self.answers.entry(of.to_owned()).or_default().push_back(answer.to_owned());
        }
    }

    /// Tells it something, and waits for the answer of the handle, which is the second word.
    pub(crate) async fn ask(&mut self, command: &str) -> String {
        self.report(command).await;
        let handle = command.split(' ').nth(1).expect("a handle").to_owned();
        self.answer(&handle).await
    }

    /// Asks for something that has one right answer.
    #[track_caller]
    pub(crate) fn says(&mut self, command: &str, expected: &str) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        async move {
            let answer = self.ask(command).await;
            assert_eq!(answer, expected, "{} at {place}: {command}", self.name);
        }
    }

    /// Ends it as a power cut would: it gives nothing back.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it is ours");
    }
}
