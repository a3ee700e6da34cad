//! Lines of published heads: the text that was signed, and the signature.

use anyhow::{Context, anyhow};
use firstcome::core::receipt::{Head, Lines, hexadecimal};
use firstcome::receipt::{Signature, SignedHead};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeadLine {
    head: String,
    signature: String,
}

impl HeadLine {
    pub(super) fn new(signed: &SignedHead) -> Self {
        Self { head: signed.head.text(), signature: signed.signature.to_string() }
    }

    pub(super) fn read(&self) -> anyhow::Result<SignedHead> {
        let mut lines = Lines::of(&self.head);
        let head = Head::read(&mut lines).context("head")?;
        let signature = hexadecimal(&self.signature).map(Signature::new);
        let signature = signature.ok_or_else(|| anyhow!("signature must have 128 hexadecimal digits"))?;
        if lines.is_at_end() { Ok(SignedHead { head, signature }) } else { Err(anyhow!("head has too many lines")) }
    }
}
