//! Copies the files of a server, and restores them.

use crate::{Kind, PAUSE, START, Server, ServerError, empty};
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A copy of a server's files, taken by [`Server::keep_copy`]. Removed with the server.
#[derive(Clone, Debug)]
pub struct ServerCopy {
    files: PathBuf,
}

impl Server {
    /// Stops the server, and waits until it has ended. Its files then have everything that it acknowledged; clients lose their
    /// connections. Redis with [`crate::Durability::Quick`] keeps nothing in files, unless the options set `save` or
    /// `appendonly`.
    pub async fn stop(&mut self) -> Result<(), ServerError> {
        // PostgreSQL waits for its clients after SIGTERM, and ends their sessions after SIGINT.
        let signal = if self.kind == Kind::Postgres { Signal::INT } else { Signal::TERM };
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| io::Error::other("a process without an id"))?;
        kill_process(id, signal).map_err(io::Error::from)?;
        let ended = async {
            while self.child.try_wait()?.is_none() {
                tokio::time::sleep(PAUSE).await;
            }
            Ok(())
        };
        let ended = tokio::time::timeout(START, ended).await;
        ended.unwrap_or_else(|_| Err(ServerError::Start { kind: self.kind, says: "it does not stop".to_owned() }))
    }

    /// Stops the server and copies its files. The server stays stopped: [`Server::restart`] starts it again.
    pub async fn keep_copy(&mut self) -> Result<ServerCopy, ServerError> {
        self.stop().await?;
        let files = self.data.with_extension(format!("copy{}", self.copies));
        self.copies += 1;
        std::fs::create_dir(&files)?;
        copy(&self.data, &files)?;
        Ok(ServerCopy { files })
    }

    /// Kills the server if it still runs, replaces its files by a copy, and starts it at the same port. Returns when it
    /// answers. The copy stays.
    ///
    /// After an error the server may have ended, with its files or without.
    pub async fn restore(&mut self, kept: &ServerCopy) -> Result<(), ServerError> {
        self.stop_at_once().await?;
        empty(&self.data).await?;
        copy(&kept.files, &self.data)?;
        self.restart().await
    }

    /// Ends the server without a clean shutdown. PostgreSQL also ends its other processes.
    async fn stop_at_once(&mut self) -> Result<(), ServerError> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id.filter(|_| self.kind == Kind::Postgres)
            && self.child.try_wait()?.is_none()
        {
            kill_process(id, Signal::QUIT).map_err(io::Error::from)?;
            let ended = async {
                while self.child.try_wait()?.is_none() {
                    tokio::time::sleep(PAUSE).await;
                }
                io::Result::Ok(())
            };
            if let Ok(ended) = tokio::time::timeout(START, ended).await {
                return Ok(ended?);
            }
        }
        self.kill();
        Ok(())
    }
}

/// Copies all files of a directory, with owners and modes, into an existing empty one. Copies the directory's mode too.
fn copy(from: &Path, into: &Path) -> Result<(), ServerError> {
    let mut command = Command::new("cp");
    command.arg("-a").arg(from.join(".")).arg(into).stdin(Stdio::null());
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()).into())
}
