//! Reads and writes the rows of a cluster: tables, statements and their transactions.
//!
//! Every promise ends here. The sequencer may forget, lie and be ahead: a claim exists if its row does, and rows are only
//! written together with the position of the sequencer's stream that they come from, by the caller that finds generation, position and
//! anchor as they were read. So SQL always holds a prefix of one stream, and each entry of it once.

mod api_key;
mod appearance;
pub(super) mod archive;
mod claim;
pub(super) mod coupon;
mod dead_letters;
pub(super) mod deployment;
mod draw;
mod erase;
pub(super) mod inserts;
pub(super) mod known;
mod names;
mod pass_secret;
mod purge;
mod receipt;
mod redemption;
pub(super) mod renewal;
pub(super) mod room;
pub(super) mod secrets;
mod voided;

pub(super) use appearance::AppearanceRow;
pub(super) use claim::{Batch, ClaimRow, Fresh, TEXT_BYTES_MAX, Written};
pub(super) use coupon::CouponRow;
pub(super) use dead_letters::{dead_letter_counts, early_coupon};
pub(super) use deployment::deployed;
pub(super) use draw::{DRAW_COLUMNS, draw_of};
pub(super) use purge::{GoneRows, PAGE_ROWS, PurgeTurn};
pub(super) use receipt::{CHAINS, HeadKeys, heads_after};
pub(super) use redemption::Used;
pub(super) use room::{CEILING_BLOCK, Page, RoomRow, settings_columns, settings_of};
pub(super) use voided::{SORT_COUNT, Voided};

use super::wrap::DeploymentSecret;
use firstcome_core::time::{Now, Timestamp};
use firstcome_sql::SqlError;
use firstcome_sql::base::{Base, Pause, Session, is_passing};
use firstcome_sql::dialect::Dialect;
use firstcome_sql::schema::Part;
use firstcome_sql::{Address, DatabaseOptions, schema};
#[cfg(feature = "conformance")]
use firstcome_store::edge::Clock;
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

/// The part of the tables that all nodes share.
pub(super) const PART_NAME: &str = "coupons";

/// The tables that all nodes share.
pub(super) const fn cluster_part(dialect: Dialect) -> Part {
    Part {
        name: PART_NAME,
        steps: match dialect {
            Dialect::Postgres => &[
                include_str!("database/postgres_0001.sql"),
                include_str!("database/postgres_0002.sql"),
                include_str!("database/postgres_0003.sql"),
                include_str!("database/postgres_0004.sql"),
                include_str!("database/postgres_0005.sql"),
                include_str!("database/postgres_0006.sql"),
                include_str!("database/postgres_0007.sql"),
                include_str!("database/postgres_0008.sql"),
                include_str!("database/postgres_0009.sql"),
                include_str!("database/postgres_0010.sql"),
            ],
            Dialect::MySql => &[
                include_str!("database/mysql_0001.sql"),
                include_str!("database/mysql_0002.sql"),
                include_str!("database/mysql_0003.sql"),
                include_str!("database/mysql_0004.sql"),
                include_str!("database/mysql_0005.sql"),
                include_str!("database/mysql_0006.sql"),
                include_str!("database/mysql_0007.sql"),
                include_str!("database/mysql_0008.sql"),
                include_str!("database/mysql_0009.sql"),
                include_str!("database/mysql_0010.sql"),
            ],
        },
        // A program that does not know purges would take removed rows for lost ones. Removed heads raise it.
        readable_from: 8,
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
            ("firstcome_renewal", "generation"),
            ("firstcome_pass_secret", "created_at"),
            ("firstcome_appearance", "version"),
            ("firstcome_head", "given"),
            ("firstcome_head_removed", "sequence"),
            ("firstcome_api_key", "number"),
            ("firstcome_purge", "until_at"),
        ],
    }
}

/// The type of a whole number of eight bytes, to cast to.
pub(super) const fn whole(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => "bigint",
        Dialect::MySql => "SIGNED",
    }
}

/// Refuses a server with these settings if it does not take statements as long as ours.
pub(super) fn judge_texts(dialect: Dialect, settings: &[(String, String)]) -> Result<(), String> {
    if dialect == Dialect::Postgres {
        return Ok(());
    }
    let set = settings.iter().find(|(name, _)| name == "max_allowed_packet");
    match set.and_then(|(_, value)| value.parse::<usize>().ok()) {
        Some(bytes) if bytes < TEXT_BYTES_MAX => Err(format!(
            "max_allowed_packet is {bytes}, and a batch of claims may have {TEXT_BYTES_MAX} bytes: set max_allowed_packet=16M"
        )),
        _ => Ok(()),
    }
}

/// Whose clock decides.
#[derive(Clone)]
pub(super) enum Time {
    /// That of the server which is asked.
    Server,
    /// One that is given, by which tests set the time.
    #[cfg(feature = "conformance")]
    Clock(Arc<dyn Clock>),
}

impl Time {
    /// Both clocks if they are given; `None` if the server's count.
    pub(super) fn both(&self) -> Option<Now> {
        match self {
            Self::Server => None,
            #[cfg(feature = "conformance")]
            Self::Clock(clock) => Some(clock.both()),
        }
    }

    /// The instant that is given; `None` if the server's counts.
    pub(super) fn given(&self) -> Option<Timestamp> {
        match self {
            Self::Server => None,
            #[cfg(feature = "conformance")]
            Self::Clock(clock) => Some(clock.now()),
        }
    }
}

/// The tables of a deployment.
pub(super) struct Database {
    pub(super) base: Base,
    secret: DeploymentSecret,
    pub(super) time: Time,
}

impl Database {
    /// Connects, makes sure that the server keeps its promises, and brings the tables to this version or refuses others, as
    /// the options say.
    pub(super) async fn open(
        address: Address,
        options: DatabaseOptions,
        secret: DeploymentSecret,
        time: Time,
    ) -> Result<Self, SqlError> {
        let database = Self { base: Base::open(address, options).await?, secret, time };
        judge_texts(database.dialect(), &schema::settings(&database.base).await?).map_err(SqlError::broken)?;
        schema::prepare(&database.base, cluster_part(database.dialect())).await?;
        Ok(database)
    }

    /// What its server speaks.
    pub(super) const fn dialect(&self) -> Dialect {
        self.base.dialect
    }

    /// The time as a value in a statement.
    fn clock(&self) -> String {
        self.time.given().map_or_else(|| self.dialect().words().clock.to_owned(), |given| given.as_us().to_string())
    }

    fn attempts(&self) -> Attempts {
        Attempts { until: Instant::now() + self.base.options.patience, pause: Pause::new() }
    }

    /// The secret that wraps the secrets in the tables.
    pub(super) const fn secret(&self) -> &DeploymentSecret {
        &self.secret
    }

    pub(super) async fn commit(&self, session: Session) -> Result<(), SqlError> {
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
