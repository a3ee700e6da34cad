//! A line to a server that does something at a certain point.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What a client sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Point {
    /// A call of the script with this source.
    Script(&'static str),
    /// A commit of a transaction.
    Commit,
    /// Everything that has this text.
    Text(&'static str),
}

/// What a line does at a point, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProxyFault {
    /// Keeps it, and all that anybody sends from then on, until it is told to pass.
    Hold,
    /// Passes it on, and cuts the line before the answer.
    CutAnswer,
    /// Cuts the line, and passes nothing on.
    CutRequest,
    /// The same, and of every line over which anybody sends from then on, until it is told to pass.
    CutAll,
}

/// What a line is to do.
#[derive(Clone)]
struct Rule {
    /// The point as bytes, how often it is passed over before, and what is done then.
    at: Option<(Vec<u8>, u32, ProxyFault)>,
    stopped: bool,
    /// Whether all lines are cut.
    down: bool,
    /// How often something was done.
    met: u32,
}

/// A line.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    rule: watch::Sender<Rule>,
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
        let (rule, _) = watch::channel(Rule { at: None, stopped: false, down: false, met: 0 });
        let own_rule = rule.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let (cut, is_cut) = watch::channel(false);
                tokio::spawn(forth(from_client, to_server, own_rule.clone(), cut));
                tokio::spawn(back(from_server, to_client, is_cut));
            }
        });
        Self { port: own, rule, task }
    }

    /// Says what happens when a point has been passed so many times.
    pub(crate) fn set(&self, point: &Point, after: u32, what: ProxyFault) {
        let bytes = match point {
            Point::Script(source) => redis::Script::new(source).get_hash().as_bytes().to_vec(),
            Point::Commit => b"COMMIT".to_vec(),
            Point::Text(text) => text.as_bytes().to_vec(),
        };
        self.rule.send_modify(|rule| rule.at = Some((bytes, after, what)));
    }

    /// Passes everything on from now on.
    pub(crate) fn pass(&self) {
        self.rule.send_modify(|rule| (rule.at, rule.stopped, rule.down) = (None, false, false));
    }

    /// Waits until something was done so often since the beginning.
    pub(crate) async fn met(&self, count: u32) {
        self.rule.subscribe().wait_for(|rule| count <= rule.met).await.expect("the line is there");
    }
}

fn contains(bytes: &[u8], point: &[u8]) -> bool {
    if point == b"COMMIT" {
        // At its end: others speak of isolation.
        return bytes.ends_with(b"COMMIT") || bytes.ends_with(b"COMMIT\0");
    }
    bytes.windows(point.len()).any(|window| window == point)
}

/// What must be done with these bytes.
fn judge(rule: &mut Rule, bytes: &[u8]) -> Option<ProxyFault> {
    if rule.down {
        return Some(ProxyFault::CutAll);
    }
    let (point, after, what) = rule.at.as_mut()?;
    if !contains(bytes, point) {
        return None;
    }
    if 0 < *after {
        *after -= 1;
        return None;
    }
    let what = *what;
    rule.at = None;
    rule.stopped = what == ProxyFault::Hold;
    rule.down = what == ProxyFault::CutAll;
    rule.met += 1;
    Some(what)
}

async fn forth(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, rule: watch::Sender<Rule>, cut: watch::Sender<bool>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let mut what = None;
        rule.send_modify(|rule| what = judge(rule, &bytes[..count]));
        let _ = rule.subscribe().wait_for(|rule| !rule.stopped).await;
        if matches!(what, Some(ProxyFault::CutAnswer | ProxyFault::CutRequest | ProxyFault::CutAll)) {
            cut.send_replace(true);
        }
        if matches!(what, Some(ProxyFault::CutRequest | ProxyFault::CutAll))
            || to.write_all(&bytes[..count]).await.is_err()
        {
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
                    // The server is heard to the end: it may be about to do it.
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
