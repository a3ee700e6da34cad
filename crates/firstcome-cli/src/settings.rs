//! Settings. Flags take precedence over `FIRSTCOME_*`, then the settings file, then defaults.

mod file;
mod print;
mod reference;
mod variable;

pub(crate) use file::{NotParsed, Parsed, one_line, parse, unread_file};
pub(crate) use print::{ChangedSettings, Source, settings};
pub use reference::configuration_markdown;

use crate::failure::{Failure, Outcome};
use anyhow::{anyhow, ensure};
use clap::{Args, ValueEnum};
use firstcome::core::coupon::CouponLimit;
use firstcome::core::id::CouponName;
use firstcome_server::OnLoss;
use firstcome_server::rate::RateLimit;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// Where the settings file of a service is. Read before the other arguments: see [`parse`].
#[derive(Args)]
pub(crate) struct ConfigArgs {
    /// Settings file [default: /etc/firstcome/firstcome.toml if it is there]
    #[arg(long, env = "FIRSTCOME_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Where the settings file of a command is that any user runs. The file of the machine may be unreadable for that user.
#[derive(Args)]
pub(crate) struct UserConfigArgs {
    /// Settings file [default: none]
    #[arg(long, env = "FIRSTCOME_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Whom a gate lets in when the store has given no answer for the grace.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
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

/// Returns the limit per minute and address; `None` for 0.
pub(crate) fn per_minute(count: u32) -> Option<RateLimit> {
    NonZeroU32::new(count).map(RateLimit::per_minute)
}

/// The allowed numbers of connections, and of waits for locks.
const AT_ONCE: std::ops::RangeInclusive<usize> = 1..=1_000_000;

/// Parses a setting that limits how many there are at once.
pub(crate) fn at_once(text: &str) -> anyhow::Result<usize> {
    let (min, max) = (AT_ONCE.start(), AT_ONCE.end());
    let count = text.parse().ok().filter(|count| AT_ONCE.contains(count));
    count.ok_or_else(|| anyhow!("must be {min} to {max}, not {text}"))
}

/// [`at_once`], or 0 for no limit.
pub(crate) fn at_once_or_0(text: &str) -> anyhow::Result<usize> {
    if text == "0" { Ok(0) } else { at_once(text) }
}

/// Parses an origin, as browsers send it.
pub(crate) fn origin(text: &str) -> anyhow::Result<http::HeaderValue> {
    let valid = text.starts_with("http://") || text.starts_with("https://");
    let value = text.parse().ok().filter(|_| valid && !text.ends_with('/'));
    value.ok_or_else(|| anyhow!("{text:?} is not an origin like https://example.org"))
}

/// Collects what is wrong with settings, so that an operator sees all of it at once.
#[derive(Default)]
pub(crate) struct Problems(Vec<Failure>);

impl Problems {
    /// Returns the value, or keeps what is wrong.
    pub(crate) fn take<T>(&mut self, result: Result<T, Failure>) -> Option<T> {
        result.map_err(|failure| self.0.push(failure)).ok()
    }

    /// Fails with all problems, if there are any.
    pub(crate) fn end(self) -> Outcome {
        let mut failures = self.0.into_iter();
        match (failures.next(), failures.next()) {
            (None, _) => Ok(()),
            (Some(only), None) => Err(only),
            (Some(first), Some(second)) => {
                let lines: Vec<String> =
                    [first, second].into_iter().chain(failures).map(|failure| failure.to_string()).collect();
                Err(Failure::Usage(anyhow!(lines.join("\n"))))
            }
        }
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

/// Refuses a file as `--data`: the path is wrong, not the disk.
pub(crate) fn refuse_file(data: &Path) -> Outcome {
    if data.is_file() {
        return Err(Failure::Usage(anyhow!("--data is a directory: {} is a file", data.display())));
    }
    Ok(())
}

/// Checks `--data` of a command that makes the directory if it is absent.
pub(crate) fn check_data(data: &Path) -> Outcome {
    refuse_file(data)?;
    if data.exists() { Ok(()) } else { check_parent(data, "--data").map_err(Failure::Usage) }
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
