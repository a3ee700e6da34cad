//! A pooler in transaction mode: one session of the server for all who connect, each transaction by turns.

use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// A connection to the server, once there is one, and how it greeted.
type Session = Mutex<Option<(TcpStream, Vec<u8>)>>;

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
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it has an address").port();
        let (before, database) = url.rsplit_once('/').expect("an address");
        let (user, server) = before.rsplit_once('@').expect("an address");
        let (url, server) = (format!("{user}@127.0.0.1:{port}/{database}"), server.to_owned());
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
