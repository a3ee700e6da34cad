//! `firstcome pass-keys`: lists, rotates and revokes the keys that sign passes of a running service.

use crate::failure::Outcome;
use crate::keys::command::{Where, replied_or, unanswered};
use crate::output::{table, wants_table, write_out};
use clap::{Args, Subcommand};
use firstcome::http::PassPublicKey;
use serde_json::json;

/// How an operator finds out what a request has done whose answer is lost.
const LOOK: &str = "look with `firstcome pass-keys list`, or run it again: a second time does no harm";

#[derive(Subcommand)]
pub(crate) enum PassKeysCommand {
    /// List the keys whose passes are accepted, the signing one first
    List(PassKeysArgs),
    /// Sign passes with a new key; passes of the other keys stay valid until they end
    Rotate(PassKeysArgs),
    /// Revoke a key that has leaked: the service refuses all passes that it signed from now on
    ///
    /// If it is the signing key, a new one signs. Visitors keep their slots, and get a new pass with the next poll.
    Revoke(RevokeArgs),
}

#[derive(Args)]
pub(crate) struct PassKeysArgs {
    /// Print JSON also on a terminal
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

#[derive(Args)]
pub(crate) struct RevokeArgs {
    /// Number of the key: `kid` in the footer of its passes
    #[arg(value_name = "KEY", value_parser = clap::value_parser!(u32).range(1..))]
    id: u32,
    #[command(flatten)]
    more: PassKeysArgs,
}

/// Runs a command against the service.
pub(crate) fn run(command: &PassKeysCommand) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (PassKeysCommand::List(PassKeysArgs { place, .. })
    | PassKeysCommand::Rotate(PassKeysArgs { place, .. })
    | PassKeysCommand::Revoke(RevokeArgs { more: PassKeysArgs { place, .. }, .. })) = command;
    let done: Outcome = runtime.block_on(async {
        match command {
            PassKeysCommand::List(args) => {
                let keys = args.place.open()?.pass_keys().await.map_err(|error| unanswered(&error))?;
                show(&keys.keys, args)
            }
            PassKeysCommand::Rotate(args) => {
                let keys = replied_or(args.place.open()?.rotate_pass_key().await, LOOK)?;
                show(&keys.keys, args)
            }
            PassKeysCommand::Revoke(RevokeArgs { id, more }) => {
                let revoked = replied_or(more.place.open()?.revoke_pass_key(*id).await, LOOK)?;
                if revoked.was_gone {
                    eprintln!("pass key {id} was revoked before, or forgotten after the end of its last pass");
                }
                show(&revoked.keys, more)
            }
        }
    });
    done.map_err(|failure| place.explain(failure))
}

/// Shows the keys whose passes are accepted.
fn show(keys: &[PassPublicKey], args: &PassKeysArgs) -> Outcome {
    let state = |at: usize| if at == 0 { "signs" } else { "accepted" };
    if wants_table(args.json) {
        let mut table = table(&[">Key", "State", "Public key"]);
        for (at, key) in keys.iter().enumerate() {
            table.add_row([&key.id.to_string(), state(at), &key.paserk]);
        }
        write_out(format!("{table}\n").as_bytes())?;
        return Ok(());
    }
    let item = |(at, key): (usize, &PassPublicKey)| json!({"kid": key.id.to_string(), "state": state(at), "public_key": key.paserk});
    let items: Vec<_> = keys.iter().enumerate().map(item).collect();
    write_out(format!("{}\n", json!({"items": items})).as_bytes())?;
    Ok(())
}
