//! Where a connection leads, each time that it is made.

use super::cluster::AnyNode;
use super::error::OpenError;
use super::sentinel::Sentinels;
use super::socket::{Connector, Socket};
use std::sync::Arc;

/// Where a connection leads.
#[derive(Clone)]
pub(crate) enum Endpoint {
    /// Always to this server.
    Server(Arc<Connector>),
    /// To whichever server the sentinels name.
    Primary(Arc<Sentinels>),
    /// To this node of a cluster.
    Node(Arc<Connector>),
    /// To any node of a cluster that is well: only to listen.
    AnyNode(Arc<AnyNode>),
}

/// What a server must be a part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Among {
    /// Nothing.
    None,
    /// A cluster.
    Cluster,
}

impl Endpoint {
    /// The way there as of now.
    pub(crate) fn connector(&self) -> Result<Arc<Connector>, OpenError> {
        match self {
            Self::Server(connector) | Self::Node(connector) => Ok(Arc::clone(connector)),
            Self::Primary(sentinels) => sentinels.connector().map(Arc::new),
            Self::AnyNode(nodes) => nodes.connector().map(Arc::new),
        }
    }

    /// Waits until a connection through this door no longer leads to where it should.
    pub(crate) async fn is_left(&self, connector: &Connector) {
        match self {
            Self::Primary(_) if stays_with_the_demoted() => std::future::pending().await,
            Self::Primary(sentinels) => sentinels.is_left(connector).await,
            Self::Server(_) | Self::Node(_) | Self::AnyNode(_) => std::future::pending().await,
        }
    }

    /// Says that the way of before leads nowhere any more.
    pub(crate) fn ask_again(&self) {
        match self {
            Self::Primary(sentinels) => sentinels.ask_again(),
            Self::AnyNode(nodes) => nodes.ask_again(),
            Self::Server(_) | Self::Node(_) => {}
        }
    }

    /// Looks whether who is there hears what is said elsewhere.
    pub(crate) async fn hears(&self, connector: &Connector, socket: &Socket) -> Result<(), OpenError> {
        match self {
            Self::AnyNode(_) => super::cluster::state_of(connector, socket).await?.well(),
            _ => Ok(()),
        }
    }

    /// Whether the connection may carry commands too.
    pub(crate) const fn takes_commands(&self) -> bool {
        !matches!(self, Self::AnyNode(_))
    }

    /// What the server must be a part of.
    pub(crate) const fn among(&self) -> Among {
        match self {
            Self::Server(_) | Self::Primary(_) => Among::None,
            Self::Node(_) | Self::AnyNode(_) => Among::Cluster,
        }
    }
}

#[cfg(feature = "planted-bugs")]
fn stays_with_the_demoted() -> bool {
    firstcome_core::planted::is(firstcome_core::planted::Bug::ReleasedOnDemoted)
}

#[cfg(not(feature = "planted-bugs"))]
const fn stays_with_the_demoted() -> bool {
    false
}
