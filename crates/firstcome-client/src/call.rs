//! One call: a request, its repeats, and the answer that counts.
//!
//! # Invariants
//! - A write is repeated only if a second copy has no second effect, or if the service did not get the first copy.
//! - Once a copy of a write may have had its effect, no later failure is told as "nothing was done".

use crate::api_key::ApiKeyRefusal;
use crate::link::{EventLines, Link, Lost, Reply, Sent};
use crate::options::HttpOptions;
use crate::problem::Problem;
use bytes::Bytes;
use firstcome_store::core::id::RequestId;
use firstcome_store::edge::{Stopwatch, draw_pause, draw_secret};
use firstcome_store::{Fault, FaultKind, StoreError};
use http::header::{HeaderName, HeaderValue};
use http::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENCY_BODY: HeaderName = HeaderName::from_static("idempotency-body");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The longest pause before the first repeat. It doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// The longest pause between two repeats, unless the service names a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What a second copy of a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repeat {
    /// It reads again.
    Read,
    /// It has no second effect.
    Harmless,
    /// It may undo what another client has done since the first copy.
    Harmful,
}

/// From whom the idempotency key of a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KeyOf {
    /// The caller of the port. An earlier call may have used it.
    Caller,
    /// This call, if there is one: only its own copies have it.
    Call,
}

/// A request, and what may be done with it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    sent: Sent,
    repeat: Repeat,
    key_of: KeyOf,
    /// How long the service may take in addition, because the request waits there.
    waits: Duration,
    /// How long one answer, and all repeats, may take instead of what the options say.
    limits: Option<(Duration, Duration)>,
}

impl Call {
    /// Reads what is at a path.
    pub(crate) const fn get(path: String) -> Self {
        Self::new(Method::GET, path, Repeat::Read)
    }

    /// Deletes what is at a path; a second copy has no second effect.
    pub(crate) const fn delete(path: String) -> Self {
        Self::new(Method::DELETE, path, Repeat::Harmless)
    }

    /// Deletes what is at a path, and may be there again when a second copy comes.
    pub(crate) const fn delete_once(path: String) -> Self {
        Self::new(Method::DELETE, path, Repeat::Harmful)
    }

    /// Replaces the settings at a path. A second copy would undo what another operator has put since.
    pub(crate) fn put(path: String, body: &impl Serialize) -> Self {
        Self::new(Method::PUT, path, Repeat::Harmful).with_body(body)
    }

    /// Posts to a path, in a way that a second copy has no second effect even without a key.
    pub(crate) fn post(path: String, body: &impl Serialize) -> Self {
        Self::new(Method::POST, path, Repeat::Harmless).with_body(body)
    }

    /// Posts to a path under an idempotency key: that of the caller, or one that is drawn for this call.
    pub(crate) fn post_once(
        path: String,
        body: &impl Serialize,
        request: Option<RequestId>,
    ) -> Result<Self, StoreError> {
        let mut call = Self::post(path, body);
        match request {
            Some(RequestId { key, body }) => {
                call.key_of = KeyOf::Caller;
                call.sent.headers.push((IDEMPOTENCY_KEY, ascii(&format!("{key:032x}"))));
                // The caller knows what the request means; the service would digest the body instead.
                call.sent.headers.push((IDEMPOTENCY_BODY, ascii(&format!("{body:016x}"))));
            }
            None => call.sent.headers.push((IDEMPOTENCY_KEY, ascii(&draw_key()?))),
        }
        Ok(call)
    }

    /// Lets the service take so much longer.
    pub(crate) const fn waiting(mut self, waits: Duration) -> Self {
        self.waits = waits;
        self
    }

    /// Sends it under this idempotency key.
    pub(crate) fn under(self, key: &str) -> Self {
        self.header(IDEMPOTENCY_KEY, ascii(key))
    }

    /// Takes at most `answer` for one answer, and repeats for at most `retry_for`.
    pub(crate) const fn within(mut self, answer: Duration, retry_for: Duration) -> Self {
        self.limits = Some((answer, retry_for));
        self
    }

    /// Adds a header.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.sent.headers.push((name, value));
        self
    }

    const fn new(method: Method, path: String, repeat: Repeat) -> Self {
        Self {
            sent: Sent { method, path, body: None, headers: Vec::new() },
            repeat,
            key_of: KeyOf::Call,
            waits: Duration::ZERO,
            limits: None,
        }
    }

    fn with_body(mut self, body: &impl Serialize) -> Self {
        // Texts, numbers and maps from texts always have a JSON form.
        self.sent.body = Some(Bytes::from(serde_json::to_vec(body).unwrap_or_default()));
        self
    }
}

/// Header values of digits and letters are always valid.
fn ascii(text: &str) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("0"))
}

pub(crate) fn draw_key() -> Result<String, StoreError> {
    let secret = draw_secret().map_err(|fault| StoreError::Faulted(Arc::new(fault)))?;
    Ok(secret[..16].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Makes the error of a service that did nothing.
pub(crate) fn unavailable(kind: FaultKind, says: impl Into<String>) -> StoreError {
    StoreError::Faulted(Arc::new(Fault::new(kind, says)))
}

/// An answer that is final: a yes, or a refusal of any kind.
#[derive(Debug)]
pub(crate) struct CallReply {
    reply: Reply,
    repeat: Repeat,
    key_of: KeyOf,
    /// Whether an earlier copy of the write may have had its effect.
    perhaps_done: bool,
}

impl CallReply {
    /// Whether the service did it.
    pub(crate) fn is_yes(&self) -> bool {
        self.reply.status.is_success()
    }

    pub(crate) const fn status(&self) -> StatusCode {
        self.reply.status
    }

    pub(crate) fn header(&self, name: &HeaderName) -> Option<&HeaderValue> {
        self.reply.headers.get(name)
    }

    /// Whether the effect is that of an earlier call. A copy that this call sent before is none.
    pub(crate) fn is_replayed(&self) -> bool {
        self.key_of == KeyOf::Caller && self.reply.headers.contains_key(REPLAYED)
    }

    /// Whether a copy before the answered one may have had its effect.
    pub(crate) const fn is_perhaps_second(&self) -> bool {
        self.perhaps_done
    }

    /// Reads the body of a yes.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_slice(&self.reply.body).map_err(|_| self.strange())
    }

    /// Returns the bytes of the answer.
    pub(crate) fn body(&self) -> &[u8] {
        &self.reply.body
    }

    /// Returns the refusal; `None` if the answer is none.
    pub(crate) fn problem(&self) -> Option<Problem> {
        if self.is_yes() { None } else { Problem::read(&self.reply) }
    }

    /// The error of an answer that this client does not understand: of a write it proves nothing.
    pub(crate) fn strange(&self) -> StoreError {
        if self.repeat != Repeat::Read {
            return StoreError::Unknown;
        }
        let says = format!("an answer with status {} is none of a firstcome service of this version", self.status());
        unavailable(FaultKind::Unfit, says)
    }

    /// The error of a refusal that is not the decision of a rule that this version understands: mostly the key, the
    /// address or the form of the request.
    pub(crate) fn refused(&self) -> StoreError {
        let Some(problem) = self.problem().filter(|problem| !problem.has_values()) else { return self.strange() };
        if self.perhaps_done {
            return StoreError::Unknown;
        }
        unavailable(FaultKind::Unfit, format!("{REFUSES}{}: {}", problem.code(), problem.detail()))
    }
}

/// How the detail of a refusal begins that is not the decision of a rule.
const REFUSES: &str = "the service refuses the request: ";

/// Returns the refusal if the service answered so, and not a rule: mostly because of the key. It did nothing then. `None` for every
/// other error.
pub fn refusal_of(error: &StoreError) -> Option<ApiKeyRefusal> {
    let StoreError::Faulted(fault) = error else { return None };
    let (code, detail) = fault.detail.strip_prefix(REFUSES)?.split_once(": ")?;
    Some(ApiKeyRefusal { code: code.to_owned(), detail: detail.to_owned() })
}

/// A service, and how it is asked. The store and the locks of a client share one.
#[derive(Debug)]
pub(crate) struct Service {
    link: Link,
    options: HttpOptions,
    turns: Semaphore,
}

/// What one exchange says about the call.
enum Next {
    Done(Reply),
    /// Try again, perhaps after a time that the service named. The error is told if there is no time for that.
    Again(StoreError, Option<Duration>),
}

impl Service {
    pub(crate) const fn new(link: Link, options: HttpOptions) -> Self {
        Self { link, options, turns: Semaphore::const_new(options.requests_max) }
    }

    pub(crate) const fn options(&self) -> &HttpOptions {
        &self.options
    }

    /// Sends a request and its repeats until there is a final answer, or no time.
    pub(crate) async fn call(&self, call: &Call) -> Result<CallReply, StoreError> {
        let watch = Stopwatch::start();
        let HttpOptions { answer_timeout, retry_for, .. } = self.options;
        let (answer_timeout, retry_for) = call.limits.unwrap_or((answer_timeout, retry_for));
        // Renewals never wait behind other requests: their time is short.
        let _turn = if call.waits.is_zero() && call.limits.is_none() { Some(self.turn().await?) } else { None };
        let mut perhaps_done = false;
        let mut pause_max = PAUSE_FIRST;
        loop {
            let within = answer_timeout + call.waits.saturating_sub(watch.elapsed());
            let exchanged = self.link.exchange(&call.sent, within).await;
            let (error, named) = match self.judge(call, exchanged, &mut perhaps_done) {
                Next::Done(reply) => {
                    let Call { repeat, key_of, .. } = *call;
                    return Ok(CallReply { reply, repeat, key_of, perhaps_done });
                }
                Next::Again(error, named) => (if perhaps_done { StoreError::Unknown } else { error }, named),
            };
            if perhaps_done && call.repeat == Repeat::Harmful {
                return Err(error);
            }
            let pause = match named {
                Some(wait) => wait + draw_pause(wait / 2),
                None => draw_pause(pause_max),
            };
            pause_max = (pause_max * 2).min(PAUSE_MAX);
            if retry_for + call.waits < watch.elapsed() + pause {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Opens a stream of events. `None` if the service refuses it, or is not reached: then there are polls.
    pub(crate) async fn listen(&self, path: String) -> Option<EventLines> {
        let sent = Call::get(path).sent;
        self.link.listen(&sent, self.options.answer_timeout).await
    }

    /// Waits until fewer than the allowed number of requests are under way.
    async fn turn(&self) -> Result<tokio::sync::SemaphorePermit<'_>, StoreError> {
        let patience = self.options.retry_for.max(self.options.answer_timeout);
        match tokio::time::timeout(patience, self.turns.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(StoreError::busy(patience)),
        }
    }

    /// Says what an exchange means for the call. Notes in `perhaps_done` if the write may have happened.
    fn judge(&self, call: &Call, exchanged: Result<Reply, Lost>, perhaps_done: &mut bool) -> Next {
        let base = self.link.base();
        let writes = call.repeat != Repeat::Read;
        let reply = match exchanged {
            Ok(reply) => reply,
            Err(Lost::NotSent(says)) => {
                return Next::Again(unavailable(FaultKind::Unreachable, format!("{base}: {says}")), None);
            }
            Err(Lost::Perhaps(says)) => {
                *perhaps_done |= writes;
                return Next::Again(unavailable(FaultKind::Unreachable, format!("{base}: {says}")), None);
            }
        };
        let problem = if reply.status.is_success() { None } else { Problem::read(&reply) };
        match (problem, reply.status.as_u16()) {
            (Some(problem), _) => match problem.passing(base) {
                Some((StoreError::Unknown, wait)) => {
                    *perhaps_done |= writes;
                    Next::Again(unavailable(FaultKind::Unreachable, format!("{base}: {}", problem.detail())), wait)
                }
                Some((error, wait)) => Next::Again(error, wait),
                None => Next::Done(reply),
            },
            // Of a proxy, which may have handed the request on.
            (None, status @ 500..) => {
                *perhaps_done |= writes;
                let says = format!("{base}: an answer with status {status} that is not of the service");
                Next::Again(unavailable(FaultKind::Unreachable, says), None)
            }
            (None, _) => Next::Done(reply),
        }
    }
}
