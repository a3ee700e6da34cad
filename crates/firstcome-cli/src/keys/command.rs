//! `firstcome keys`: creates, lists, rotates and revokes the keys of a running service.

use super::from_environment;
use crate::arguments::duration;
use crate::failure::{Failure, Outcome};
use crate::output::{table, wants_table, write_out};
use crate::plaintext::{Protocol, service_destination};
use crate::refused_key;
use crate::transport::{Transport, TransportArgs};
use anyhow::{Context, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use firstcome::core::api_key::KeyScope;
use firstcome::core::id::KeyName;
use firstcome::core::limits::API_KEY_MS_MAX;
use firstcome::http::{ApiKeyReply, ApiKeyText, ApiKeyView, HttpOptions, HttpStore, refusal_of};
use firstcome::{FaultKind, StoreError};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// How long a request is repeated that had no answer. An operator waits for it, and can run the command again.
const RETRY_FOR: Duration = Duration::from_secs(2);

#[derive(Subcommand)]
pub(crate) enum KeysCommand {
    /// Create a key, and print it: the only line on standard output
    ///
    /// The service keeps a digest only, so no later command can print the key.
    Create(CreateArgs),
    /// List the keys of the store, without the keys themselves
    List(ListArgs),
    /// Revoke a key: the service refuses it from now on
    Revoke(RevokeArgs),
    /// Replace a key, and print the new one: the only line on standard output
    ///
    /// The service accepts both keys until --old-valid-for is over.
    Rotate(RotateArgs),
}

/// The service, and the key to it.
#[derive(Args)]
pub(crate) struct Where {
    #[command(flatten)]
    service: ServiceAddressArgs,
    #[command(flatten)]
    transport: TransportArgs,
}

/// The address of a service, and the key to it.
#[derive(Args)]
pub(crate) struct ServiceAddressArgs {
    /// Address of the service
    #[arg(long, env = "FIRSTCOME_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// File with an admin key [default: FIRSTCOME_ADMIN_KEY, or the file that FIRSTCOME_ADMIN_KEY_FILE names]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// What a key may do.
#[derive(Clone, Copy, ValueEnum)]
enum ScopeArg {
    /// Look at what an operator sees, and change nothing
    View,
    /// Act for any user, as a back end
    Service,
    /// Everything
    Admin,
}

#[derive(Args)]
pub(crate) struct CreateArgs {
    /// Name of the key
    name: String,
    /// What the key may do
    #[arg(long, value_enum)]
    scope: ScopeArg,
    /// How long the key is accepted, such as 12h or 90d [default: for ever]
    #[arg(long, value_name = "DURATION")]
    expires: Option<String>,
    #[command(flatten)]
    place: Where,
}

#[derive(Args)]
pub(crate) struct ListArgs {
    /// Print JSON also on a terminal
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

#[derive(Args)]
pub(crate) struct RevokeArgs {
    /// Name of the key
    name: String,
    #[command(flatten)]
    place: Where,
}

#[derive(Args)]
pub(crate) struct RotateArgs {
    /// Name of the key
    name: String,
    /// How long the service accepts the old key still; 0s if it has leaked
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    old_valid_for: String,
    #[command(flatten)]
    place: Where,
}

impl Where {
    /// Prepares a client. Refuses to send the key in plain text to another machine, unless that is allowed.
    pub(crate) fn open(&self) -> Result<HttpStore, Failure> {
        self.service.open_over(&self.transport.settled()?)
    }

    /// Says what is wrong with the key, if that is why the service refused a call.
    pub(crate) fn explain(&self, failure: Failure) -> Failure {
        self.service.explain(failure)
    }
}

impl ServiceAddressArgs {
    /// [`Where::open`], for a command that needs the transport for more.
    pub(crate) fn open_over(&self, transport: &Transport) -> Result<HttpStore, Failure> {
        // The client says what is wrong with another address.
        if let Some(found) = service_destination(&self.url) {
            transport.plaintext.check(Protocol::Service, &found)?;
        }
        let name = "FIRSTCOME_ADMIN_KEY";
        let text = match &self.key_file {
            Some(path) => {
                let text = std::fs::read_to_string(path);
                Some(
                    text.with_context(|| format!("cannot read the key in {}", path.display()))
                        .map_err(Failure::Usage)?,
                )
            }
            None => from_environment(name).map_err(Failure::Usage)?,
        };
        let none = || Failure::Usage(anyhow!("there is no key: set {name} or {name}_FILE, or give --key-file FILE"));
        let text = text.ok_or_else(none)?;
        let options = HttpOptions { retry_for: RETRY_FOR, ..HttpOptions::default() };
        let opened = HttpStore::trusting(&self.url, text.trim(), options, transport.trust());
        opened.map_err(|error| Failure::Usage(error.into()))
    }

    /// [`Where::explain`].
    pub(crate) fn explain(&self, failure: Failure) -> Failure {
        refused_key::explain(failure, &self.url)
    }
}

/// Parses a duration that may also be in days.
fn life(text: &str) -> Result<Duration, Failure> {
    let days = text.strip_suffix('d').filter(|days| days.bytes().all(|byte| byte.is_ascii_digit()));
    let time = match days.map(str::parse::<u64>) {
        Some(Ok(days)) => days.checked_mul(86_400).map(Duration::from_secs),
        _ => Some(
            duration(text).map_err(|_| Failure::Usage(anyhow!("{text:?} is not a duration; write 30m, 12h or 90d")))?,
        ),
    };
    let longest = Duration::from_millis(API_KEY_MS_MAX);
    let too_long =
        || Failure::Usage(anyhow!("{text:?} is too long: a key lives for {}d at most", API_KEY_MS_MAX / 86_400_000));
    time.filter(|time| *time <= longest).ok_or_else(too_long)
}

fn key_name(text: &str) -> Result<KeyName, Failure> {
    KeyName::parse(text).map_err(|error| Failure::Usage(anyhow!("invalid name {text:?}: it {error}")))
}

/// Runs a subcommand.
pub(crate) fn run(command: &KeysCommand) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (KeysCommand::Create(CreateArgs { place, .. })
    | KeysCommand::List(ListArgs { place, .. })
    | KeysCommand::Revoke(RevokeArgs { place, .. })
    | KeysCommand::Rotate(RotateArgs { place, .. })) = command;
    let done: Outcome = runtime.block_on(async {
        match command {
            KeysCommand::Create(args) => {
                let (name, valid_for) = (key_name(&args.name)?, args.expires.as_deref().map(life).transpose()?);
                if valid_for.is_some_and(|time| time < Duration::from_secs(1)) {
                    return Err(Failure::Usage(anyhow!("--expires must be 1s at least")));
                }
                let scope = match args.scope {
                    ScopeArg::View => KeyScope::View,
                    ScopeArg::Service => KeyScope::Service,
                    ScopeArg::Admin => KeyScope::Admin,
                };
                print(&name, &replied(args.place.open()?.create_api_key(&name, scope, valid_for).await)?)
            }
            KeysCommand::Rotate(args) => {
                let (name, old) = (key_name(&args.name)?, life(&args.old_valid_for)?);
                print(&name, &replied(args.place.open()?.rotate_api_key(&name, old).await)?)
            }
            KeysCommand::Revoke(args) => {
                let name = key_name(&args.name)?;
                replied(args.place.open()?.revoke_api_key(&name).await)
            }
            KeysCommand::List(args) => list(&replied(args.place.open()?.api_keys().await)?, args.json),
        }
    });
    done.map_err(|failure| place.explain(failure))
}

/// Tells a refusal, a service that cannot be reached, and an unknown outcome apart.
fn replied<T>(reply: ApiKeyReply<T>) -> Result<T, Failure> {
    replied_or(reply, "look with `firstcome keys list`")
}

/// The same. `look` says how an operator finds out whether the service has done it.
pub(crate) fn replied_or<T>(reply: ApiKeyReply<T>, look: &str) -> Result<T, Failure> {
    match reply {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(refusal)) => Err(Failure::Refused(refusal.into())),
        Err(StoreError::Unknown) => {
            Err(Failure::Unreachable(anyhow!("the service gave no answer in time, and may have done it: {look}")))
        }
        Err(error) => Err(unanswered(&error)),
    }
}

/// The failure of a service that did nothing: it refused the call, or cannot be reached. Tells the cause once, and what to do.
pub(crate) fn unanswered(error: &StoreError) -> Failure {
    if let Some(refusal) = refusal_of(error) {
        return Failure::Refused(refusal.into());
    }
    Failure::Unreachable(match error {
        // The client has given up, so the advice of the fault is wrong: "it is tried again by itself".
        StoreError::Faulted(fault) if fault.kind == FaultKind::Unreachable => {
            anyhow!("{}; check that it runs, and the address", fault.detail)
        }
        // The error shows its source too, which a chain of causes would repeat.
        StoreError::Faulted(fault) => anyhow!("{fault}"),
        error => anyhow!("{error}"),
    })
}

fn print(name: &KeyName, made: &ApiKeyView) -> Outcome {
    let lost = || {
        anyhow!(
            "the key {name} was made, but the answer with its text was lost: run `firstcome keys rotate {name} --old-valid-for 0s`"
        )
    };
    let text = made.key.as_ref().map(ApiKeyText::as_str).ok_or_else(|| Failure::Refused(lost()))?;
    write_out(format!("{text}\n").as_bytes())?;
    Ok(())
}

fn list(keys: &[ApiKeyView], json: bool) -> Outcome {
    if wants_table(json) {
        let mut table = table(&["Name", "Scope", "State", "Created", "Expires", "Revoked", "Old key until"]);
        for key in keys {
            let or_none = |text: &Option<String>| text.clone().unwrap_or_default();
            let (expires, revoked, old) =
                (or_none(&key.expires_at), or_none(&key.revoked_at), or_none(&key.old_key_until));
            table.add_row([&key.name, &key.scope, &key.state, &key.created_at, &expires, &revoked, &old]);
        }
        write_out(format!("{table}\n").as_bytes())?;
        return Ok(());
    }
    let item = |key: &ApiKeyView| {
        json!({"name": key.name, "scope": key.scope, "state": key.state, "created_at": key.created_at,
            "expires_at": key.expires_at, "revoked_at": key.revoked_at, "old_key_until": key.old_key_until})
    };
    let items: Vec<_> = keys.iter().map(item).collect();
    write_out(format!("{}\n", json!({"items": items})).as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_may_be_in_days() {
        assert_eq!(life("90d").ok(), Some(Duration::from_secs(90 * 86_400)));
        assert_eq!(life("12h").ok(), Some(Duration::from_secs(12 * 3_600)));
        for text in ["", "d", "-1d", "1.5d", "3654d", "18446744073709551615d", "1w"] {
            assert!(matches!(life(text), Err(Failure::Usage(_))), "{text}");
        }
    }
}
