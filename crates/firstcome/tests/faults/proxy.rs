//! A way to the server on which things get lost.

use super::server::wait_for;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// How a reply gets lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    /// The connection ends.
    Cut,
    /// It stays open, and nothing comes any more.
    Silence,
}

/// Which connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    Commands,
    Inbox,
}

/// What happens to a command that is waited for.
#[derive(Clone, Copy)]
enum Fate {
    /// The server takes it, and its reply gets lost.
    Unanswered(Loss),
    /// It stays on its way until it is delivered.
    Kept,
}

struct ProxiedSocket {
    which: Which,
    cut: Arc<Notify>,
}

#[derive(Default)]
struct State {
    wires: Vec<Arc<Mutex<ProxiedSocket>>>,
    armed: Option<(String, u32, Fate)>,
    kept: Option<(TcpStream, Vec<u8>)>,
    /// What the server says over these connections does not get through.
    held_back: watch::Sender<Option<Which>>,
    closed: bool,
    /// Replies that were lost, and commands that were kept.
    hit: u32,
}

/// Passes bytes between processes and a server until it is told not to.
pub(crate) struct Proxy {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Before the server at this port.
    pub(crate) async fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let state = Arc::new(Mutex::new(State::default()));
        let accepting = tokio::spawn(accept(listener, port, Arc::clone(&state)));
        Self { state, address, accepting }
    }

    /// As which processes find the server.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Of the next `times` commands in which this text stands the server's reply gets lost.
    pub(crate) fn lose_replies(&self, text: &str, times: u32, loss: Loss) {
        self.state.lock().armed = Some((text.to_owned(), times, Fate::Unanswered(loss)));
    }

    /// The next command in which this text stands does not arrive before [`Self::deliver`], and its sender is cut off.
    pub(crate) fn keep_next(&self, text: &str) {
        self.state.lock().armed = Some((text.to_owned(), 1, Fate::Kept));
    }

    /// Delivers what was kept, and returns what the server says.
    pub(crate) async fn deliver(&self) -> Vec<u8> {
        let (mut server, command) = self.state.lock().kept.take().expect("a command was kept");
        server.write_all(&command).await.expect("the server listens");
        let mut said = vec![0; 4_096];
        let length = server.read(&mut said).await.expect("the server answers");
        said.truncate(length);
        said
    }

    /// How many replies were lost and commands kept so far.
    pub(crate) fn hit(&self) -> u32 {
        self.state.lock().hit
    }

    /// Waits until so many were.
    pub(crate) async fn until_hit(&self, times: u32) {
        wait_for("the fault", async || (times <= self.hit()).then_some(())).await;
    }

    /// Ends connections.
    pub(crate) fn cut(&self, which: Which) {
        let mut state = self.state.lock();
        state.wires.retain(|wire| 1 < Arc::strong_count(wire));
        for wire in &state.wires {
            let wire = wire.lock();
            if wire.which == which {
                wire.cut.notify_one();
            }
        }
    }

    /// How many connections are open.
    pub(crate) fn wires(&self, which: Which) -> usize {
        let state = self.state.lock();
        state.wires.iter().filter(|wire| 1 < Arc::strong_count(wire) && wire.lock().which == which).count()
    }

    /// Lets no caller in, or lets them in again.
    pub(crate) fn close(&self, closed: bool) {
        self.state.lock().closed = closed;
    }

    /// Holds back what the server says over these connections, and over no others, until [`Self::let_go`].
    pub(crate) fn hold_back(&self, which: Which) {
        self.state.lock().held_back.send_replace(Some(which));
    }

    /// Lets everything through again, what was held back first.
    pub(crate) fn let_go(&self) {
        self.state.lock().held_back.send_replace(None);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, port: u16, state: Arc<Mutex<State>>) {
    while let Ok((client, _)) = listener.accept().await {
        if state.lock().closed {
            continue;
        }
        let cut = Arc::new(Notify::new());
        let wire = Arc::new(Mutex::new(ProxiedSocket { which: Which::Commands, cut: Arc::clone(&cut) }));
        state.lock().wires.push(Arc::clone(&wire));
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
            // What goes wrong here is what a network does.
            let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
            tokio::select! {
                () = cut.notified() => {}
                () = pass(client, server, &wire, &state) => {}
            }
        });
    }
}

/// Passes bytes both ways until either end is closed or something must be lost.
async fn pass(mut client: TcpStream, mut server: TcpStream, wire: &Mutex<ProxiedSocket>, state: &Mutex<State>) {
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let mut held_back = state.lock().held_back.subscribe();
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Some(bytes) = some(read, &up) else { return };
                if holds(bytes, "SUBSCRIBE") {
                    wire.lock().which = Which::Inbox;
                }
                let fate = fate_of(bytes, state);
                if matches!(fate, Some(Fate::Kept)) {
                    state.lock().kept = Some((server, bytes.to_vec()));
                    state.lock().hit += 1;
                    return;
                }
                if server.write_all(bytes).await.is_err() {
                    return;
                }
                if let Some(Fate::Unanswered(loss)) = fate {
                    return swallow(client, server, loss, state).await;
                }
            }
            read = server.read(&mut down) => {
                let Some(bytes) = some(read, &down) else { return };
                let which = wire.lock().which;
                // An error means that the proxy is gone.
                if held_back.wait_for(|held| *held != Some(which)).await.is_err() {
                    return;
                }
                if client.write_all(bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Waits for a reply that no caller gets.
async fn swallow(mut client: TcpStream, mut server: TcpStream, loss: Loss, state: &Mutex<State>) {
    let mut reply = vec![0; 65_536];
    if server.read(&mut reply).await.is_ok() {
        state.lock().hit += 1;
    }
    if loss == Loss::Silence {
        while client.read(&mut reply).await.is_ok_and(|length| 0 < length) {}
    }
}

fn some(read: std::io::Result<usize>, bytes: &[u8]) -> Option<&[u8]> {
    read.ok().filter(|length| 0 < *length).map(|length| &bytes[..length])
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// What is to happen to this command, if anything but to be passed.
fn fate_of(bytes: &[u8], state: &Mutex<State>) -> Option<Fate> {
    let mut state = state.lock();
    let (text, times, fate) = state.armed.as_mut()?;
    if !holds(bytes, text) {
        return None;
    }
    let fate = *fate;
    *times -= 1;
    if *times == 0 {
        state.armed = None;
    }
    Some(fate)
}
