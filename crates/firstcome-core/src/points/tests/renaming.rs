//! Another name, page by page: a check of the stored records holds at every moment, and finds every change.

use super::*;
use crate::erase::Pseudonym;

/// Stored records and the wallet of their member, as a store keeps them.
struct Stored {
    wallet: Wallet,
    records: Vec<Record>,
}

impl Stored {
    /// A member with so many records, the first of which a purge has removed.
    fn new(count: u64, removed: u64) -> Self {
        let mut stored = Self { wallet: Wallet::empty(member("ann")), records: Vec::new() };
        (0..count).for_each(|_| stored.charge());
        let removed = Anchor::START.advanced(count, &stored.records[..removed as usize], at(1_000), |_| false);
        stored.records.drain(..removed.map_or(0, |anchor| anchor.number as usize));
        stored.wallet.anchor = removed.map(Arc::new);
        stored
    }

    fn charge(&mut self) {
        let record = self.wallet.apply(Kind::Charge, amount(3), None, at(10)).unwrap();
        self.records.push(record);
    }

    /// Gives the member another name; rows of records hold none.
    fn rename(&mut self) {
        self.wallet = self.wallet.renamed(Pseudonym::new(7).member());
        let name = &self.wallet.member;
        self.records.iter_mut().for_each(|record| record.member = name.clone());
    }

    /// Chains a page again. False if none is left.
    fn page(&mut self, count: usize) -> bool {
        let Some(renaming) = self.wallet.renaming.clone() else { return false };
        let first = self.records.iter().position(|record| record.number == renaming.done + 1).unwrap();
        let page: Vec<Record> = self.records.iter().skip(first).take(count).cloned().collect();
        let chains = self.wallet.chain_again(page).unwrap();
        self.records[first..].iter_mut().zip(chains).for_each(|(record, chain)| record.chain = chain);
        true
    }

    /// Replays the records as a check does.
    fn check(&self) -> Result<(), (u64, Damage)> {
        let mut wallet = self.wallet.at_first();
        for record in &self.records {
            wallet.restore(record).map_err(|damage| (record.number, damage))?;
        }
        assert_eq!(wallet, self.wallet, "the wallet is that of its records");
        Ok(())
    }

    /// Returns the records as an export reads them.
    fn read(&self) -> Vec<Record> {
        let mut renaming = self.wallet.renaming.as_deref().cloned();
        let read = |record: &Record| match &mut renaming {
            Some(renaming) => renaming.read(record.clone()),
            None => record.clone(),
        };
        self.records.iter().map(read).collect()
    }
}

#[test]
fn a_check_holds_between_pages_of_every_size_beside_new_records() {
    for (count, removed, page, news) in [
        (1, 0, 1, 0),
        (5, 0, 1, 0),
        (5, 0, 2, 1),
        (6, 2, 2, 0),
        (6, 3, 2, 1),
        (4, 3, 1, 0),
        (9, 0, 100, 2),
        (7, 1, 3, 2),
    ] {
        let here = format!("{count} records, {removed} removed, pages of {page}, {news} new ones after each");
        let mut stored = Stored::new(count, removed);
        stored.rename();
        loop {
            assert_eq!(stored.check(), Ok(()), "{here}");
            let mut exported = Wallet::anchored(stored.wallet.member.clone(), stored.wallet.anchor.clone());
            for record in stored.read() {
                assert_eq!(exported.restore(&record), Ok(()), "an export is whole, {here}");
            }
            // Fewer than a page holds, so that the pages catch up.
            (0..news.min(page as u64 - 1)).for_each(|_| stored.charge());
            assert_eq!(stored.check(), Ok(()), "{here}");
            if !stored.page(page) {
                break;
            }
        }
        assert_eq!(stored.wallet.renaming, None, "{here}");
        let name = stored.wallet.member.clone();
        let mut alone = Wallet::anchored(name, stored.wallet.anchor.clone());
        for record in &stored.records {
            assert_eq!(alone.restore(record), Ok(()), "nothing is left of the name before, {here}");
        }
        stored.charge();
        assert_eq!(stored.check(), Ok(()), "{here}");
    }
}

#[test]
fn a_change_between_pages_is_found() {
    let between = || {
        let mut stored = Stored::new(6, 1);
        stored.rename();
        stored.charge();
        assert!(stored.page(2));
        assert_eq!(stored.wallet.renaming.as_ref().map(|renaming| (renaming.done, renaming.last)), Some((3, 6)));
        stored
    };
    for place in 0..6 {
        let mut stored = between();
        stored.records[place].at = at(11);
        let number = stored.records[place].number;
        let damage = stored.check().unwrap_err();
        assert_eq!(damage.0, number, "{damage:?}");
    }
    let turned: [fn(&mut Renaming); 4] = [
        |mark| mark.done += 1,
        |mark| mark.last -= 1,
        |mark| mark.old.0[0] ^= 1,
        |mark| mark.before = MemberName::parse("bob").unwrap(),
    ];
    for turn in turned {
        let mut stored = between();
        let mut mark = stored.wallet.renaming.as_deref().cloned().unwrap();
        turn(&mut mark);
        stored.wallet.renaming = Some(Arc::new(mark));
        assert!(matches!(stored.check(), Err((_, Damage::BrokenChain))), "{:?}", stored.wallet.renaming);
    }
}

#[test]
fn records_that_are_not_the_next_ones_are_damage_and_change_nothing() {
    let mut stored = Stored::new(3, 0);
    stored.rename();
    let before = stored.wallet.clone();
    let mut beyond = stored.records.clone();
    beyond.push(Record { number: 4, ..stored.records[2].clone() });
    for page in
        [vec![], vec![stored.records[1].clone()], vec![stored.records[0].clone(), stored.records[2].clone()], beyond]
    {
        assert_eq!(stored.wallet.chain_again(page.clone()), Err(Damage::Gap), "{page:?}");
        assert_eq!(stored.wallet, before);
    }
    assert_eq!(stored.wallet.chain_again(stored.records.clone()).map(|chains| chains.len()), Ok(3));
}

#[test]
fn a_wallet_without_records_has_nothing_to_chain_again() {
    let mut stored = Stored::new(0, 0);
    stored.rename();
    assert_eq!(stored.wallet, Wallet::empty(Pseudonym::new(7).member()));
    assert_eq!(stored.wallet.chain_again([]), Ok(Vec::new()));
    stored.charge();
    assert_eq!(stored.check(), Ok(()));
}

/// A program that does not know the mark removes records beyond it.
#[test]
fn records_that_were_removed_meanwhile_are_skipped() {
    for removed in [2, 3, 5] {
        let mut stored = Stored::new(6, 0);
        stored.rename();
        assert!(stored.page(2));
        assert!(!stored.wallet.skip_removed());
        let anchor = Anchor::START.advanced(6, &stored.records[..removed], at(1_000), |_| false);
        stored.records.drain(..removed);
        stored.wallet.anchor = anchor.map(Arc::new);
        assert_eq!(stored.check(), Ok(()), "{removed} removed");
        assert_eq!(stored.wallet.skip_removed(), 2 < removed);
        assert_eq!(stored.check(), Ok(()), "{removed} removed");
        while stored.page(2) {
            assert_eq!(stored.check(), Ok(()), "{removed} removed");
        }
        let mut alone = Wallet::anchored(stored.wallet.member.clone(), stored.wallet.anchor.clone());
        assert!(stored.records.iter().all(|record| alone.restore(record).is_ok()), "{removed} removed");
    }
}
