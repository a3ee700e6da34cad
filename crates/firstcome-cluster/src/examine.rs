//! Reads how safe a database is, for `firstcome doctor`. Writes nothing.

use super::database::{cluster_part, deployed, judge_texts};
use super::wrap::DeploymentSecret;
use firstcome_core::id::CouponName;
use firstcome_core::time::Timestamp;
use firstcome_sql::base::Base;
use firstcome_sql::schema::{self, Part, Standing};
use firstcome_sql::{Address, DatabaseOptions, Replication, SqlError, auction_part};

/// What a database says of itself, and what it has of a deployment.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Examined {
    /// The version of TLS of a session, as the database sees it; `None` in plain text.
    pub tls_version: Option<String>,
    /// Its settings by which it is judged.
    pub settings: Vec<(String, String)>,
    /// Why nothing may rest on it.
    pub unfit: Option<String>,
    /// How servers that copy it are kept.
    pub replication: Replication,
    /// The time by its clock.
    pub now: Timestamp,
    /// Each part of the tables.
    pub tables: Vec<PartVersions>,
    /// What there is of a deployment; nothing if this program cannot use the tables.
    pub deployment: Option<Deployment>,
}

/// The versions of a part of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PartVersions {
    /// `market` or `coupons`.
    pub part: &'static str,
    /// The version there, 0 if there are no tables, and who may use them.
    pub standing: Standing,
    /// The version of this program.
    pub known: i64,
}

/// What a database has of a deployment.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Deployment {
    /// Its number; none before the first node has started.
    pub number: Option<i64>,
    /// Whether the secret is its own; unknown without one.
    pub is_secret_right: Option<bool>,
    /// Whether the fallback of the secret has wrapped the deployment's own secret, so that a `rewrap` is due; unknown without one.
    pub is_rewrap_due: Option<bool>,
    /// A coupon that tells claims before they are stored, if there is one.
    pub early_coupon: Option<CouponName>,
    /// Entries that no caller could read, of each coupon that has any.
    pub dead_letters: Vec<(CouponName, u64)>,
}

/// Looks at a database. A handful of round trips. Fails if it cannot be reached, or gives no answer.
pub async fn examine(sql: &str, secret: Option<DeploymentSecret>) -> Result<Examined, SqlError> {
    let base = Base::unchecked(Address::parse(sql)?, DatabaseOptions::default());
    let dialect = base.dialect;
    let settings = match schema::settings(&base).await {
        Ok(settings) => settings,
        Err(error) => return Err(base.explained(error).await),
    };
    let unfit = [dialect.judge(&settings, &base.options).err(), judge_texts(dialect, &settings).err()];
    let unfit = unfit.into_iter().flatten().reduce(|all, one| format!("{all}; {one}"));
    let tls_version = schema::tls_version(&base).await?;
    let replication = schema::replication(&base).await?;
    let now = schema::now(&base).await?;
    let (auctions, coupons) =
        (versions(&base, auction_part(dialect)).await?, versions(&base, cluster_part(dialect)).await?);
    let is_readable = coupons.known <= coupons.standing.version && coupons.standing.admits(coupons.known);
    let deployment = if is_readable { Some(deployed(&base, secret.as_ref()).await?) } else { None };
    Ok(Examined { tls_version, settings, unfit, replication, now, tables: vec![auctions, coupons], deployment })
}

async fn versions(base: &Base, part: Part) -> Result<PartVersions, SqlError> {
    let standing = schema::standing(base, part.name).await?;
    Ok(PartVersions { part: part.name, standing, known: part.steps.len() as i64 })
}
