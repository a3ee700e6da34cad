//! A proxy that loses answers: it hands requests on, and cuts the connection instead of handing back an answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The proxy. It hands on everything unless it is told to lose answers.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    orders: Arc<Orders>,
}

/// What becomes of the next answers.
#[derive(Default)]
struct Orders {
    loses: AtomicUsize,
    lost: AtomicUsize,
    swallows: AtomicUsize,
}

/// Counts one down, and tells whether there was one.
fn takes_one(count: &AtomicUsize) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl Proxy {
    pub(crate) async fn before(service: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let orders = Arc::<Orders>::default();
        let obeyed = Arc::clone(&orders);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(hand_on(client, service, Arc::clone(&obeyed)));
            }
        });
        Self { address, orders }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Loses the next answers.
    pub(crate) fn lose(&self, answers: usize) {
        self.orders.loses.store(answers, Ordering::SeqCst);
    }

    /// Keeps the next answers to itself, and the connections open.
    pub(crate) fn swallow(&self, answers: usize) {
        self.orders.swallows.store(answers, Ordering::SeqCst);
    }

    /// How many answers were lost so far.
    pub(crate) fn lost(&self) -> usize {
        self.orders.lost.load(Ordering::SeqCst)
    }
}

async fn hand_on(mut client: TcpStream, service: SocketAddr, orders: Arc<Orders>) {
    let Ok(mut server) = TcpStream::connect(service).await else { return };
    let (mut from_client, mut from_server) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => match read {
                Ok(count @ 1..) => if server.write_all(&from_client[..count]).await.is_err() { return },
                _ => return,
            },
            read = server.read(&mut from_server) => match read {
                Ok(count @ 1..) => {
                    if takes_one(&orders.loses) {
                        orders.lost.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                    if takes_one(&orders.swallows) {
                        continue;
                    }
                    if client.write_all(&from_server[..count]).await.is_err() { return }
                }
                _ => return,
            },
        }
    }
}

/// Waits until this holds.
pub(crate) async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    tokio::time::timeout(Duration::from_secs(30), async {
        while !holds().await {
            ticks.tick().await;
        }
    })
    .await
    .expect("it happens in time");
}
