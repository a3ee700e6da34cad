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

/// A line.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    commits: watch::Sender<Commits>,
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
        let (commits, on_commit) = watch::channel(Commits::Pass);
        let (hold, held) = watch::channel(0);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let (cut, is_cut) = watch::channel(false);
                tokio::spawn(forth(from_client, to_server, on_commit.clone(), hold.clone(), cut));
                tokio::spawn(back(from_server, to_client, is_cut));
            }
        });
        Self { port: own, commits, held, task }
    }

    /// Says what happens to commits from now on.
    pub(crate) fn set(&self, commits: Commits) {
        self.commits.send_replace(commits);
    }

    /// Waits until so many commits were held or cut since the beginning.
    pub(crate) async fn met(&mut self, count: u32) {
        self.held.wait_for(|held| count <= *held).await.expect("the line is there");
    }
}

async fn forth(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut commits: watch::Receiver<Commits>,
    hold: watch::Sender<u32>,
    cut: watch::Sender<bool>,
) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        // At its end: others speak of isolation.
        let is_commit = bytes[..count].ends_with(b"COMMIT") || bytes[..count].ends_with(b"COMMIT\0");
        let what = *commits.borrow();
        if is_commit && what != Commits::Pass {
            hold.send_modify(|held| *held += 1);
        }
        match what {
            Commits::Hold if is_commit => {
                let _ = commits.wait_for(|commits| *commits == Commits::Pass).await;
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
