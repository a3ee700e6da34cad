//! Settings. Flags take precedence over `FIRSTCOME_*`, then `firstcome.toml`, then defaults.

mod reference;

pub use reference::configuration_markdown;

use crate::failure::Failure;
use anyhow::{Context, anyhow, ensure};
use clap::ValueEnum;
use firstcome::core::coupon::CouponLimit;
use firstcome::core::id::CouponName;
use firstcome_server::OnLoss;
use firstcome_server::address::Block;
use firstcome_server::rate::RateLimit;
use serde::Deserialize;
use serde::de::Error;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// The settings file that is read without `--config`.
const DEFAULT_FILE: &str = "firstcome.toml";

/// The content of `firstcome.toml`. Names are those of the flags.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct File {
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) admin_listen: Option<SocketAddr>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) sql: Option<String>,
    pub(crate) sql_file: Option<PathBuf>,
    pub(crate) redis: Option<String>,
    pub(crate) redis_file: Option<PathBuf>,
    pub(crate) secret_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "coupon_names")]
    pub(crate) public_coupon: Option<Vec<CouponName>>,
    pub(crate) allow_origin: Option<Vec<String>>,
    #[serde(default, deserialize_with = "blocks")]
    pub(crate) trusted_proxy: Option<Vec<Block>>,
    pub(crate) joins_per_minute: Option<u32>,
    pub(crate) network_joins_per_minute: Option<u32>,
    pub(crate) room_joins_per_minute: Option<u32>,
    pub(crate) total_joins_per_minute: Option<u32>,
    pub(crate) join_work: Option<u8>,
    pub(crate) calls_per_minute: Option<u32>,
    pub(crate) connections_max: Option<usize>,
    pub(crate) connections_per_address: Option<usize>,
    pub(crate) streams_max: Option<usize>,
    pub(crate) grace: Option<String>,
    pub(crate) on_loss: Option<AfterGrace>,
    pub(crate) lock_waits_max: Option<usize>,
    pub(crate) stop_grace: Option<String>,
    pub(crate) drain: Option<String>,
    pub(crate) second_person_within: Option<String>,
    pub(crate) store: Option<String>,
    pub(crate) wait: Option<String>,
    pub(crate) lease: Option<String>,
    pub(crate) min_hold: Option<String>,
    pub(crate) owner: Option<String>,
}

/// Whom a gate lets in when the store has given no answer for the grace.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AfterGrace {
    /// No visitor
    Close,
    /// All visitors, also those without a pass
    Open,
}

impl From<AfterGrace> for OnLoss {
    fn from(after: AfterGrace) -> Self {
        match after {
            AfterGrace::Close => Self::Close,
            AfterGrace::Open => Self::Open,
        }
    }
}

fn coupon_names<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<CouponName>>, D::Error> {
    let texts = Option::<Vec<String>>::deserialize(deserializer)?;
    let name = |text: &String| coupon_name(text).map_err(D::Error::custom);
    texts.map(|texts| texts.iter().map(name).collect()).transpose()
}

fn blocks<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Block>>, D::Error> {
    let texts = Option::<Vec<String>>::deserialize(deserializer)?;
    let block = |text: &String| text.parse().map_err(|error| D::Error::custom(format!("{text:?}: {error}")));
    texts.map(|texts| texts.iter().map(block).collect()).transpose()
}

/// Returns the limit per minute and address; `None` for 0.
pub(crate) fn per_minute(given: Option<u32>, default: RateLimit) -> Option<RateLimit> {
    given.map_or(Some(default), |given| NonZeroU32::new(given).map(RateLimit::per_minute))
}

impl File {
    /// Reads the named file, or `firstcome.toml` in the working directory if it exists.
    pub(crate) fn read(named: Option<&Path>) -> Result<Self, Failure> {
        let path = named.unwrap_or(Path::new(DEFAULT_FILE));
        if named.is_none() && !path.exists() {
            return Ok(Self::default());
        }
        let read = || -> anyhow::Result<Self> {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            toml::from_str(&text).with_context(|| format!("{} is not valid", path.display()))
        };
        read().map_err(Failure::Usage)
    }
}

/// Checks that a directory to create has a parent. A missing parent is more often a misspelt path than a new one.
pub(crate) fn check_parent(directory: &Path, flag: &str) -> anyhow::Result<()> {
    // A relative path with one part has the working directory as its parent.
    let parent = match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => return Ok(()),
    };
    let (shown, above) = (directory.display(), parent.display());
    ensure!(parent.is_dir(), "cannot make {shown}: there is no directory {above}; check {flag}, or make {above} first");
    Ok(())
}

/// Returns the failure of a command on a directory that has none of the store's files: the path is wrong, not the
/// disk.
pub(crate) fn no_store(data: &Path, files: &[&str]) -> Failure {
    let why = match data.is_dir() {
        true => format!("it has no {}", files.join(" and no ")),
        false => "there is no such directory".to_owned(),
    };
    Failure::Usage(anyhow!("no store at {}: {why}; check --data", data.display()))
}

/// Parses a coupon of the command line: `NAME=LIMIT`.
pub(crate) fn coupon(text: &str) -> anyhow::Result<(CouponName, CouponLimit)> {
    let (name, limit) = text.split_once('=').ok_or_else(|| anyhow!("write NAME=LIMIT"))?;
    let name = CouponName::parse(name).map_err(|error| anyhow!("the name {error}"))?;
    let limit = limit.parse().ok().and_then(CouponLimit::new).ok_or_else(|| anyhow!("the limit is 1 to 100000000"))?;
    Ok((name, limit))
}

/// Parses the name of a coupon.
pub(crate) fn coupon_name(text: &str) -> anyhow::Result<CouponName> {
    CouponName::parse(text).map_err(|error| anyhow!("{text:?}: the name {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_setting_is_refused() {
        assert!(toml::from_str::<File>("listen = \"127.0.0.1:1\"\nconnections-max = 3").is_ok());
        assert!(toml::from_str::<File>("lisen = \"127.0.0.1:1\"").is_err());
    }
}
