//! The least that a hand-over in order on one Redis can cost: a lower bound, and no lock to use.
//!
//! One script releases the lock and grants it to the first in line, with a fence, and one message notifies that waiter.
//! A process has one connection for commands and one for messages. There are no renewals, no heartbeats and no recovery:
//! a message that is lost is never sent again.

use anyhow::{Context, bail};
use firstcome::redis::Script;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

/// Takes the lock if it is free, and joins the line otherwise. Returns the fence, or 0 in line.
static ACQUIRE: Script = Script::new(
    "if redis.call('EXISTS', KEYS[1]) == 0 then
       local fence = redis.call('INCR', KEYS[3])
       redis.call('SET', KEYS[1], ARGV[1], 'PX', 30000)
       return fence
     end
     redis.call('RPUSH', KEYS[2], ARGV[1])
     return 0",
);
/// Grants the lock to the first in line.
static RELEASE: Script = Script::new(
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
     local next = redis.call('LPOP', KEYS[2])
     if not next then redis.call('DEL', KEYS[1]) return 0 end
     local fence = redis.call('INCR', KEYS[3])
     redis.call('SET', KEYS[1], next, 'PX', 30000)
     redis.call('PUBLISH', 'bare:' .. string.match(next, '^[^:]+'), next .. ' ' .. fence)
     return fence",
);

/// Leaves the line. A grant that came meanwhile stays.
static LEAVE: Script = Script::new("return redis.call('LREM', KEYS[2], 1, ARGV[1])");

/// A value of the protocol, as far as these scripts use it.
#[derive(Debug)]
enum Answer {
    Number(i64),
    Text(String),
    Items(Vec<Self>),
}

/// Reads a value from the front of the bytes. Returns it and its length, or `None` if it is not complete.
fn parse(bytes: &[u8]) -> anyhow::Result<Option<(Answer, usize)>> {
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[1..end])?;
    let mut at = end + 2;
    let answer = match bytes[0] {
        b':' => Answer::Number(head.parse()?),
        b'+' => Answer::Text(head.to_owned()),
        b'$' => {
            let length: usize = head.parse()?;
            let Some(text) = bytes.get(at..at + length) else { return Ok(None) };
            at += length + 2;
            Answer::Text(std::str::from_utf8(text)?.to_owned())
        }
        b'*' => {
            let mut items = Vec::new();
            for _ in 0..head.parse()? {
                let Some((item, length)) =
                    bytes.get(at..).filter(|rest| !rest.is_empty()).map(parse).transpose()?.flatten()
                else {
                    return Ok(None);
                };
                items.push(item);
                at += length;
            }
            Answer::Items(items)
        }
        _ => bail!("Redis says {head}"),
    };
    Ok((at <= bytes.len()).then_some((answer, at)))
}

fn write(command: &mut Vec<u8>, parts: &[&str]) {
    command.extend_from_slice(format!("*{}\r\n", parts.len()).as_bytes());
    for part in parts {
        command.extend_from_slice(format!("${}\r\n{part}\r\n", part.len()).as_bytes());
    }
}

/// Passes every value of a connection on, until the connection ends.
async fn read_all(mut from: OwnedReadHalf, mut take: impl FnMut(Answer)) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    loop {
        while !bytes.is_empty()
            && let Some((answer, length)) = parse(&bytes)?
        {
            bytes.drain(..length);
            take(answer);
        }
        if from.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    }
}

/// Writes the commands that wait in one piece.
async fn write_all(mut to: OwnedWriteHalf, mut commands: mpsc::UnboundedReceiver<Vec<u8>>) -> anyhow::Result<()> {
    while let Some(mut bytes) = commands.recv().await {
        while let Ok(more) = commands.try_recv() {
            bytes.extend(more);
        }
        to.write_all(&bytes).await?;
    }
    Ok(())
}

type Answers = Arc<Mutex<VecDeque<oneshot::Sender<Answer>>>>;
type Grants = Arc<Mutex<HashMap<u64, oneshot::Sender<u64>>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns host and port of a plain address. The bare hand-over neither logs in nor selects a database.
pub(super) fn host_of(url: &str) -> Option<&str> {
    url.strip_prefix("redis://").filter(|host| !host.contains(['@', '/']))
}

/// The bare hand-over of one process.
pub(super) struct BareLocks {
    commands: mpsc::UnboundedSender<Vec<u8>>,
    answers: Answers,
    grants: Grants,
    drawn: Mutex<u64>,
}

/// A held lock.
pub(super) struct BareHold {
    name: String,
    number: u64,
    pub(super) fence: u64,
}

impl BareLocks {
    /// Connects, loads the scripts, and subscribes to the messages of this process.
    pub(super) async fn open(url: &str) -> anyhow::Result<Self> {
        let address = host_of(url).context("the bare hand-over needs redis://host:port")?;
        let (line, inbox) = (TcpStream::connect(address).await?, TcpStream::connect(address).await?);
        line.set_nodelay(true)?;
        inbox.set_nodelay(true)?;
        let (from_line, to_line) = line.into_split();
        let (from_inbox, mut to_inbox) = inbox.into_split();
        let (commands, to_send) = mpsc::unbounded_channel();
        let (answers, grants) = (Answers::default(), Grants::default());
        let (waiting, granted) = (Arc::clone(&answers), Arc::clone(&grants));
        tokio::spawn(write_all(to_line, to_send));
        tokio::spawn(read_all(from_line, move |answer| {
            if let Some(caller) = lock(&waiting).pop_front() {
                // The caller may have dropped its future.
                let _ = caller.send(answer);
            }
        }));
        let mut subscribe = Vec::new();
        write(&mut subscribe, &["SUBSCRIBE", &format!("bare:{}", std::process::id())]);
        to_inbox.write_all(&subscribe).await?;
        tokio::spawn(async move {
            // Dropping this half would end the connection.
            let _writes = to_inbox;
            read_all(from_inbox, move |message| {
                let Some((number, fence)) = grant_of(&message) else { return };
                if let Some(waiter) = lock(&granted).remove(&number) {
                    // The waiter may have dropped its future.
                    let _ = waiter.send(fence);
                }
            })
            .await
        });
        let bare = Self { commands, answers, grants, drawn: Mutex::default() };
        for script in [&ACQUIRE, &RELEASE, &LEAVE] {
            bare.ask(&["SCRIPT", "LOAD", script.source()]).await?;
        }
        Ok(bare)
    }

    async fn ask(&self, parts: &[&str]) -> anyhow::Result<Answer> {
        let (caller, answer) = oneshot::channel();
        let mut command = Vec::with_capacity(256);
        write(&mut command, parts);
        {
            // Under one lock, so that answers belong to their commands.
            let mut answers = lock(&self.answers);
            answers.push_back(caller);
            self.commands.send(command).context("the connection has ended")?;
        }
        answer.await.context("the connection has ended")
    }

    async fn run(&self, script: &Script, name: &str, number: u64) -> anyhow::Result<i64> {
        let keys = ["h", "q", "n"].map(|kind| format!("bare:{kind}:{name}"));
        let request = format!("{}:{number}", std::process::id());
        match self.ask(&["EVALSHA", script.sha1(), "3", &keys[0], &keys[1], &keys[2], &request]).await? {
            Answer::Number(number) => Ok(number),
            other => bail!("unexpected answer {other:?}"),
        }
    }

    /// Acquires the lock, or returns `None` when the time is over.
    pub(super) async fn acquire(&self, name: &str, wait: Duration) -> anyhow::Result<Option<BareHold>> {
        let number = {
            let mut drawn = lock(&self.drawn);
            *drawn += 1;
            *drawn
        };
        let (waiter, granted) = oneshot::channel();
        lock(&self.grants).insert(number, waiter);
        let hold = |fence| Some(BareHold { name: name.to_owned(), number, fence });
        match self.run(&ACQUIRE, name, number).await? {
            0 => match tokio::time::timeout(wait, granted).await {
                Ok(fence) => Ok(hold(fence?)),
                Err(_) => {
                    self.run(&LEAVE, name, number).await?;
                    self.run(&RELEASE, name, number).await?;
                    Ok(None)
                }
            },
            fence => {
                lock(&self.grants).remove(&number);
                Ok(hold(fence.try_into()?))
            }
        }
    }

    pub(super) async fn release(&self, held: BareHold) -> anyhow::Result<()> {
        match self.run(&RELEASE, &held.name, held.number).await? {
            -1 => bail!("the lock was not held"),
            _ => Ok(()),
        }
    }
}

/// Reads the message `PROCESS:NUMBER FENCE`. Returns number and fence.
fn grant_of(message: &Answer) -> Option<(u64, u64)> {
    let Answer::Items(items) = message else { return None };
    let [Answer::Text(kind), _, Answer::Text(text)] = items.as_slice() else { return None };
    let (request, fence) = text.split_once(' ').filter(|_| kind == "message")?;
    Some((request.split_once(':')?.1.parse().ok()?, fence.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_only_when_it_is_complete() {
        let message = b"*3\r\n$7\r\nmessage\r\n$6\r\nbare:1\r\n$6\r\n1:7 42\r\n";
        for length in 1..message.len() {
            assert!(parse(&message[..length]).unwrap().is_none(), "{length}");
        }
        let two = [&message[..], b":5\r\n"].concat();
        let (answer, length) = parse(&two).unwrap().unwrap();
        assert_eq!((grant_of(&answer), length), (Some((7, 42)), message.len()));
        assert!(parse(b"-ERR no\r\n").is_err());
    }

    #[test]
    fn only_a_plain_address_is_used() {
        assert_eq!(host_of("redis://127.0.0.1:6379"), Some("127.0.0.1:6379"));
        for other in ["redis://user:password@host:1", "redis://host:1/3", "redis+unix:///socket"] {
            assert_eq!(host_of(other), None, "{other}");
        }
    }
}
