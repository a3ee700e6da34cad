//! The writer's state of wallets.

use super::super::journal::MemberId;
use super::published::MemberCell;
use firstcome_core::auction::Wallets;
use firstcome_core::id::MemberName;
use firstcome_core::points::{Balance, Chain, Wallet};
use firstcome_core::time::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;

/// The writer's state of one member.
pub(super) struct Member {
    pub(super) id: MemberId,
    pub(super) wallet: Wallet,
    /// Whether it was changed since the last commit.
    pub(super) is_touched: bool,
    pub(super) cell: Option<Arc<MemberCell>>,
}

/// All wallets.
#[derive(Default)]
pub(super) struct MemberWallets {
    pub(super) places: HashMap<MemberName, usize>,
    pub(super) members: Vec<Member>,
    /// Members that were changed since the last commit, with their state at that commit.
    pub(super) touched: Vec<(usize, Before)>,
}

/// A member's state at the last commit.
#[derive(Clone, Copy)]
pub(super) struct Before {
    balance: Balance,
    records: u64,
    last_at: Timestamp,
    chain: Chain,
}

impl Before {
    pub(super) const fn of(wallet: &Wallet) -> Self {
        let Wallet { balance, records, last_at, chain, .. } = wallet;
        Self { balance: *balance, records: *records, last_at: *last_at, chain: *chain }
    }
}

impl MemberWallets {
    pub(super) fn add(&mut self, member: Member) -> usize {
        let place = self.members.len();
        self.places.insert(member.wallet.member.clone(), place);
        self.members.push(member);
        place
    }

    /// Restores all wallets to the last commit. Removes members that were created since.
    pub(super) fn take_back(&mut self) {
        while let Some((place, before)) = self.touched.pop() {
            let member = &mut self.members[place];
            member.is_touched = false;
            if member.cell.is_some() {
                let Before { balance, records, last_at, chain } = before;
                let wallet = &mut member.wallet;
                (wallet.balance, wallet.records, wallet.last_at, wallet.chain) = (balance, records, last_at, chain);
            } else if let Some(member) = self.members.pop() {
                // New members stand at the end, in the order in which they were touched.
                assert_eq!(place, self.members.len(), "a member came after a newcomer");
                self.places.remove(&member.wallet.member);
            }
        }
    }

    pub(super) fn id(&self, name: &MemberName) -> MemberId {
        self.places.get(name).map_or(MemberId(0), |place| self.members[*place].id)
    }
}

impl Wallets for MemberWallets {
    fn balance(&self, member: &MemberName) -> Balance {
        self.places.get(member).map_or(Balance::default(), |place| self.members[*place].wallet.balance)
    }

    fn wallet(&mut self, member: &MemberName) -> &mut Wallet {
        let place = match self.places.get(member) {
            Some(place) => *place,
            None => {
                // Ids count from 1, and there are no more members than fit in memory.
                let id = MemberId(self.members.len() as u32 + 1);
                self.add(Member { id, wallet: Wallet::empty(member.clone()), is_touched: false, cell: None })
            }
        };
        let member = &mut self.members[place];
        if !member.is_touched {
            member.is_touched = true;
            self.touched.push((place, Before::of(&member.wallet)));
        }
        &mut member.wallet
    }
}
