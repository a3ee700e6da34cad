//! `firstcome erase`: erases a person from a running service, or from a directory that no service has open.

use crate::failure::{Failure, Outcome};
use crate::keys::command::{Where, unanswered};
use crate::output::{table, wants_table, write_out};
use anyhow::{Context, anyhow};
use clap::Args;
use firstcome::core::erase::Erased;
use firstcome::core::id::UserId;
use firstcome::edge::SystemClock;
use firstcome::{EraseAnswer, EraseStore, StoreError};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Args)]
pub(crate) struct EraseArgs {
    /// The user to erase, who is also the member of this name
    #[arg(long, value_name = "USER")]
    user: String,
    /// Directory of an embedded store that no service has open, instead of the service at --url
    #[arg(long, value_name = "DIR", conflicts_with = "key_file")]
    data: Option<PathBuf>,
    #[command(flatten)]
    place: Where,
    /// Print JSON also on a terminal
    #[arg(long)]
    json: bool,
}

/// Erases a person, and prints how many rows were changed.
pub(crate) fn run(args: &EraseArgs) -> Outcome {
    let user = UserId::parse(&args.user);
    let user = user.map_err(|error| Failure::Usage(anyhow!("invalid user {:?}: it {error}", args.user)))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = match &args.data {
        Some(data) => {
            if !data.join(firstcome::sqlite::DATABASE_FILE).exists() {
                return Err(Failure::Usage(anyhow!("{} holds no store: give the directory of one", data.display())));
            }
            let store = firstcome::sqlite::open(data, Arc::new(SystemClock::default()));
            let store =
                store.with_context(|| format!("cannot open {}", data.display())).map_err(Failure::Unreachable)?;
            let answer = runtime.block_on(store.erase(&user));
            store.close();
            answer
        }
        None => runtime.block_on(args.place.open()?.erase(&user)),
    };
    let erased = erased(answer).map_err(|failure| args.place.explain(failure))?;
    print(&erased, args.json)
}

/// Tells a refusal, a store that cannot be reached, and an unknown outcome apart.
fn erased(answer: EraseAnswer) -> Result<Erased, Failure> {
    match answer {
        Ok(Ok(erased)) => Ok(erased),
        Ok(Err(rejection)) => Err(Failure::Refused(anyhow!("{}: {rejection}", rejection.code()))),
        Err(StoreError::Unknown) => Err(Failure::Unreachable(anyhow!(
            "the person may be erased in part: run the same command again, which erases the rest"
        ))),
        Err(error) => Err(unanswered(&error)),
    }
}

fn print(erased: &Erased, json: bool) -> Outcome {
    let Erased { claims, tickets, members, records, listings } = *erased;
    if !wants_table(json) {
        let rows =
            json!({"claims": claims, "tickets": tickets, "members": members, "records": records, "listings": listings});
        write_out(format!("{rows}\n").as_bytes())?;
        return Ok(());
    }
    if erased.is_nothing() {
        write_out(b"nothing of this person was found\n")?;
        return Ok(());
    }
    let mut table = table(&["Erased from", "Rows"]);
    for (kind, rows) in
        [("claims", claims), ("tickets", tickets), ("members", members), ("records", records), ("listings", listings)]
    {
        table.add_row([kind.to_owned(), rows.to_string()]);
    }
    write_out(format!("{table}\n").as_bytes())?;
    Ok(())
}
