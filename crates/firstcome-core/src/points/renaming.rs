//! A member that got another name, while its records are chained again.
//!
//! The chain of a record covers the name of its member, so an erasure makes the whole chain again, under the pseudonym. A member may
//! have more records than a store can change in one step. So the name changes at once, and the records follow page by page; the wallet
//! carries this mark until the last one.
//!
//! # Invariants
//! - The records up to [`Renaming::done`] are chained under the new name. Those after it up to [`Renaming::last`] are chained under the
//!   name before, and records that the member got since follow them under the new name.
//! - The chain of the wallet is that of its last record, so the member can get records meanwhile.
//! - The last page takes the mark away, and with it the name before.

use super::{Chain, Damage, Record, Wallet};
use crate::id::MemberName;
use std::sync::Arc;

/// How far the records of a renamed member are chained again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Renaming {
    /// The name before.
    pub before: MemberName,
    /// The number of the last record under that name.
    pub last: u64,
    /// The number of the last record that is chained again, or of the anchor.
    pub done: u64,
    /// The chain that record had until then: the next record still follows it.
    pub old: Chain,
    /// The chain that it has now.
    pub renewed: Chain,
}

impl Renaming {
    /// Returns what the chain of a stored record was made with: a name, and the chain before it, which is `chain` except for the
    /// first record that is not chained again.
    pub(super) fn made_with<'a>(
        &'a self,
        number: u64,
        member: &'a MemberName,
        chain: Chain,
    ) -> (&'a MemberName, Chain) {
        let is_old = self.done < number && number <= self.last;
        let before = if number == self.done + 1 { self.old } else { chain };
        (if is_old { &self.before } else { member }, before)
    }

    /// Chains the next record again.
    fn renew(&mut self, record: Record, member: &MemberName) -> Record {
        let old = record.chain;
        let renewed = record.renamed(member.clone(), self.renewed);
        (self.done, self.old, self.renewed) = (renewed.number, old, renewed.chain);
        renewed
    }

    /// Returns a stored record as it is once it is chained again. Call it for each record in order.
    #[must_use]
    pub fn read(&mut self, record: Record) -> Record {
        if record.number <= self.done {
            return record;
        }
        let member = record.member.clone();
        self.renew(record, &member)
    }
}

impl Wallet {
    /// Goes on behind an anchor that a program put which does not know this mark: records up to it are gone, and it was made from one that
    /// was not chained again. Returns whether there is one.
    pub fn skip_removed(&mut self) -> bool {
        let (Some(renaming), Some(anchor)) = (&self.renaming, &self.anchor) else { return false };
        if anchor.number <= renaming.done {
            return false;
        }
        let (done, old, renamed) = (anchor.number, anchor.chain, anchor.renamed(&self.member));
        let renaming = Renaming { done, old, renewed: renamed.chain, ..(**renaming).clone() };
        (self.anchor, self.renaming) = (Some(Arc::new(renamed)), Some(Arc::new(renaming)));
        true
    }

    /// Returns this wallet under another name, with the mark that none of its records is chained again; without one if it has none. The
    /// mark of an earlier renaming must be gone.
    #[must_use]
    pub fn renamed(&self, member: MemberName) -> Self {
        assert!(self.renaming.is_none(), "records under two names before");
        let begins = self.begins_with();
        let anchor = self.anchor.as_ref().map(|anchor| Arc::new(anchor.renamed(&member)));
        let renewed = anchor.as_ref().map_or(begins.chain, |anchor| anchor.chain);
        if begins.number == self.records {
            return Self { member, anchor, chain: renewed, ..self.clone() };
        }
        let (before, last) = (self.member.clone(), self.records);
        let renaming = Renaming { before, last, done: begins.number, old: begins.chain, renewed };
        Self { member, anchor, renaming: Some(Arc::new(renaming)), ..self.clone() }
    }

    /// Chains the next records again: `page` are stored records from the first one that is not. Returns their chains from now on. The
    /// mark goes with the last record. The error says why the records are not the next ones of the wallet; nothing is changed then.
    pub fn chain_again(&mut self, page: impl IntoIterator<Item = Record>) -> Result<Vec<Chain>, Damage> {
        let Some(mut renaming) = self.renaming.as_deref().cloned() else { return Ok(Vec::new()) };
        let mut chains = Vec::new();
        for record in page {
            if record.number != renaming.done + 1 || self.records < record.number {
                return Err(Damage::Gap);
            }
            chains.push(renaming.renew(record, &self.member).chain);
        }
        if chains.is_empty() {
            return Err(Damage::Gap);
        }
        if renaming.done == self.records {
            (self.chain, self.renaming) = (renaming.renewed, None);
        } else {
            self.renaming = Some(Arc::new(renaming));
        }
        Ok(chains)
    }
}
