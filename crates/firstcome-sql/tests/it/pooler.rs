//! What may stand between us and a server: a pooler in transaction mode, one session of the server for all who connect, each
//! transaction by turns; and a line that gives two clients each other's sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// A connection to the server, once there is one, and how it greeted.
type Session = Mutex<Option<(TcpStream, Vec<u8>)>>;

/// A port before a server: where to listen, its address there, and where the server is.
async fn before(url: &str) -> (TcpListener, String, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it has an address").port();
    let (head, database) = url.rsplit_once('/').expect("an address");
    let (user, server) = head.rsplit_once('@').expect("an address");
    (listener, format!("{user}@127.0.0.1:{port}/{database}"), server.to_owned())
}

/// Ends with the test.
pub(crate) struct Pooler {
    /// Its address.
    pub(crate) url: String,
    task: JoinHandle<()>,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pooler {
    /// Before a PostgreSQL server that asks for no password.
    pub(crate) async fn start(url: &str) -> Self {
        let (listener, url, server) = before(url).await;
        let session: Arc<Session> = Arc::default();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (session, server) = (Arc::clone(&session), server.clone());
                // An error is the end of either side.
                tokio::spawn(async move { serve(client, &session, &server).await });
            }
        });
        Self { url, task }
    }
}

async fn serve(mut client: TcpStream, session: &Session, server: &str) -> std::io::Result<()> {
    let startup = loop {
        let length = client.read_u32().await?;
        let mut startup = length.to_be_bytes().to_vec();
        startup.resize(length as usize, 0);
        client.read_exact(&mut startup[4..]).await?;
        // The request for TLS has 8 bytes.
        if length != 8 {
            break startup;
        }
        client.write_all(b"N").await?;
    };
    let greeting = {
        let mut session = session.lock().await;
        if session.is_none() {
            let mut stream = TcpStream::connect(server).await?;
            stream.write_all(&startup).await?;
            let (greeting, _) = answer(&mut stream).await?;
            *session = Some((stream, greeting));
        }
        session.as_ref().map(|(_, greeting)| greeting.clone()).unwrap_or_default()
    };
    client.write_all(&greeting).await?;
    loop {
        let mut message = message(&mut client).await?;
        let mut session = session.lock().await;
        let Some((stream, _)) = session.as_mut() else { return Ok(()) };
        // Its turn lasts to the end of its transaction.
        loop {
            if message[0] == b'X' {
                return Ok(());
            }
            stream.write_all(&message).await?;
            let (answer, is_idle) = answer(stream).await?;
            client.write_all(&answer).await?;
            if is_idle {
                break;
            }
            message = self::message(&mut client).await?;
        }
    }
}

/// One message: its kind, its length, and so many bytes.
async fn message(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut head = [0; 5];
    stream.read_exact(&mut head).await?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let mut message = head.to_vec();
    message.resize(1 + length, 0);
    stream.read_exact(&mut message[5..]).await?;
    Ok(message)
}

/// All that comes until the server is ready, and whether no transaction is open then.
async fn answer(stream: &mut TcpStream) -> std::io::Result<(Vec<u8>, bool)> {
    let mut answer = Vec::new();
    loop {
        let message = message(stream).await?;
        answer.extend_from_slice(&message);
        if message[0] == b'Z' {
            return Ok((answer, message[5] == b'I'));
        }
    }
}

/// The ends of all connections, by the order in which they came.
#[derive(Default)]
struct Ends {
    clients: Mutex<Vec<OwnedWriteHalf>>,
    servers: Mutex<Vec<OwnedWriteHalf>>,
    exchanged: AtomicBool,
}

/// A line to a server. Ends with the test.
pub(crate) struct Exchange {
    /// Its address.
    pub(crate) url: String,
    ends: Arc<Ends>,
    task: JoinHandle<()>,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Exchange {
    /// Before a server of either kind.
    pub(crate) async fn start(url: &str) -> Self {
        let (listener, url, server) = before(url).await;
        let ends = Arc::<Ends>::default();
        let own = Arc::clone(&ends);
        let task = tokio::spawn(async move {
            for number in 0.. {
                let Ok((client, _)) = listener.accept().await else { return };
                let Ok(server) = TcpStream::connect(&server).await else { return };
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                own.clients.lock().await.push(to_client);
                own.servers.lock().await.push(to_server);
                tokio::spawn(pass(from_client, number, Arc::clone(&own), |ends| &ends.servers));
                tokio::spawn(pass(from_server, number, Arc::clone(&own), |ends| &ends.clients));
            }
        });
        Self { url, ends, task }
    }

    /// From now on the first two clients have each other's sessions. Nothing may be under way.
    pub(crate) fn exchange(&self) {
        self.ends.exchanged.store(true, Ordering::SeqCst);
    }
}

async fn pass(mut from: OwnedReadHalf, number: usize, ends: Arc<Ends>, to: fn(&Ends) -> &Mutex<Vec<OwnedWriteHalf>>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let exchanged = ends.exchanged.load(Ordering::SeqCst) && number < 2;
        let to_number = if exchanged { 1 - number } else { number };
        if to(&ends).lock().await[to_number].write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
