//! A hub, ways from it to networks of processes, and rules in it by which packets are thrown away.

use super::{PATIENCE, Stdio, timeout};
use std::fmt::Write as _;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Which packets between a process and a server are thrown away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lost {
    /// Those to the server: it hears nothing.
    Requests,
    /// Those from it: it does what it is told, and no process learns of it.
    Answers,
    /// Both.
    Both,
}

/// A process and a server between which something is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    pub(super) place: Partition,
    pub(super) port: u16,
    pub(super) lost: Lost,
}

/// A process in its network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Partition(u8);

impl Partition {
    /// Where nothing leads to yet.
    pub(super) const NOWHERE: Self = Self(0);

    fn address(self) -> String {
        format!("10.77.{}.2", self.0)
    }

    /// Where the hub is, seen from there.
    pub(super) fn hub(self) -> String {
        format!("10.77.{}.1", self.0)
    }
}

/// The network of this process, which must be one that no other process has.
pub(super) struct Network {
    places: u8,
}

/// One set of pairs for each direction. Each change of both is one step.
const RULES: &str = "
    table ip cut {
        set requests { type ipv4_addr . inet_service; }
        set answers { type ipv4_addr . inet_service; }
        chain input { type filter hook input priority 0; ip saddr . tcp dport @requests counter drop; }
        chain output { type filter hook output priority 0; ip daddr . tcp sport @answers counter drop; }
    }";

/// Runs a program with this on its input; what it says.
async fn run(command: &str, input: &str) -> String {
    let mut words = command.split(' ');
    let mut program = Command::new(words.next().expect("a program"));
    program.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = program.spawn().expect("it runs");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).await.expect("it reads");
    let ended = timeout(PATIENCE, child.wait_with_output()).await.unwrap_or_else(|_| panic!("{command} hangs"));
    let ended = ended.expect("it ends");
    assert!(ended.status.success(), "{command}: {input}");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

impl Network {
    pub(super) async fn begin() -> Self {
        run("ip link set lo up", "").await;
        run("nft -f -", RULES).await;
        Self { places: 0 }
    }

    /// Leads a way to the network of a process. It is gone when the process is.
    pub(super) async fn join(&mut self, process: u32) -> Partition {
        self.places = self.places.checked_add(1).expect("not so many processes");
        let (place, number) = (Partition(self.places), self.places);
        run(&format!("ip link add to{number} type veth peer name hub netns {process}"), "").await;
        run(&format!("ip addr add {}/24 dev to{number}", place.hub()), "").await;
        run(&format!("ip link set to{number} up"), "").await;
        run(&format!("nsenter -t {process} -n ip addr add {}/24 dev hub", place.address()), "").await;
        run(&format!("nsenter -t {process} -n ip link set hub up"), "").await;
        place
    }

    /// From now on this is lost, and nothing else.
    pub(super) async fn cut(&self, cuts: &[Cut]) {
        let mut rules = "flush set ip cut requests\nflush set ip cut answers\n".to_owned();
        for Cut { place, port, lost } in cuts {
            for (set, spared) in [("requests", Lost::Answers), ("answers", Lost::Requests)] {
                if *lost != spared {
                    let _ = writeln!(rules, "add element ip cut {set} {{ {} . {port} }}", place.address());
                }
            }
        }
        run("nft -f -", &rules).await;
    }

    /// How many packets were lost, to servers and from them.
    pub(super) async fn lost(&self) -> (u64, u64) {
        let listed = run("nft list table ip cut", "").await;
        let packets = |set: &str| {
            let rule = listed.lines().find(|line| line.contains(set) && line.contains("packets"));
            let count = rule.and_then(|rule| rule.split_once("packets ")?.1.split(' ').next()?.parse().ok());
            count.unwrap_or_else(|| panic!("{listed}"))
        };
        (packets("@requests"), packets("@answers"))
    }
}
