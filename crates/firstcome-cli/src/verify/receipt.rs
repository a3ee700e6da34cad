//! `firstcome verify --receipt`: checks a receipt without the service.

use super::text_of;
use crate::failure::{Failure, Outcome};
use crate::output::{table, wants_table, write_out};
use anyhow::{Context, anyhow};
use comfy_table::Cell;
use firstcome::core::receipt::Subject;
use firstcome::core::time::Timestamp;
use firstcome::receipt::HeadPublicKey;
use firstcome::{HeadPage, Receipt};
use firstcome_server::rfc3339;
use serde_json::{Map, Value, json};

/// What to check.
pub(super) struct ReceiptArgs<'a> {
    /// A file, or `-` for the standard input.
    pub(super) source: &'a str,
    /// Files of saved heads.
    pub(super) heads: &'a [String],
    /// The public key that was saved.
    pub(super) key: Option<&'a str>,
    pub(super) json: bool,
}

fn receipt(args: &ReceiptArgs<'_>) -> Result<Receipt, Failure> {
    let receipt = Receipt::parse(&text_of(args.source)?);
    let receipt = receipt.with_context(|| format!("{} is no receipt", args.source)).map_err(Failure::Refused)?;
    if let Some(key) = args.key {
        let says = || Failure::Usage(anyhow!("--key must have 64 hexadecimal digits in lower case"));
        if HeadPublicKey::parse(key).ok_or_else(says)? != receipt.key {
            return Err(Failure::Refused(anyhow!("the receipt was signed with another key, {}", receipt.key)));
        }
    }
    receipt.verify().map_err(|error| Failure::Refused(error.into()))?;
    Ok(receipt)
}

/// Compares the receipt with saved heads. Returns how many of its heads are among them.
fn confirm(receipt: &Receipt, files: &[String]) -> Result<usize, Failure> {
    let mut confirmed = 0;
    for file in files {
        let refused = |error: anyhow::Error| Failure::Refused(error.context(file.clone()));
        let page = HeadPage::parse(&text_of(file)?).map_err(|error| refused(error.into()))?;
        page.verify().map_err(|error| refused(error.into()))?;
        confirmed += page.confirm(receipt).map_err(|error| refused(error.into()))?;
    }
    Ok(confirmed)
}

fn facts(receipt: &Receipt) -> Vec<(&'static str, Value)> {
    let at = |at: Timestamp| Value::from(rfc3339::format(at));
    let subject = &receipt.statement.subject;
    let mut facts = vec![("about", Value::from(subject.object().to_string())), ("number", subject.number().into())];
    if let Some(before) = &receipt.by.before {
        facts.push(("given_after", at(before.head.at)));
    }
    facts.push(("given_by", at(receipt.by.by.head.at)));
    match subject {
        Subject::Ticket { ticket, admission, .. } => {
            facts.push(("ticket_sha256", ticket.to_string().into()));
            if let Some(admission) = admission {
                facts.extend([("turn", admission.turn.into()), ("admitted_at", at(admission.at))]);
            }
        }
        Subject::Claim { user, issued_at, .. } => {
            facts.extend([("user", user.as_str().into()), ("issued_at", at(*issued_at))]);
        }
    }
    facts.push(("key", receipt.key.to_string().into()));
    facts
}

/// Checks the receipt and prints what it proves. Fails if anything does not fit.
pub(super) fn run(args: &ReceiptArgs<'_>) -> Outcome {
    let receipt = receipt(args)?;
    let confirmed = confirm(&receipt, args.heads)?;
    let named = receipt.heads().count();
    let mut facts = facts(&receipt);
    if !args.heads.is_empty() {
        facts.extend([("heads", named.into()), ("heads_confirmed", confirmed.into())]);
    }
    if wants_table(args.json) {
        let mut table = table(&["What", "Value"]);
        for (name, value) in &facts {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            table.add_row([Cell::new(name.replace('_', " ")), Cell::new(value)]);
        }
        let mut text =
            format!("{table}\n\nThe receipt is genuine: its signatures fit its key, and its heads are in order.\n");
        if args.heads.is_empty() {
            text.push_str("Compare it with heads that you or others have saved: --heads FILE.\n");
        } else if confirmed < named {
            text.push_str("The saved heads lack some of those that the receipt names.\n");
        }
        write_out(text.as_bytes())?;
    } else {
        let facts: Map<String, Value> = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        write_out(format!("{:#}\n", json!({ "receipt": facts })).as_bytes())?;
    }
    Ok(())
}
