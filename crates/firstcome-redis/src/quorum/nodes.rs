//! The servers, and the connections to them.

use super::super::fitness::Watch;
use super::super::{Inbox, InboxEvent, Link, LinkOptions, OpenError};
use super::Shared;
use firstcome_core::lock::quorum::Quorum;
use firstcome_store::edge::draw_pause;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinSet;

/// The pause between two attempts to reach a server that has not answered yet.
const PAUSE: Duration = Duration::from_secs(1);

/// One server.
pub(super) struct Node {
    url: Box<str>,
    /// Set once the server was first reached.
    link: OnceLock<Link>,
    watch: OnceLock<Watch>,
    /// Whether a task is finding out with which counter the node may join.
    pub(super) joining: AtomicBool,
}

impl Node {
    pub(super) fn link(&self) -> Option<&Link> {
        self.link.get()
    }

    /// Whether the node may take part in a grant: as far as is known, it evicts no keys.
    pub(super) fn may_grant(&self) -> bool {
        self.watch.get().is_none_or(|watch| watch.may_grant().is_ok())
    }

    fn is_reached(&self, link: Link, options: &LinkOptions) {
        let _ = self.watch.set(Watch::over(&link, options));
        let _ = self.link.set(link);
    }
}

/// Connects to all servers at once. A majority must answer. Each server that answers must be fit, and no two may be the
/// same.
pub(super) async fn open(
    urls: &[&str],
    channel: &str,
    options: &LinkOptions,
    quorum: Quorum,
) -> Result<(Box<[Node]>, Vec<Option<Inbox>>), OpenError> {
    let mut opening = JoinSet::new();
    for (node, url) in urls.iter().enumerate() {
        let (url, channel, options) = ((*url).to_owned(), channel.to_owned(), options.clone());
        opening.spawn(async move { (node, Link::open(&url, &channel, options).await) });
    }
    let nodes: Box<[Node]> = urls
        .iter()
        .map(|url| Node {
            url: (*url).into(),
            link: OnceLock::new(),
            watch: OnceLock::new(),
            joining: AtomicBool::new(false),
        })
        .collect();
    let mut inboxes: Vec<Option<Inbox>> = urls.iter().map(|_| None).collect();
    let mut trouble = None;
    while let Some(opened) = opening.join_next().await {
        // A task that did not end has panicked, which the panic message reports.
        let Ok((node, opened)) = opened else { continue };
        match opened {
            Ok((link, inbox)) => {
                check_other(&nodes, &link)?;
                nodes[node].is_reached(link, options);
                inboxes[node] = Some(inbox);
            }
            Err(error) if error.is_verdict() => return Err(error),
            Err(error) => trouble = Some(error),
        }
    }
    let up = inboxes.iter().flatten().count();
    match trouble {
        Some(error) if up < quorum.majority() => Err(error),
        _ => Ok((nodes, inboxes)),
    }
}

/// Checks that no other address leads to the same server, which would vote twice.
fn check_other(nodes: &[Node], link: &Link) -> Result<(), OpenError> {
    let run = link.run_of(b"");
    let same = |other: &Node| {
        other
            .link()
            .and_then(|link| link.run_of(b""))
            .zip(run.as_ref())
            .is_some_and(|(other, run)| other.is_same_run(run))
    };
    if nodes.iter().any(same) {
        Err(OpenError::Quorum { says: "two addresses lead to the same one".to_owned() })
    } else {
        Ok(())
    }
}

/// Connects to a server that was absent when the store was opened, and passes on the messages of the node.
pub(super) async fn keep(shared: Arc<Shared>, node: usize, inbox: Option<Inbox>, options: LinkOptions) {
    let mut inbox = match inbox {
        Some(inbox) => inbox,
        None => reach(&shared, node, options).await,
    };
    loop {
        if let InboxEvent::Message(message) = inbox.next().await {
            shared.waiters.on_reply(&shared, node, &message);
        }
    }
}

async fn reach(shared: &Shared, node: usize, options: LinkOptions) -> Inbox {
    let channel = super::waiting::channel_of(shared.client);
    let this = &shared.nodes[node];
    loop {
        tokio::time::sleep(draw_pause(PAUSE)).await;
        if let Ok((reached, inbox)) = Link::open(&this.url, &channel, options.clone()).await
            && check_other(&shared.nodes, &reached).is_ok()
        {
            this.is_reached(reached, &options);
            return inbox;
        }
    }
}
