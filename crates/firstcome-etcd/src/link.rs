//! The link to etcd: one connection to any server that answers, opened again whenever it is lost.

use super::address::{Address, Login};
use super::error::{EtcdError, Judged, Sent, judge};
use super::messages::{
    AuthenticateRequest, AuthenticateResponse, Compare, DeleteRangeRequest, Op, PutRequest, StatusRequest,
    StatusResponse, TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};
use super::{Counts, EtcdOptions};
use firstcome_store::address::Host;
use firstcome_tls::Trust;
use http::uri::PathAndQuery;
use parking_lot::Mutex;
use prost::Message;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";
pub(crate) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(crate) const LEASE_REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
/// A stream in etcd's API. This client sends one request, reads one answer and closes it, like any other call. So there is no
/// state to lose with a connection.
pub(crate) const LEASE_KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// The first version in which clients choose the numbers of watches.
const VERSION_MIN: (u32, u32) = (3, 4);
/// The time between two pings of a connection that waits for an answer. A server disconnects clients that ping more often
/// than every 5 s.
const PING: Duration = Duration::from_secs(10);

/// A link to the servers of one cluster. Clones share it.
#[derive(Clone)]
pub struct EtcdLink {
    shared: Arc<Shared>,
}

firstcome_core::debug_by_name!(EtcdLink);

struct Shared {
    servers: Vec<(Host, Endpoint)>,
    login: Option<Login>,
    connect_timeout: Duration,
    answer_timeout: Duration,
    line: Mutex<Option<EtcdConnection>>,
    /// Locked by the task that connects: other tasks wait for its result.
    connecting: tokio::sync::Mutex<()>,
    /// The server to try first.
    first: AtomicUsize,
    /// The number of the last connection that was given up.
    given_up: watch::Sender<u64>,
    requests: AtomicU64,
    connects: AtomicU64,
    pub(super) wakes: AtomicU64,
}

/// One connection to a server.
#[derive(Clone)]
struct EtcdConnection {
    number: u64,
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
}

impl EtcdLink {
    /// Makes a link from an address. Sends nothing.
    pub(crate) fn new(url: &str, options: &EtcdOptions) -> Result<Self, EtcdError> {
        let Address { hosts, login, tls } = Address::read(url)?;
        let servers = hosts.into_iter().map(|host| {
            let scheme = if tls.is_some() { "https" } else { "http" };
            let endpoint = Endpoint::from_shared(format!("{scheme}://{host}"))
                .map_err(|_| EtcdError::broken(format!("{host} is not a host and a port")))?;
            let endpoint = match &tls {
                Some(trust) => endpoint
                    .tls_config(secured(trust))
                    .map_err(|error| EtcdError::broken(format!("TLS to {host} cannot be set up: {}", chain(&error))))?,
                None => endpoint,
            };
            let endpoint = endpoint.connect_timeout(options.connect_timeout).tcp_nodelay(true);
            Ok((host, endpoint.http2_keep_alive_interval(PING).keep_alive_timeout(options.answer_timeout)))
        });
        let shared = Shared {
            servers: servers.collect::<Result<_, EtcdError>>()?,
            login,
            connect_timeout: options.connect_timeout,
            answer_timeout: options.answer_timeout,
            line: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            first: AtomicUsize::default(),
            given_up: watch::Sender::new(0),
            requests: AtomicU64::default(),
            connects: AtomicU64::default(),
            wakes: AtomicU64::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Creates a key if it is absent, and returns the revision that created it. One round trip. Benchmarks use it: it is the
    /// least that taking a lock must cost.
    ///
    /// Fails with [`EtcdError::Unknown`] if etcd may have created the key.
    pub async fn create(&self, key: &[u8], value: &[u8]) -> Result<Option<i64>, EtcdError> {
        let put = Op::Put(PutRequest { key: key.to_vec(), value: value.to_vec(), lease: 0 });
        let absent = Compare::created(key, 0);
        let told =
            self.transact(TxnRequest { compare: vec![absent], success: vec![put.into()], failure: vec![] }).await?;
        Ok(told.succeeded.then(|| told.revision()))
    }

    /// Deletes a key if this revision created it, and returns whether it did. One round trip: the least that a release must cost.
    ///
    /// Fails with [`EtcdError::Unknown`] if etcd may have deleted the key.
    pub async fn delete(&self, key: &[u8], created: i64) -> Result<bool, EtcdError> {
        let delete = Op::Delete(DeleteRangeRequest { key: key.to_vec() });
        let same = Compare::created(key, created);
        let told =
            self.transact(TxnRequest { compare: vec![same], success: vec![delete.into()], failure: vec![] }).await?;
        Ok(told.succeeded)
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Shared { requests, connects, wakes, .. } = &*self.shared;
        Counts { requests: read(requests), wakes: read(wakes), connects: read(connects) }
    }

    pub(crate) fn count_wake(&self) {
        self.shared.wakes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn answer_timeout(&self) -> Duration {
        self.shared.answer_timeout
    }

    /// Returns a receiver that changes whenever a connection is given up.
    pub(crate) fn given_up(&self) -> watch::Receiver<u64> {
        self.shared.given_up.subscribe()
    }

    pub(crate) async fn transact(&self, transaction: TxnRequest) -> Result<TxnResponse, EtcdError> {
        self.call(TXN, transaction, Sent::Write, self.shared.answer_timeout).await
    }

    /// Refuses a server that is too old. Asks one server after the other until one answers.
    pub(crate) async fn check_version(&self) -> Result<(), EtcdError> {
        let mut left = self.shared.servers.len();
        loop {
            let told = self.call(STATUS, StatusRequest {}, Sent::Read, self.shared.answer_timeout).await;
            left = left.saturating_sub(1);
            match told {
                Ok(StatusResponse { version }) if is_new_enough(&version) => return Ok(()),
                Ok(StatusResponse { version }) => {
                    return Err(EtcdError::broken(format!("it is version {version}, and 3.4 or later is needed")));
                }
                // Newer servers, 3.6.9 for one, tell only a root user their version. The lease shows next what the user may do.
                Err(error) if error.is_denied() => return Ok(()),
                Err(error) if left == 0 || !error.may_pass() => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Sends a request; once more with a new token if the old one has expired.
    pub(crate) async fn call<Q, A>(
        &self,
        path: &'static str,
        question: Q,
        sent: Sent,
        limit: Duration,
    ) -> Result<A, EtcdError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut renewed = false;
        loop {
            let line = self.line().await?;
            self.shared.requests.fetch_add(1, Ordering::Relaxed);
            let asked = timeout(limit, line.ask(path, question.clone())).await;
            let judged = match asked {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => judge(&status, sent),
                Err(_) => Judged::Elsewhere(EtcdError::late(sent)),
            };
            match judged {
                Judged::Final(error) => return Err(error),
                Judged::Elsewhere(error) => {
                    self.give_up(line.number, Next::Another);
                    return Err(error);
                }
                Judged::TokenOver if renewed => {
                    return Err(EtcdError::broken("etcd refuses a token that it has just issued"));
                }
                Judged::TokenOver => {
                    // A new connection gets a new token.
                    self.give_up(line.number, Next::Same);
                    renewed = true;
                }
            }
        }
    }

    /// Opens a stream of watches. It may return only after the first watch is requested.
    pub(crate) async fn watch(
        &self,
        orders: mpsc::UnboundedReceiver<WatchRequest>,
    ) -> Result<Streaming<WatchResponse>, EtcdError> {
        let line = self.line().await?;
        let mut grpc = line.ready().await.map_err(|status| EtcdError::unreachable(status.message()))?;
        let request = line.request(UnboundedReceiverStream::new(orders));
        let path = PathAndQuery::from_static(WATCH);
        match grpc.streaming(request, path, ProstCodec::default()).await {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => {
                self.give_up(line.number, Next::Another);
                Err(EtcdError::unreachable(status.message()))
            }
        }
    }

    /// Gives a connection up. Requests that still use it may finish.
    fn give_up(&self, number: u64, next: Next) {
        let mut current = self.shared.line.lock();
        if current.as_ref().is_some_and(|line| line.number == number) {
            *current = None;
            if next == Next::Another {
                self.shared.first.fetch_add(1, Ordering::Relaxed);
            }
            self.shared.given_up.send_replace(number);
        }
    }

    async fn line(&self) -> Result<EtcdConnection, EtcdError> {
        if let Some(line) = self.shared.line.lock().clone() {
            return Ok(line);
        }
        let _alone = self.shared.connecting.lock().await;
        if let Some(line) = self.shared.line.lock().clone() {
            return Ok(line);
        }
        let line = self.shared.connect().await?;
        *self.shared.line.lock() = Some(line.clone());
        Ok(line)
    }
}

/// Which server to try next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Same,
    Another,
}

impl Shared {
    /// Connects to the first server that can be reached and accepts the login.
    async fn connect(&self) -> Result<EtcdConnection, EtcdError> {
        let first = self.first.load(Ordering::Relaxed);
        let mut failed = EtcdError::broken("the address names no server");
        for turn in 0..self.servers.len() {
            let at = first.wrapping_add(turn);
            let Some((host, endpoint)) = self.servers.get(at % self.servers.len()) else { continue };
            match self.connect_to(host, endpoint).await {
                Ok(line) => {
                    self.first.store(at, Ordering::Relaxed);
                    return Ok(line);
                }
                // What one server reports about the user or the version is true of the whole cluster.
                Err(error @ EtcdError::Broken { .. }) => return Err(error),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    async fn connect_to(&self, host: &Host, endpoint: &Endpoint) -> Result<EtcdConnection, EtcdError> {
        let unreachable = |says: String| {
            EtcdError::unreachable(format!(
                "no etcd answers at {host} ({says}); check that it runs, and the address and the firewall between"
            ))
        };
        let channel = match timeout(self.connect_timeout, endpoint.connect()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => {
                return Err(match firstcome_tls::explain(&error) {
                    // The text about a handshake already says what to do.
                    Some(says) => EtcdError::unreachable(format!("no etcd answers at {host}: {says}")),
                    None if is_cut_off(&error) => unreachable(perhaps_plain(endpoint, chain(&error))),
                    None => unreachable(chain(&error)),
                });
            }
            Err(_) => return Err(unreachable(perhaps_plain(endpoint, "no connection in time".to_owned()))),
        };
        let number = self.connects.fetch_add(1, Ordering::Relaxed) + 1;
        let mut line = EtcdConnection { number, channel, token: None };
        let Some(Login { user, password }) = &self.login else { return Ok(line) };
        let login = AuthenticateRequest { name: user.clone(), password: password.clone() };
        let told = timeout(self.answer_timeout, line.ask::<_, AuthenticateResponse>(AUTHENTICATE, login)).await;
        match told {
            Ok(Ok(AuthenticateResponse { token })) => {
                let unreadable = |_| EtcdError::broken("the token of etcd is not a valid header");
                line.token = Some(MetadataValue::try_from(token).map_err(unreadable)?);
            }
            // The cluster has no logins. etcd's own clients accept that too.
            Ok(Err(status)) if status.code() == Code::FailedPrecondition => {}
            Ok(Err(status)) => match judge(&status, Sent::Read) {
                Judged::Final(error) => return Err(error),
                _ => return Err(unreachable(status.message().to_owned())),
            },
            Err(_) => return Err(unreachable("no answer in time".to_owned())),
        }
        Ok(line)
    }
}

fn is_new_enough(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    version.is_some_and(|version| VERSION_MIN <= version)
}

/// Certificate and name of each server are checked, against the authorities that are trusted.
fn secured(trust: &Trust) -> ClientTlsConfig {
    firstcome_tls::install_provider();
    let config = ClientTlsConfig::new();
    let config = match trust.ca_pem() {
        Some(ca) => config.ca_certificate(Certificate::from_pem(ca)),
        None => config.with_native_roots(),
    };
    match trust.identity() {
        Some(own) => config.identity(Identity::from_pem(own.certificate_pem(), own.key_pem())),
        None => config,
    }
}

/// Returns whether the server ended a connection before it could be used.
fn is_cut_off(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            let ends = [
                ErrorKind::UnexpectedEof,
                ErrorKind::ConnectionReset,
                ErrorKind::ConnectionAborted,
                ErrorKind::BrokenPipe,
            ];
            return ends.contains(&error.kind());
        }
        next = error.source();
    }
    false
}

/// Adds to an error what it may mean where TLS is demanded. etcd without TLS takes a handshake for a broken request, and closes the
/// connection; other servers wait for the rest of it.
fn perhaps_plain(endpoint: &Endpoint, says: String) -> String {
    match endpoint.uri().scheme_str() {
        Some("https") => format!("{says}; the server may offer no TLS at this port"),
        _ => says,
    }
}

/// Joins an error and its causes: the last cause usually says most. Says once what several of them say.
fn chain(error: &dyn std::error::Error) -> String {
    let mut says = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !says.contains(&text) {
            says.push_str(&format!(": {text}"));
        }
        cause = error.source();
    }
    says
}

impl EtcdConnection {
    async fn ready(&self) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(chain(&error)))?;
        Ok(grpc)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        // Lets a server that has no leader refuse the request, instead of letting it wait.
        metadata.insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            metadata.insert("token", token.clone());
        }
        request
    }

    async fn ask<Q, A>(&self, path: &'static str, question: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.ready().await?;
        let path = PathAndQuery::from_static(path);
        Ok(grpc.unary(self.request(question), path, ProstCodec::default()).await?.into_inner())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_are_compared_by_their_numbers() {
        for (version, fits) in
            [("3.4.23", true), ("3.10.0", true), ("4.0.0-rc.1", true), ("3.3.27", false), ("2.9", false), ("", false)]
        {
            assert_eq!(super::is_new_enough(version), fits, "{version}");
        }
    }
}
