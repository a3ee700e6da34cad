//! The messages between the holder, the guardian and the gate over their sockets: lines, and open files.

use super::group::{End, Group};
use anyhow::{Context, anyhow, bail};
use rustix::cmsg_space;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::{Pid, Signal};
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Enough for the name of a lock and a fence.
const GO_BYTES_MAX: usize = 256;

/// A message of the holder to the guardian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Ask the group to end at `ask_ns`, kill it at `kill_ns`; ns of [`super::group::now_ns`].
    Until { ask_ns: u64, kill_ns: u64 },
    /// Signal the group.
    Signal(Signal),
    /// The command's group has the terminal, and this group had it before.
    Terminal(Pid),
}

/// A message of the guardian to the holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Report {
    /// The gate has started, in this group.
    Ready(Group),
    /// The guardian has received a deadline.
    Armed,
    /// The command was stopped (SIGSTOP or Ctrl-Z).
    Stopped,
    /// No process of the group is left. `late`: it was ended because the lock was ending.
    Ended { end: End, late: bool },
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until { ask_ns, kill_ns } => writeln!(f, "until {ask_ns} {kill_ns}"),
            Self::Signal(signal) => writeln!(f, "signal {}", signal.as_raw()),
            Self::Terminal(group) => writeln!(f, "terminal {}", group.as_raw_nonzero()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(group) => writeln!(f, "ready {}", group.0.as_raw_nonzero()),
            Self::Armed => writeln!(f, "armed"),
            Self::Stopped => writeln!(f, "stopped"),
            Self::Ended { end: End::Exited(code), late } => writeln!(f, "exited {code} {late}"),
            Self::Ended { end: End::Signalled(signal), late } => writeln!(f, "signalled {signal} {late}"),
        }
    }
}

fn process(text: &str) -> anyhow::Result<Pid> {
    Pid::from_raw(text.parse()?).ok_or_else(|| anyhow!("no process has the number {text}"))
}

impl std::str::FromStr for Order {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        Ok(match words.as_slice() {
            ["until", ask_ns, kill_ns] => Self::Until { ask_ns: ask_ns.parse()?, kill_ns: kill_ns.parse()? },
            ["signal", number] => {
                Self::Signal(Signal::from_named_raw(number.parse()?).ok_or_else(|| anyhow!("no signal {number}"))?)
            }
            ["terminal", group] => Self::Terminal(process(group)?),
            _ => bail!("not an order: {line:?}"),
        })
    }
}

impl std::str::FromStr for Report {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        Ok(match words.as_slice() {
            ["ready", group] => Self::Ready(Group(process(group)?)),
            ["armed"] => Self::Armed,
            ["stopped"] => Self::Stopped,
            ["exited", code, late] => Self::Ended { end: End::Exited(code.parse()?), late: late.parse()? },
            ["signalled", signal, late] => Self::Ended { end: End::Signalled(signal.parse()?), late: late.parse()? },
            _ => bail!("not a report: {line:?}"),
        })
    }
}

/// Sends bytes and two open files.
pub(super) fn send_with_files(socket: &UnixStream, bytes: &[u8], files: [BorrowedFd<'_>; 2]) -> anyhow::Result<()> {
    assert!(bytes.len() <= GO_BYTES_MAX, "more than the other side takes");
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = control.push(SendAncillaryMessage::ScmRights(&files));
    assert!(fits, "the space is for two files");
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::empty())?;
    if sent == bytes.len() { Ok(()) } else { Err(anyhow!("only a part of the message was sent")) }
}

/// Receives a message of [`send_with_files`]; `None` if the other side is gone.
pub(super) fn receive_with_files(socket: &UnixStream) -> anyhow::Result<Option<(Vec<u8>, [OwnedFd; 2])>> {
    let mut bytes = [0; GO_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::empty())?.bytes;
    if received == 0 {
        return Ok(None);
    }
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    for file in &files {
        // Not inherited: the spawn of a process names the files that it gets.
        fcntl_setfd(file, FdFlags::CLOEXEC)?;
    }
    let files = files.try_into().map_err(|_| anyhow!("two files were expected"))?;
    Ok(Some((bytes[..received].to_vec(), files)))
}

/// Returns the socket that this process was given as standard input.
pub(super) fn socket_of_input() -> anyhow::Result<UnixStream> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().context("no standard input")?;
    Ok(UnixStream::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let group = Group(Pid::from_raw(7).expect("a number"));
        for order in
            [Order::Until { ask_ns: 1, kill_ns: u64::MAX }, Order::Signal(Signal::TERM), Order::Terminal(group.0)]
        {
            assert_eq!(order.to_string().parse::<Order>().expect("an order"), order);
        }
        let ends = [End::Exited(3), End::Signalled(9)].map(|end| Report::Ended { end, late: true });
        for report in [Report::Ready(group), Report::Armed, Report::Stopped].into_iter().chain(ends) {
            assert_eq!(report.to_string().parse::<Report>().expect("a report"), report);
        }
        for line in ["", "until 1", "until x 2", "signal 0", "terminal 0", "ready -"] {
            assert!(line.parse::<Order>().is_err() && line.parse::<Report>().is_err(), "{line}");
        }
    }

    #[test]
    fn open_files_go_over_a_socket() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let (mut near, far) = UnixStream::pair().expect("a pair");
        send_with_files(&here, b"words", [far.as_fd(), far.as_fd()]).expect("it is sent");
        drop((here, far));
        let (bytes, [one, other]) = receive_with_files(&there).expect("it is read").expect("it is there");
        assert_eq!(bytes, b"words");
        std::io::Write::write_all(&mut UnixStream::from(one), b"x").expect("it is open");
        drop(other);
        let mut read = Vec::new();
        std::io::Read::read_to_end(&mut near, &mut read).expect("it can be read");
        assert_eq!(read, b"x");
        assert!(receive_with_files(&there).expect("it is read").is_none());
    }
}
