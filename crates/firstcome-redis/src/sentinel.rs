//! Watches who the primary is, as its sentinels say.
//!
//! One connection asks each sentinel, at the ping interval and whenever the sentinel announces a change. The answer
//! with the newest `config-epoch` counts. So a sentinel that was cut off together with an old primary does not lead
//! back to it.

use super::address::{Credentials, Host};
use super::error::OpenError;
use super::socket::{Backoff, Connector, Socket, Times};
use firstcome_store::edge::Stopwatch;
use redis::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// How many times, multiplied by the number of sentinels, they must report an older epoch, and no newer one, before it
/// is believed. That happens when an operator sets up all sentinels again.
const ROUNDS: usize = 10;

/// A primary, and the epoch in which it was named.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Named {
    host: Host,
    epoch: u64,
}

/// The last answer of a sentinel.
#[derive(Clone, Debug)]
enum SentinelReply {
    NotYet,
    Named(Named),
    Failed(OpenError),
}

/// The last answers of all sentinels.
struct Board {
    said: Vec<SentinelReply>,
    named: Option<Named>,
    /// How many answers in a row were older than `named`.
    older: usize,
}

impl Board {
    fn new(sentinels: usize) -> Self {
        Self { said: vec![SentinelReply::NotYet; sentinels], named: None, older: 0 }
    }

    /// Records the answer of a sentinel.
    fn note(&mut self, sentinel: usize, said: SentinelReply) {
        self.said[sentinel] = said;
        let newest = self.newest();
        let Some((newest, votes)) = newest else { return };
        let answering = self.said.iter().filter(|said| matches!(said, SentinelReply::Named(_))).count();
        let believed = match &self.named {
            None => true,
            Some(known) if known.epoch < newest.epoch => true,
            // An operator changed it by hand in the same epoch: soon all sentinels report it.
            Some(known) if known.epoch == newest.epoch => known.host == newest.host || answering < votes * 2,
            // A minority that was cut off together with an old primary would lead back to it.
            Some(_) => {
                let is_heard =
                    matches!(self.said[sentinel], SentinelReply::Named(_)) && self.said.len() < answering * 2;
                self.older += usize::from(is_heard);
                ROUNDS * self.said.len() <= self.older
            }
        };
        if believed {
            self.older = 0;
            self.named = Some(newest);
        }
    }

    /// Returns the newest primary named, and how many sentinels name it. Of several in one epoch it takes the most
    /// frequent.
    fn newest(&self) -> Option<(Named, usize)> {
        let named = self.said.iter().filter_map(|said| match said {
            SentinelReply::Named(named) => Some(named),
            _ => None,
        });
        let votes = |one: &Named| named.clone().filter(|other| *other == one).count();
        let newest = named.clone().max_by_key(|named| (named.epoch, votes(named)))?;
        Some((newest.clone(), votes(newest)))
    }

    /// Whether enough is known to begin: more than half have named a primary, or all have answered or failed.
    fn will_do(&self) -> bool {
        let named = self.said.iter().filter(|said| matches!(said, SentinelReply::Named(_))).count();
        self.said.len() < named * 2 || !self.said.iter().any(|said| matches!(said, SentinelReply::NotYet))
    }

    /// Returns why no primary is named. An error about a sentinel's configuration comes before a missing answer.
    fn why_not(&self) -> OpenError {
        let failed = |said: &SentinelReply| match said {
            SentinelReply::Failed(error) => Some(error.clone()),
            _ => None,
        };
        let failed: Vec<OpenError> = self.said.iter().filter_map(failed).collect();
        let verdict = failed.iter().find(|error| error.is_verdict()).or(failed.first());
        verdict.cloned().unwrap_or(OpenError::Unreachable {
            address: "the sentinels".to_owned(),
            says: "no answer in time".to_owned(),
        })
    }
}

/// The sentinels of a primary. Tasks watch them as long as this exists.
pub(crate) struct Sentinels {
    board: watch::Receiver<Board>,
    again: Vec<Arc<Notify>>,
    to_servers: Credentials,
    times: Times,
}

impl Sentinels {
    /// Asks all sentinels; returns when the primary is known.
    pub(crate) async fn open(
        sentinels: &[Host],
        name: &str,
        to_sentinels: &Credentials,
        to_servers: Credentials,
        times: Times,
        interval: Duration,
    ) -> Result<Arc<Self>, OpenError> {
        let (sender, mut board) = watch::channel(Board::new(sentinels.len()));
        let sender = Arc::new(sender);
        let mut again = Vec::new();
        for (at, host) in sentinels.iter().enumerate() {
            let (connector, news) = (Connector::to(host, to_sentinels, times)?, Arc::new(Notify::new()));
            let watched = Watch { at, connector, name: name.to_owned(), news: Arc::clone(&news), interval };
            tokio::spawn(watched.keep_asking(Arc::clone(&sender)));
            again.push(news);
        }
        // Long enough for a connection and three questions. On a time-out the check below reports why.
        let _ = timeout(times.connect + times.answer, board.wait_for(Board::will_do)).await;
        if board.borrow().named.is_none() {
            return Err(board.borrow().why_not());
        }
        Ok(Arc::new(Self { board, again, to_servers, times }))
    }

    /// Returns a connector to the current primary.
    pub(crate) fn connector(&self) -> Result<Connector, OpenError> {
        let board = self.board.borrow();
        match &board.named {
            Some(named) => Connector::to(&named.host, &self.to_servers, self.times),
            None => Err(board.why_not()),
        }
    }

    /// Waits until the sentinels name another server than this.
    pub(crate) async fn is_left(&self, connector: &Connector) {
        let mut board = self.board.clone();
        let another =
            |board: &Board| board.named.as_ref().is_some_and(|named| named.host.to_string() != connector.address());
        if board.wait_for(another).await.is_err() {
            // The runtime ends.
            std::future::pending::<()>().await;
        }
    }

    /// Asks all sentinels now.
    pub(crate) fn ask_again(&self) {
        for sentinel in &self.again {
            sentinel.notify_one();
        }
    }
}

/// The task that asks one sentinel.
struct Watch {
    at: usize,
    connector: Connector,
    name: String,
    news: Arc<Notify>,
    interval: Duration,
}

impl Watch {
    async fn keep_asking(self, board: Arc<watch::Sender<Board>>) {
        let note = |said| {
            board.send_if_modified(|board| {
                let (before, could) = (board.named.clone(), board.will_do());
                board.note(self.at, said);
                before != board.named || could != board.will_do()
            });
        };
        let ask = async {
            let mut backoff = Backoff::new();
            loop {
                let lasted = Stopwatch::start();
                let failed = self.ask_until_it_fails(&note).await;
                note(SentinelReply::Failed(failed));
                backoff.lasted(lasted.elapsed());
                backoff.pause().await;
            }
        };
        tokio::select! {
            () = board.closed() => {}
            () = ask => {}
        }
    }

    async fn ask_until_it_fails(&self, note: &impl Fn(SentinelReply)) -> OpenError {
        let news = Arc::clone(&self.news);
        let socket = match self.connector.connect(move |_, _| news.notify_one()).await {
            Ok(socket) => socket,
            Err(error) => return error,
        };
        // The subscription may be forbidden. Then the periodic questions suffice.
        let _ = self.connector.ask(&socket, redis::cmd("SUBSCRIBE").arg("+switch-master")).await;
        loop {
            match self.ask(&socket).await {
                Ok(named) => note(SentinelReply::Named(named)),
                Err(error) => return error,
            }
            // Both a time-out and news lead to the next question.
            let _ = timeout(self.interval, self.news.notified()).await;
        }
    }

    /// Asks a sentinel for the epoch, and then for the address. If the primary changes between the two, the new address
    /// gets the older epoch until the next question, never a newer one.
    async fn ask(&self, socket: &Socket) -> Result<Named, OpenError> {
        let question = |what| {
            let mut command = redis::cmd("SENTINEL");
            command.arg(what).arg(&self.name);
            command
        };
        let told = self.connector.ask(socket, &question("MASTER")).await.map_err(|error| self.explained(error))?;
        let told: BTreeMap<String, String> = redis::from_redis_value(told).unwrap_or_default();
        let epoch = told.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or_default();
        match self.connector.ask(socket, &question("GET-MASTER-ADDR-BY-NAME")).await {
            Ok(Value::Nil) => Err(OpenError::UnknownPrimary { name: self.name.clone() }),
            Ok(address) => match redis::from_redis_value::<(String, u16)>(address) {
                Ok((name, port)) => Ok(Named { host: Host::new(name, port), epoch }),
                Err(_) => Err(OpenError::NotSentinel { address: self.connector.address().to_owned() }),
            },
            Err(error) => Err(self.explained(error)),
        }
    }

    fn explained(&self, error: OpenError) -> OpenError {
        match error {
            OpenError::NotReady { code, says } if code == "ERR" => {
                if says.contains("No such master") {
                    return OpenError::UnknownPrimary { name: self.name.clone() };
                }
                if says.contains("unknown command") {
                    return OpenError::NotSentinel { address: self.connector.address().to_owned() };
                }
                OpenError::NotReady { code, says }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(sentinels: usize, notes: &[(usize, Option<(&str, u64)>)]) -> Board {
        let mut board = Board::new(sentinels);
        for &(at, said) in notes {
            let nobody = OpenError::Unreachable { address: "one".to_owned(), says: "gone".to_owned() };
            let named = |(host, epoch)| SentinelReply::Named(Named { host: Host::new(host, 1), epoch });
            board.note(at, said.map_or(SentinelReply::Failed(nobody), named));
        }
        board
    }

    fn named(board: &Board) -> &str {
        board.named.as_ref().map_or("nobody", |named| &named.host.name)
    }

    #[test]
    fn the_newest_counts_a_process_that_says_it() {
        for (notes, expected) in [
            (vec![(0, Some(("a", 1)))], "a"),
            (vec![(0, Some(("a", 1))), (1, Some(("b", 2)))], "b"),
            (vec![(1, Some(("b", 2))), (0, Some(("a", 1))), (2, Some(("a", 1)))], "b"),
            // The sentinel that named it is gone.
            (vec![(1, Some(("b", 2))), (1, None), (0, Some(("a", 1))), (2, Some(("a", 1)))], "b"),
            (vec![(0, None), (1, None), (2, None)], "nobody"),
            (vec![(0, Some(("a", 1))), (0, None)], "a"),
        ] {
            assert_eq!(named(&board(3, &notes)), expected, "{notes:?}");
        }
    }

    #[test]
    fn of_several_that_are_as_new_the_one_that_most_name_counts() {
        let mut notes = vec![(0, Some(("a", 1))), (1, Some(("b", 1)))];
        assert_eq!(named(&board(3, &notes)), "a", "one against one");
        notes.push((2, Some(("b", 1))));
        assert_eq!(named(&board(3, &notes)), "b");
    }

    #[test]
    fn what_is_older_is_believed_only_if_nothing_newer_is_said_for_long() {
        let mut notes = vec![(1, Some(("b", 2))), (1, None)];
        for round in 1..=ROUNDS {
            assert_eq!(named(&board(3, &notes)), "b", "after {round} rounds");
            notes.extend([(0, Some(("a", 1))), (2, Some(("a", 1))), (2, Some(("a", 1)))]);
        }
        notes.push((0, Some(("a", 1))));
        assert_eq!(named(&board(3, &notes)), "a");
    }

    #[test]
    fn one_alone_never_leads_back() {
        let mut notes = vec![(1, Some(("b", 2))), (1, None), (2, None)];
        for _ in 0..9 * ROUNDS {
            notes.extend([(0, Some(("a", 1))), (1, None), (2, None)]);
        }
        assert_eq!(named(&board(3, &notes)), "b");
    }

    #[test]
    fn more_than_half_suffice_to_begin() {
        assert!(!board(3, &[(0, Some(("a", 1)))]).will_do());
        assert!(!board(3, &[(0, Some(("a", 1))), (1, None)]).will_do());
        assert!(board(3, &[(0, Some(("a", 1))), (1, Some(("a", 1)))]).will_do());
        assert!(board(3, &[(0, Some(("a", 1))), (1, None), (2, None)]).will_do());
        assert!(board(1, &[(0, Some(("a", 1)))]).will_do());
    }
}
