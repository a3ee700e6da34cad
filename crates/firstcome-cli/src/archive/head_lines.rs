//! Lines of published heads: the text that was signed, and the signature.

use anyhow::{Context, anyhow};
use firstcome::archive::ArchivedHead;
use firstcome::core::receipt::{Head, Lines, hexadecimal};
use firstcome::receipt::{Signature, SignedHead};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeadLine {
    head: String,
    signature: String,
    /// Of the first head of a room or coupon: up to which sequence a purge removed those before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    removed_to: Option<NonZeroU64>,
}

impl HeadLine {
    pub(super) fn new(ArchivedHead { signed, removed_to }: &ArchivedHead) -> Self {
        let (head, signature) = (signed.head.text(), signed.signature.to_string());
        Self { head, signature, removed_to: NonZeroU64::new(*removed_to) }
    }

    pub(super) fn read(&self) -> anyhow::Result<ArchivedHead> {
        let mut lines = Lines::of(&self.head);
        let head = Head::read(&mut lines).context("head")?;
        let signature = hexadecimal(&self.signature).map(Signature::new);
        let signature = signature.ok_or_else(|| anyhow!("signature must have 128 hexadecimal digits"))?;
        if !lines.is_at_end() {
            return Err(anyhow!("head has too many lines"));
        }
        let removed_to = self.removed_to.map_or(0, NonZeroU64::get);
        Ok(ArchivedHead { signed: SignedHead { head, signature }, removed_to })
    }
}
