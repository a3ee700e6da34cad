//! Small histories for the tests of the audit. Member 0 sells one listing: by auction from 0 to 1000, at 10, with 200
//! to settle, or at a fixed price. The tests choose its bids and wallets, right or wrong.

use super::books::Books;
use super::records::chained;
use crate::drill::auction::record::{
    AcceptedBid, Balance, Bid, DrillReply, Extend, History, Instant, Kind, ListingObservation, ListingRecord, Movement,
    Names, Order, ReceivedReply, RequestKind, STRANGER, Sale, State, Terms,
};

const MEMBERS: u32 = 4;

#[derive(Clone)]
pub(super) struct Story {
    pub(super) history: History,
}

impl Story {
    pub(super) fn new() -> Self {
        let terms = Terms { ends_us: 1_000, increment: None, extend: None, settle_us: Some(200) };
        let listing = ListingRecord { owner: 0, price: 10, starts_us: 0, terms: Some(terms) };
        let mut history = History {
            names: Names { prefix: "d".into(), members: MEMBERS, listings: 1 },
            start_wall_us: 1_700_000_000_000_000,
            listings: vec![listing],
            bids: vec![Vec::new()],
            records: vec![Vec::new(); MEMBERS as usize],
            balances: vec![Balance::default(); MEMBERS as usize],
            ..History::default()
        };
        history.last.push(ListingObservation {
            listing: 0,
            sent_us: 0,
            received_us: 0,
            state: State::Running,
            bids: 0,
            highest: None,
            ends_us: Some(1_000),
            version: 1,
            sale: None,
        });
        Self { history }
    }

    /// Sells the listing at the fixed price 10 from instant 0 on.
    pub(super) fn fixed_price() -> Self {
        let mut story = Self::new();
        story.history.listings[0].terms = None;
        story.history.last[0].ends_us = None;
        story
    }

    pub(super) fn books(&self) -> Books<'_> {
        Books::of(&self.history)
    }

    pub(super) fn extend(&mut self, window_us: i64, by_us: i64, max_count: u32) {
        self.history.listings[0].terms.as_mut().unwrap().extend = Some(Extend { window_us, by_us, max_count });
    }

    /// Adds a record of a member about the listing and one of its bids.
    pub(super) fn record(&mut self, member: u32, kind: Kind, amount: i64, at_us: Instant, bid: u32) -> &mut Self {
        let (total, available) = kind.signs();
        let listing = if matches!(kind, Kind::Charge | Kind::Refund) { STRANGER } else { 0 };
        let records = &mut self.history.records[member as usize];
        let number = records.len() as u64 + 1;
        let (total_delta, available_delta) = (total * amount, available * amount);
        records.push(Movement { number, kind, total_delta, available_delta, at_us, listing, bid, hash: [0; 32] });
        self
    }

    pub(super) fn charge(&mut self, member: u32, amount: i64, at_us: Instant) -> &mut Self {
        self.record(member, Kind::Charge, amount, at_us, 0)
    }

    /// Adds a listed bid, with its records.
    pub(super) fn bid(&mut self, bidder: u32, price: u64, at_us: Instant) -> &mut Self {
        let before = self.history.bids[0].last().copied();
        let number = before.map_or(0, |bid| bid.number) + 1;
        self.history.bids[0].push(Bid { number, bidder, price, at_us });
        self.record(bidder, Kind::Hold, price.cast_signed(), at_us, number);
        if let Some(before) = before {
            self.record(before.bidder, Kind::Release, before.price.cast_signed(), at_us, before.number);
        }
        self
    }

    /// Adds a new order, and the answer to it.
    fn hears(&mut self, order: Order, sent_us: Instant, received_us: Instant, told: DrillReply) -> &mut Self {
        let number = self.history.orders.len() as u32;
        self.history.orders.push(Order { key: number, ..order });
        self.history.on_reply.push(ReceivedReply { order: number, sent_us, received_us, told });
        self
    }

    pub(super) fn hears_again(&mut self, order: u32, sent_us: Instant, received_us: Instant, told: DrillReply) {
        self.history.on_reply.push(ReceivedReply { order, sent_us, received_us, told });
    }

    /// Sells the listing: adds both records, and updates the last read. The winner's hold ends before.
    pub(super) fn sold(&mut self, buyer: u32, price: u64, at_us: Instant) -> Sale {
        let amount = price.cast_signed();
        if let Some(bid) = self.history.bids[0].last().copied() {
            self.record(buyer, Kind::Capture, amount, at_us, bid.number);
        }
        self.record(buyer, Kind::Purchase, amount, at_us, 0).record(0, Kind::Sold, amount, at_us, 0);
        let sale = Sale { buyer, price, at_us };
        let (bids, last) = (self.history.bids[0].len() as u64, &mut self.history.last[0]);
        last.sale = Some(sale);
        last.state = State::Sold;
        last.version = 2 + bids + u64::from(self.history.listings[0].terms.is_some());
        sale
    }

    /// Acknowledges a listed bid to its bidder.
    pub(super) fn accepted_bid(&mut self, number: u32, sent_us: Instant, received_us: Instant) -> &mut Self {
        let bid = self.history.bids[0][number as usize - 1];
        let ends_us = self.books().end_after(0, number as usize).unwrap();
        let told = DrillReply::Placed(AcceptedBid { bid, ends_us, fence: u64::from(number) + 1 });
        let order = Order { what: RequestKind::Bid, member: bid.bidder, listing: 0, amount: bid.price, key: 0 };
        self.hears(order, sent_us, received_us, told)
    }

    /// Adds a request with an order of its own, and its answer.
    pub(super) fn asks(
        &mut self,
        what: RequestKind,
        member: u32,
        amount: u64,
        [sent_us, received_us]: [Instant; 2],
        told: DrillReply,
    ) {
        let listing = if matches!(what, RequestKind::Bid | RequestKind::Purchase) { 0 } else { STRANGER };
        self.hears(Order { what, member, listing, amount, key: 0 }, sent_us, received_us, told);
    }

    /// Sets the instant of the last read, which shows all bids.
    pub(super) fn looked(&mut self, at_us: Instant) -> &mut Self {
        let ends_us = Some(self.books().end(0));
        let (bids, last) = (&self.history.bids[0], &mut self.history.last[0]);
        (last.bids, last.highest, last.ends_us) = (bids.len() as u32, bids.last().copied(), ends_us);
        (last.sent_us, last.received_us) = (at_us, at_us);
        self
    }

    /// Sets the last read to the instant of the last bid, while the auction runs.
    pub(super) fn ends_here(&mut self) {
        let at_us = self.history.bids[0].last().map_or(0, |bid| bid.at_us);
        self.looked(at_us);
    }

    /// Sets the balances to the sums of the records.
    pub(super) fn balances(&mut self) {
        for (records, balance) in self.history.records.iter().zip(&mut self.history.balances) {
            balance.total = records.iter().map(|record| record.total_delta).sum();
            balance.available = records.iter().map(|record| record.available_delta).sum();
        }
    }

    /// Computes the hashes of the records.
    pub(super) fn chain(&mut self) {
        for member in 0..MEMBERS {
            let mut chain = [0; 32];
            for at in 0..self.history.records[member as usize].len() {
                chain = chained(&self.history, member, &self.history.records[member as usize][at], chain);
                self.history.records[member as usize][at].hash = chain;
            }
        }
    }
}
