//! Reads and writes the rows of a cluster: tables, statements and their transactions.
//!
//! Every promise ends here. The sequencer may forget, lie and be ahead: a claim exists if its row does, and rows are only
//! written together with the position of the sequencer's stream that they come from, by the caller that finds generation, position and
//! anchor as they were read. So SQL always holds a prefix of one stream, and each entry of it once.

pub(super) mod archive;
mod claim;
pub(super) mod coupon;
mod dead_letters;
pub(super) mod deployment;
pub(super) mod inserts;
pub(super) mod known;
mod redemption;
pub(super) mod room;
pub(super) mod secrets;
mod voided;

pub(super) use claim::{Batch, ClaimRow, Fresh, TEXT_BYTES_MAX, Written};
pub(super) use coupon::CouponRow;
pub(super) use dead_letters::{dead_letter_counts, early_coupon};
pub(super) use deployment::deployed;
pub(super) use redemption::Used;
pub(super) use room::{CEILING_BLOCK, Page, RoomRow, settings_columns, settings_of};
pub(super) use voided::Voided;

use super::wrap::DeploymentSecret;
use firstcome_core::time::{Now, Timestamp};
use firstcome_sql::SqlError;
use firstcome_sql::auction::archive::HasAuctions;
use firstcome_sql::base::{Base, Pause, Session, is_passing};
use firstcome_sql::dialect::Dialect as _;
use firstcome_sql::schema::Part;
use firstcome_sql::{Address, DatabaseOptions, schema};
#[cfg(feature = "conformance")]
use firstcome_store::edge::Clock;
use sqlx::{MySql, Postgres};
#[cfg(feature = "conformance")]
use std::sync::Arc;
use tokio::time::Instant;

/// Which of the statements in a text a row is from: its first column.
mod tag {
    pub(super) const COUPON: i64 = 1;
    pub(super) const CLAIM: i64 = 2;
    pub(super) const REQUEST: i64 = 3;
    pub(super) const CLOCK: i64 = 4;
}

/// Kinds of requests.
pub(super) mod kind {
    pub(crate) const CLAIM: i64 = 1;
    pub(crate) const REDEMPTION: i64 = 2;
}

/// The tables that all nodes share.
const fn part(steps: &'static [&'static str]) -> Part {
    Part {
        name: "coupons",
        steps,
        written: &[
            ("firstcome_deployment", "number"),
            ("firstcome_secret", "name"),
            ("firstcome_coupon", "name"),
            ("firstcome_claim", "name"),
            ("firstcome_redemption", "redeemed_at"),
            ("firstcome_coupon_request", "serial"),
            ("firstcome_dead_letter", "at"),
            ("firstcome_room", "reached"),
            ("firstcome_ticket", "joined_at"),
            ("firstcome_slot", "ended"),
            ("firstcome_gone", "how"),
            ("firstcome_pass_secret", "created_at"),
        ],
    }
}

/// A kind of database that can hold it.
pub(super) trait ClaimDatabase: HasAuctions {
    /// Its tables.
    const PART: Part;
    /// The type of a whole number of eight bytes, to cast to.
    const WHOLE: &'static str;
    /// As `Dialect::UNLESS_THERE`, of secrets, which go by their names.
    const SECRET_UNLESS_THERE: &'static str;

    /// Says whether a server with these settings takes statements as long as ours.
    fn judge_texts(settings: &[(String, String)]) -> Result<(), String>;
}

impl ClaimDatabase for Postgres {
    const PART: Part = part(&[include_str!("database/postgres_0001.sql"), include_str!("database/postgres_0002.sql")]);
    const WHOLE: &'static str = "bigint";
    const SECRET_UNLESS_THERE: &'static str = Self::UNLESS_THERE;

    fn judge_texts(_: &[(String, String)]) -> Result<(), String> {
        Ok(())
    }
}

impl ClaimDatabase for MySql {
    const PART: Part = part(&[include_str!("database/mysql_0001.sql"), include_str!("database/mysql_0002.sql")]);
    const WHOLE: &'static str = "SIGNED";
    const SECRET_UNLESS_THERE: &'static str = "ON DUPLICATE KEY UPDATE name=name";

    fn judge_texts(settings: &[(String, String)]) -> Result<(), String> {
        let set = settings.iter().find(|(name, _)| name == "max_allowed_packet");
        match set.and_then(|(_, value)| value.parse::<usize>().ok()) {
            Some(bytes) if bytes < TEXT_BYTES_MAX => Err(format!(
                "max_allowed_packet is {bytes}, and a batch of claims may have {TEXT_BYTES_MAX} bytes: set max_allowed_packet=16M"
            )),
            _ => Ok(()),
        }
    }
}

/// Whose clock decides.
#[derive(Clone)]
pub(super) enum Time {
    /// That of the server which is asked.
    Server,
    /// One that is given, by which tests set the time.
    #[cfg(feature = "conformance")]
    Given(Arc<dyn Clock>),
}

impl Time {
    /// Both clocks if they are given; `None` if the server's count.
    pub(super) fn both(&self) -> Option<Now> {
        match self {
            Self::Server => None,
            #[cfg(feature = "conformance")]
            Self::Given(clock) => Some(clock.both()),
        }
    }

    /// The instant that is given; `None` if the server's counts.
    pub(super) fn given(&self) -> Option<Timestamp> {
        match self {
            Self::Server => None,
            #[cfg(feature = "conformance")]
            Self::Given(clock) => Some(clock.now()),
        }
    }
}

/// The tables of a deployment.
pub(super) struct Database<D: ClaimDatabase> {
    pub(super) base: Base<D>,
    secret: DeploymentSecret,
    pub(super) time: Time,
}

impl<D: ClaimDatabase> Database<D> {
    /// Connects, makes sure that the server keeps its promises, and brings the tables to this version or refuses others, as
    /// the options say.
    pub(super) async fn open(
        address: Address,
        options: DatabaseOptions,
        secret: DeploymentSecret,
        time: Time,
    ) -> Result<Self, SqlError> {
        let database = Self { base: Base::open(address, options).await?, secret, time };
        D::judge_texts(&schema::settings(&database.base).await?).map_err(SqlError::broken)?;
        schema::prepare(&database.base, D::PART).await?;
        Ok(database)
    }

    /// The time as a value in a statement.
    fn clock(&self) -> String {
        self.time.given().map_or_else(|| D::CLOCK.to_owned(), |given| given.as_us().to_string())
    }

    fn attempts(&self) -> Attempts {
        Attempts { until: Instant::now() + self.base.options.patience, pause: Pause::new() }
    }

    async fn commit(&self, session: Session<D>) -> Result<(), SqlError> {
        session.commit(self.base.options.connections.answer_timeout).await
    }
}

/// What is done again while others were served first.
struct Attempts {
    until: Instant,
    pause: Pause,
}

impl Attempts {
    /// Whether to do it again after this error. Pauses before it says so.
    async fn again(&mut self, error: &SqlError) -> bool {
        is_passing(error) && self.pause.again(self.until).await
    }
}
