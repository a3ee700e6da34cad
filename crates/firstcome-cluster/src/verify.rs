//! Re-checks every stored invariant of a deployment from the rows alone, and that Redis agrees with them. Nothing is written.
//!
//! # Beside nodes at work
//! - Coupons and rooms are read in one state of the database, members and listings in another.
//! - Sequencers and logs are held against the database so that nothing is a breach because it is under way: see
//!   [`super::inspect`]. What was moving all the time is [named](Verified::not_checked), and not counted.
//! - A sequencer or a log that is not there says nothing that could be wrong, and is no breach: the next call makes it from the
//!   database.
//!
//! # Costs
//! All is read page by page. Memory: some hundred bytes per coupon and room, what one room at a time takes in a node, and what
//! members and listings take ([`firstcome_sql::verify_auctions`]).

mod coupon;
mod receipt;
mod room;
mod secrets;

use super::ClusterError;
use super::inspect::{self, Inspection, State, Users};
use super::wrap::DeploymentSecret;
use crate::database::{PART_NAME, cluster_part};
use firstcome_sql::dialect::Connection;
use firstcome_sql::reader::Reader;
use firstcome_sql::snapshot::Reading;
use firstcome_sql::{Address, SqlError, SqlOptions, verify_auctions};
use firstcome_store::check::Check;

/// What a re-check has found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Verified {
    /// Each invariant, with what became of it.
    pub checks: Vec<Check>,
    /// What could not be checked, and why.
    pub not_checked: Vec<String>,
}

/// Re-checks every invariant that a database holds: those of coupons and rooms on a cluster, and those of auctions, as far as
/// their tables are there. With Redis, whether it agrees; with the secret of the deployment, whether all secrets open, and whether
/// their keys have signed the published heads.
///
/// [`SqlError::Broken`]: no address, no tables of firstcome, tables of another version, or a row that cannot be read at all.
/// [`ClusterError::OtherDeployment`]: the keys on that Redis belong to another database.
pub async fn verify(
    sql: &str,
    redis: Option<&str>,
    secret: Option<DeploymentSecret>,
) -> Result<Verified, ClusterError> {
    let times = SqlOptions::default();
    let connection = Connection::open(&Address::parse(sql)?, &times).await?;
    let (mut verified, has_auctions) = of(connection, redis, secret).await?;
    // A caller that has neither hears what is missing.
    if has_auctions || verified.checks.is_empty() {
        verified.checks.extend(verify_auctions(sql).await?);
    }
    Ok(verified)
}

async fn of(
    connection: Connection,
    redis: Option<&str>,
    secret: Option<DeploymentSecret>,
) -> Result<(Verified, bool), ClusterError> {
    let mut reading = Reading::new(connection);
    let mut verified = Verified { checks: Vec::new(), not_checked: Vec::new() };
    let has_auctions = version(&mut reading, "market").await? != 0;
    if version(&mut reading, PART_NAME).await? == 0 && redis.is_none() {
        reading.close().await;
        return Ok((verified, has_auctions));
    }
    is_ours(&mut reading).await?;
    reading.begin().await?;
    verified.checks.extend(coupon::check(&mut reading).await?);
    verified.checks.extend(room::check(&mut reading).await?);
    let [chain, kept, signed] = receipt::check(&mut reading, secret.as_ref()).await?;
    verified.checks.extend([chain, kept]);
    match secret {
        Some(secret) => verified.checks.extend([signed, secrets::check(&mut reading, &secret).await?]),
        None => verified.not_checked.push(
            "whether the secrets open, and the signatures of heads: give the secret of the deployment in FIRSTCOME_SECRET or with --secret-file"
                .to_owned(),
        ),
    }
    reading.end().await?;
    let Some(redis) = redis else {
        reading.close().await;
        return Ok((verified, has_auctions));
    };
    let deployment = number(&mut reading).await?;
    let sequencer = inspect::open(redis, deployment).await?.ok_or(ClusterError::OtherDeployment)?;
    let mut inspection = Inspection { reading, sequencer };
    sequencers(&mut inspection, &mut verified).await?;
    logs(&mut inspection, &mut verified).await?;
    inspection.reading.close().await;
    Ok((verified, has_auctions))
}

/// The version of the tables of a part; 0 if there are none.
async fn version(reading: &mut Reading, part: &str) -> Result<i64, SqlError> {
    let rows = reading.ask(reading.dialect().words().has_schema.to_owned()).await?;
    if rows.first().map(|row| Reader::at(row, 0).integer()).transpose()? != Some(1) {
        return Ok(0);
    }
    let rows = reading.ask(format!("SELECT version FROM firstcome_schema WHERE part='{part}';")).await?;
    Ok(rows.first().map(|row| Reader::at(row, 0).integer()).transpose()?.unwrap_or(0))
}

/// Refuses a database without the tables of a deployment, or with those of another version.
pub(super) async fn is_ours(reading: &mut Reading) -> Result<(), SqlError> {
    let known = cluster_part(reading.dialect()).steps.len() as i64;
    let advice = match version(reading, PART_NAME).await? {
        0 => return Err(SqlError::broken("this database has no tables of a deployment of firstcome")),
        version if known < version => "use the version of firstcome that made them, or a later one",
        version if version < known => "run `firstcome migrate --sql URL` once",
        _ => return Ok(()),
    };
    let part = PART_NAME;
    Err(SqlError::broken(format!(
        "the tables of {part} are not of version {known}, which this program reads: {advice}"
    )))
}

/// The number of the deployment, if a node has ever started.
pub(super) async fn number(reading: &mut Reading) -> Result<Option<i64>, SqlError> {
    let rows = reading.ask("SELECT number FROM firstcome_deployment WHERE id=1;".to_owned()).await?;
    rows.first().map(|row| Reader::at(row, 0).integer()).transpose()
}

/// What was found of one thing, counted once: as a breach if it is in one of these states.
fn count(check: &mut Check, states: &[State], of: &str, found: &[inspect::Found]) {
    let breach = found.iter().find(|found| states.contains(&found.state));
    check.check(breach.is_none(), || format!("{of}: {}", breach.map_or("", |found| found.says.as_str())));
}

/// What must be said first.
fn says(found: &[inspect::Found]) -> &str {
    found.first().map_or("", |found| found.says.as_str())
}

async fn sequencers(inspection: &mut Inspection, verified: &mut Verified) -> Result<(), ClusterError> {
    let mut generation = Check::new("an open sequencer is of the generation that the database names");
    let mut stream =
        Check::new("a sequencer goes on where the database is: its last entry, and after it one entry for each ticket");
    let mut taken = Check::new("what a sequencer counts as taken is what the database holds and its outbox brings");
    let mut settings = Check::new("a sequencer judges by the settings in the database");
    let mut known = Check::new("a sequencer knows every user and every idempotency key with a claim");
    for (id, name) in inspect::names(&mut inspection.reading, "firstcome_coupon").await? {
        let Some(seen) = inspection.sequencer(id, Users::OfSql).await? else { continue };
        let (of, found) = (format!("coupon {name}"), &seen.found);
        if seen.is_moving {
            verified.not_checked.push(format!("the sequencer of {of}: {}", says(found)));
            continue;
        }
        if seen.is(&[State::Missing]) {
            continue;
        }
        count(&mut generation, &[State::OtherGeneration], &of, found);
        if seen.is(&[State::OtherGeneration]) {
            continue;
        }
        count(&mut stream, &[State::Behind, State::Torn, State::WentBack], &of, found);
        if seen.is(&[State::Behind, State::Torn, State::WentBack]) {
            continue;
        }
        count(&mut taken, &[State::Miscounted], &of, found);
        count(&mut settings, &[State::OtherSettings], &of, found);
        let unknown = found.iter().find(|found| found.state == State::UserNotInGate);
        known.add(seen.looked_for, unknown.map_or(0, |found| found.count), || {
            format!("{of}: {}", unknown.map_or("", |found| found.says.as_str()))
        });
    }
    verified.checks.extend([generation, stream, taken, settings, known]);
    Ok(())
}

async fn logs(inspection: &mut Inspection, verified: &mut Verified) -> Result<(), ClusterError> {
    let mut generation = Check::new("an open log is of the generation that the database names, and not behind it");
    let mut replayed = Check::new("the image of a log can be read, and its entries follow it without a gap");
    let mut same = Check::new("a log leads to the room in the database: its digest, tickets, slots, and who is gone");
    let mut cap = Check::new("no visitor was admitted above the cap");
    for (id, name) in inspect::names(&mut inspection.reading, "firstcome_room").await? {
        let Some(seen) = inspection.log(id).await? else { continue };
        let (of, found) = (format!("room {name}"), &seen.found);
        if seen.is_moving {
            verified.not_checked.push(format!("the log of {of}: {}", says(found)));
            continue;
        }
        verified.not_checked.extend(seen.not_compared.map(|why| format!("the room of the log of {of}: {why}")));
        if seen.is(&[State::Missing]) {
            continue;
        }
        count(&mut generation, &[State::OtherGeneration, State::Behind], &of, found);
        if seen.is(&[State::OtherGeneration, State::Behind]) {
            continue;
        }
        count(&mut replayed, &[State::Torn], &of, found);
        replayed.checked += seen.applied;
        let differs = found.iter().find(|found| matches!(found.state, State::Differs | State::WentBack));
        same.add(seen.compared, differs.map_or(0, |found| found.count), || {
            format!("{of}: {}", differs.map_or("", |found| found.says.as_str()))
        });
        let (admitted, above) = seen.admitted;
        cap.add(admitted, above, || format!("{of}: {above} of {admitted}"));
    }
    verified.checks.extend([generation, replayed, same, cap]);
    Ok(())
}
