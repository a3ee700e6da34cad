//! A way to the server on which things get lost.

use super::server::wait_for;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// After so long a server has nothing more to say: many times as long as it takes for an answer.
const SILENCE: Duration = Duration::from_millis(300);

/// What happens to a question that is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The server takes it, and the connection ends before its answer comes back.
    Unanswered,
    /// The connection ends, and the question stays on its way until it is delivered.
    Kept,
}

#[derive(Default)]
struct State {
    armed: Option<(Vec<u8>, Fate)>,
    kept: Option<(TcpStream, Vec<u8>)>,
    hits: u32,
}

/// Passes bytes between clients and a server until it is told not to.
pub(crate) struct Proxy {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Before the server at this host and port.
    pub(crate) async fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let state = Arc::new(Mutex::new(State::default()));
        let accepting = tokio::spawn(accept(listener, server.to_owned(), Arc::clone(&state)));
        Self { state, address, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("etcd://{}", self.address)
    }

    /// The next question in which this stands meets its fate.
    pub(crate) fn arm(&self, text: &str, fate: Fate) {
        self.state.lock().armed = Some((text.into(), fate));
    }

    /// Waits until so many have.
    pub(crate) async fn until_hit(&self, times: u32) {
        wait_for("the fault", async || (times <= self.state.lock().hits).then_some(())).await;
    }

    /// Delivers what was kept, and waits until the server has said all that it will say to it.
    pub(crate) async fn deliver(&self) {
        let (mut server, question) = self.state.lock().kept.take().expect("a question was kept");
        server.write_all(&question).await.expect("the server listens");
        let (mut said, mut heard) = (vec![0; 4_096], 0);
        while let Ok(Ok(length @ 1..)) = timeout(SILENCE, server.read(&mut said)).await {
            heard += length;
        }
        assert!(0 < heard, "the server answers");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: String, state: Arc<Mutex<State>>) {
    while let Ok((client, _)) = listener.accept().await {
        let (server, state) = (server.clone(), Arc::clone(&state));
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(server).await else { return };
            // What goes wrong here is what a network does.
            let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
            pass(client, server, &state).await;
        });
    }
}

/// Passes bytes both ways until either end is closed or something must be lost.
async fn pass(mut client: TcpStream, mut server: TcpStream, state: &Mutex<State>) {
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Some(bytes) = some(read, &up) else { return };
                let fate = fate_of(bytes, state);
                if fate == Some(Fate::Kept) {
                    let mut state = state.lock();
                    state.kept = Some((server, bytes.to_vec()));
                    state.hits += 1;
                    return;
                }
                if server.write_all(bytes).await.is_err() {
                    return;
                }
                if fate == Some(Fate::Unanswered) {
                    // Its answer, and perhaps something else before it: no caller hears it.
                    let _ = server.read(&mut down).await;
                    state.lock().hits += 1;
                    return;
                }
            }
            read = server.read(&mut down) => {
                let Some(bytes) = some(read, &down) else { return };
                if client.write_all(bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn some(read: std::io::Result<usize>, bytes: &[u8]) -> Option<&[u8]> {
    read.ok().filter(|length| 0 < *length).map(|length| &bytes[..length])
}

/// What is to happen to this question, if anything but to be passed.
fn fate_of(bytes: &[u8], state: &Mutex<State>) -> Option<Fate> {
    let mut state = state.lock();
    let (text, fate) = state.armed.as_ref()?;
    if !bytes.windows(text.len()).any(|part| part == text) {
        return None;
    }
    let fate = *fate;
    state.armed = None;
    Some(fate)
}
