//! The addresses of a service. They are bound before the store opens, so that a start that cannot listen makes no store.

use super::Plan;
use crate::failure::Failure;
use anyhow::anyhow;
use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// The bound addresses. Connections wait in the queue of the system until the service accepts them.
pub(super) struct Listeners {
    /// For clients.
    pub(super) main: TcpListener,
    /// For operators.
    pub(super) admin: Option<TcpListener>,
    /// For visitors of the site behind a gate.
    pub(super) door: Option<TcpListener>,
}

impl Listeners {
    /// Binds all addresses of the plan. Call it within the runtime that serves them.
    ///
    /// # Errors
    /// An address cannot be listened on: it is in use, or is not of this machine.
    pub(super) async fn bind(plan: &Plan) -> Result<Self, Failure> {
        // `firstcome gate` has the flag `--listen` for visitors.
        let main_flag = if plan.gate.is_some() { "--service-listen" } else { "--listen" };
        let door = plan.gate.as_ref().map(|gate| gate.listen);
        Ok(Self {
            main: bind(plan.listen, main_flag).await?,
            admin: bind_maybe(plan.admin_listen, "--admin-listen").await?,
            door: bind_maybe(door, "--listen").await?,
        })
    }
}

async fn bind_maybe(address: Option<SocketAddr>, flag: &str) -> Result<Option<TcpListener>, Failure> {
    match address {
        Some(address) => bind(address, flag).await.map(Some),
        None => Ok(None),
    }
}

async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| Failure::Unreachable(anyhow!("cannot listen on {address}: {}", cause(&error, flag))))
}

/// Says why an address cannot be listened on, and what to do.
fn cause(error: &Error, flag: &str) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => {
            format!("the address is in use: stop the other program, or choose another {flag}")
        }
        ErrorKind::AddrNotAvailable => {
            format!("no interface of this machine has the address: choose another {flag}")
        }
        ErrorKind::PermissionDenied => {
            format!("this user may not use the port: choose a {flag} with a port from 1024 on, or allow it")
        }
        _ => format!("{error}: choose another {flag}"),
    }
}
