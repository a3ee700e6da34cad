//! A line to a server that can be held up in the middle.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What a line does when a client sends a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Commits {
    /// Passes it on.
    Pass,
    /// Keeps it, and all after it, until it is told to pass.
    Hold,
    /// Passes it on, and cuts the line before the answer.
    CutAnswer,
    /// Cuts the line, and passes nothing on.
    CutRequest,
}

/// What a line does.
#[derive(Clone, Copy)]
struct Rule {
    commits: Commits,
    /// Whether nothing at all passes after the next commit.
    then_stop: bool,
    stopped: bool,
}

/// A line.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    rule: watch::Sender<Rule>,
    held: watch::Receiver<u32>,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// A line to a port.
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let (rule, _) = watch::channel(Rule { commits: Commits::Pass, then_stop: false, stopped: false });
        let own_rule = rule.clone();
        let (hold, held) = watch::channel(0);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let (cut, is_cut) = watch::channel(false);
                tokio::spawn(forth(from_client, to_server, own_rule.clone(), hold.clone(), cut));
                tokio::spawn(back(from_server, to_client, is_cut));
            }
        });
        Self { port: own, rule, held, task }
    }

    /// Says what happens to commits from now on.
    pub(crate) fn set(&self, commits: Commits) {
        self.rule.send_replace(Rule { commits, then_stop: false, stopped: false });
    }

    /// The same, and after the first commit nothing passes until something else is said.
    pub(crate) fn set_then_stop(&self, commits: Commits) {
        self.rule.send_replace(Rule { commits, then_stop: true, stopped: false });
    }

    /// Waits until so many commits were held or cut since the beginning.
    pub(crate) async fn met(&mut self, count: u32) {
        self.held.wait_for(|held| count <= *held).await.expect("the line is there");
    }
}

async fn forth(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    rule: watch::Sender<Rule>,
    hold: watch::Sender<u32>,
    cut: watch::Sender<bool>,
) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        // At its end: others speak of isolation.
        let is_commit = bytes[..count].ends_with(b"COMMIT") || bytes[..count].ends_with(b"COMMIT\0");
        let mut rules = rule.subscribe();
        let _ = rules.wait_for(|rule| !rule.stopped).await;
        let Rule { commits: what, then_stop, .. } = *rule.borrow();
        if is_commit && then_stop {
            rule.send_modify(|rule| rule.stopped = true);
        }
        if is_commit && what != Commits::Pass {
            hold.send_modify(|held| *held += 1);
        }
        match what {
            Commits::Hold if is_commit => {
                let _ = rules.wait_for(|rule| rule.commits == Commits::Pass).await;
            }
            Commits::CutRequest if is_commit => {
                cut.send_replace(true);
                return;
            }
            Commits::CutAnswer if is_commit => drop(cut.send_replace(true)),
            _ => {}
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

async fn back(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut is_cut: watch::Receiver<bool>) {
    let mut bytes = vec![0; 1 << 16];
    loop {
        let read = tokio::select! {
            biased;
            cut = async { is_cut.wait_for(|cut| *cut).await.is_ok() } => {
                if cut {
                    // The server is heard to the end: it may be about to commit.
                    drop(to);
                    while let Ok(1..) = from.read(&mut bytes).await {}
                    return;
                }
                from.read(&mut bytes).await
            }
            read = from.read(&mut bytes) => read,
        };
        let Ok(count @ 1..) = read else { return };
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
