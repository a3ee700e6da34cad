//! The target of a connection, resolved each time that it is opened.

use super::cluster::AnyNode;
use super::error::OpenError;
use super::sentinel::Sentinels;
use super::socket::{Connector, Socket};
use std::sync::Arc;

/// The target of a connection.
#[derive(Clone)]
pub(crate) enum Endpoint {
    /// This server.
    Server(Arc<Connector>),
    /// The server that the sentinels name as the primary.
    Primary(Arc<Sentinels>),
    /// This node of a cluster.
    Node(Arc<Connector>),
    /// Any healthy node of a cluster: only to listen.
    AnyNode(Arc<AnyNode>),
}

/// What a server must be part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Among {
    /// No cluster.
    None,
    /// A cluster.
    Cluster,
}

impl Endpoint {
    /// Returns a connector to the current target.
    pub(crate) fn connector(&self) -> Result<Arc<Connector>, OpenError> {
        match self {
            Self::Server(connector) | Self::Node(connector) => Ok(Arc::clone(connector)),
            Self::Primary(sentinels) => sentinels.connector().map(Arc::new),
            Self::AnyNode(nodes) => nodes.connector().map(Arc::new),
        }
    }

    /// Waits until a connection no longer leads to the right server.
    pub(crate) async fn is_left(&self, connector: &Connector) {
        match self {
            Self::Primary(_) if stays_with_the_demoted() => std::future::pending().await,
            Self::Primary(sentinels) => sentinels.is_left(connector).await,
            Self::Server(_) | Self::Node(_) | Self::AnyNode(_) => std::future::pending().await,
        }
    }

    /// Reports that the last target was lost, so that it is looked up again.
    pub(crate) fn ask_again(&self) {
        match self {
            Self::Primary(sentinels) => sentinels.ask_again(),
            Self::AnyNode(nodes) => nodes.ask_again(),
            Self::Server(_) | Self::Node(_) => {}
        }
    }

    /// Checks that a node receives the messages that are published at other nodes.
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

    /// What the server must be part of.
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
