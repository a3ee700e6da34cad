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
        let chains = self.wallet.chain_again(page);
        assert!(!chains.is_empty(), "a page goes on");
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
#[should_panic(expected = "in their order")]
fn no_record_is_left_out() {
    let mut stored = Stored::new(3, 0);
    stored.rename();
    let second = stored.records[1].clone();
    stored.wallet.chain_again([second]);
}
