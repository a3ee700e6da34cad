//! As much of an HTTP/1.1 client as the tests need. It tells apart what became of a request that got no whole answer.

use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Status line and headers.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The values of a header, in their order.
    pub(crate) fn headers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        pairs.filter(move |(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The code of a problem; empty for everything else.
    pub(crate) fn code(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        body["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// Why there is no whole answer.
#[derive(Debug)]
#[expect(dead_code, reason = "the causes are shown when a test fails")]
pub(crate) enum Lost {
    /// No caller listens: the request never left.
    Unsent(io::Error),
    /// The connection ended before the first byte of an answer: the request may or may not have had its effect.
    Unanswered(io::Error),
    /// The answer broke off. No proper end of the service does this.
    Truncated(String),
}

/// One caller with one connection that it keeps, and makes anew when it is closed.
pub(crate) struct Client {
    address: SocketAddr,
    key: Option<String>,
    stream: Option<TcpStream>,
}

impl Client {
    /// A caller that sends no key.
    pub(crate) const fn new(address: SocketAddr) -> Self {
        Self { address, key: None, stream: None }
    }

    /// The same with a key.
    pub(crate) fn with_key(address: SocketAddr, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..Self::new(address) }
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn try_call(
        &mut self,
        method: &str,
        path: &str,
        idempotency_key: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Answer, Lost> {
        let request = self.spell(method, path, idempotency_key, body);
        let mut stream = self.connect()?;
        stream.write_all(&request).map_err(Lost::Unanswered)?;
        let (answer, keep) = read_answer(&mut stream)?;
        if keep {
            self.stream = Some(stream);
        }
        Ok(answer)
    }

    /// [`Self::try_call`] where nothing may go wrong.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.try_call(method, path, None, body).unwrap_or_else(|lost| panic!("{method} {path}: {lost:?}"))
    }

    /// Reads.
    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.call("GET", path, None)
    }

    /// Claims for a user.
    pub(crate) fn claim(&mut self, coupon: &str, user: &str, idempotency_key: Option<&str>) -> Result<Answer, Lost> {
        let body = serde_json::json!({"user": user});
        self.try_call("POST", &format!("/v1/coupons/{coupon}/claims"), idempotency_key, Some(&body))
    }

    /// Makes a coupon.
    #[track_caller]
    pub(crate) fn put_coupon(&mut self, coupon: &str, limit: u64) {
        let body = serde_json::json!({"limit": limit});
        let answer = self.call("PUT", &format!("/v1/coupons/{coupon}"), Some(&body));
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    /// The status of a PUT.
    #[track_caller]
    pub(crate) fn put_status(&mut self, path: &str, body: &Value) -> u16 {
        self.call("PUT", path, Some(body)).status
    }

    /// All claims of a coupon, page by page.
    #[track_caller]
    pub(crate) fn claims(&mut self, coupon: &str) -> Vec<Value> {
        let mut claims = Vec::new();
        let mut after = 0;
        loop {
            let answer = self.get(&format!("/v1/coupons/{coupon}/claims?after={after}&limit=1000"));
            assert_eq!(answer.status, 200, "{}", answer.text());
            let page = answer.json();
            claims.extend(page["items"].as_array().expect("a page has items").iter().cloned());
            match page["next"].as_u64() {
                Some(next) => after = next,
                None => return claims,
            }
        }
    }

    fn connect(&mut self) -> Result<TcpStream, Lost> {
        if let Some(stream) = self.stream.take() {
            return Ok(stream);
        }
        let stream = TcpStream::connect(self.address).map_err(Lost::Unsent)?;
        stream.set_nodelay(true).map_err(Lost::Unsent)?;
        stream.set_read_timeout(Some(super::PATIENCE)).map_err(Lost::Unsent)?;
        Ok(stream)
    }

    fn spell(&self, method: &str, path: &str, idempotency_key: Option<&str>, body: Option<&Value>) -> Vec<u8> {
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.address);
        if let Some(key) = &self.key {
            text.push_str(&format!("authorization: Bearer {key}\r\n"));
        }
        if let Some(key) = idempotency_key {
            text.push_str(&format!("idempotency-key: {key}\r\n"));
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        if !body.is_empty() {
            text.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
        }
        (text + "\r\n" + &body).into_bytes()
    }
}

/// Reads one answer, and says whether the connection stays open.
pub(crate) fn read_answer(stream: &mut TcpStream) -> Result<(Answer, bool), Lost> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        if let Some((answer, keep)) = whole(&bytes) {
            return Ok((answer, keep));
        }
        let ended = match stream.read(&mut chunk) {
            Ok(0) => io::ErrorKind::UnexpectedEof.into(),
            Ok(count) => {
                bytes.extend_from_slice(&chunk[..count]);
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => error,
        };
        return Err(match bytes.as_slice() {
            [] => Lost::Unanswered(ended),
            part => Lost::Truncated(format!("{ended}: {}", String::from_utf8_lossy(part))),
        });
    }
}

fn whole(bytes: &[u8]) -> Option<(Answer, bool)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let spelt = std::str::from_utf8(&bytes[..end]).ok()?;
    let head = spelt.to_ascii_lowercase();
    let header = |name: &str| Some(head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim());
    let length: usize = header("content-length").map_or(Some(0), |text| text.parse().ok())?;
    let body = bytes.get(end + 4..end + 4 + length)?.to_vec();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((Answer { status, head: spelt.to_owned(), body }, header("connection") != Some("close")))
}
