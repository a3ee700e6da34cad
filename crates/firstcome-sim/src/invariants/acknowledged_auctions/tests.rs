use super::check;
use crate::auction::history::{AuctionReply, Command};
use crate::history::Outcome;
use crate::invariants::auction_story::{Story, amount, bid_of, member, name, purchase_of, transfer_of};
use firstcome_core::auction::{Bid, Phase, PlacedBid, Rejection, Sale};
use firstcome_core::coupon::Effect;
use firstcome_core::id::RequestId;
use firstcome_core::points::{Balance, Kind};
use firstcome_core::time::Timestamp;
use firstcome_store::Put;
use firstcome_store::Transfer::{Charge, Refund};

fn key(key: u128, body: u64) -> Option<RequestId> {
    Some(RequestId { key, body })
}

/// Ann with 50 points has bid 10.
fn begun() -> Story {
    let mut story = Story::auction();
    story.charge("ann", 50).bid("ann", 10);
    story
}

#[test]
fn a_whole_story_is_clean() {
    let mut story = begun();
    story.viewed().replied_balance("ann", 50, 10).outbid("bob", 20, 60).refund("ann", 50).replied_balance("ann", 0, 0);
    story.pass_ms(10_000).refused(purchase_of("bob", None), Rejection::AuctionNotEnded(story_end()));
    story.pass_ms(1).refused(bid_of("ann", 30, None), Rejection::NotInProgress);
    story.refused(purchase_of("ann", None), Rejection::NotWinner).ended().viewed().sold("bob").viewed();
    story.assert_clean(check);
}

fn story_end() -> Timestamp {
    Story::auction().standing().effective_ends_at
}

#[test]
fn a_bid_that_was_told_and_is_not_stored_so_is_found() {
    let mut story = begun();
    let bid = Bid { number: 2, bidder: member("ann"), price: amount(20), at: story.now() };
    let placed = PlacedBid { bid, effective_ends_at: story_end(), fence: 3 };
    story.told(bid_of("ann", 20, None), AuctionReply::Placed(Effect::New(placed)));
    story.assert_found(check, "bid 2 was told, and is not stored so");
    let mut story = begun();
    story.charge("bob", 50);
    let asked = story.ask(bid_of("bob", 20, None));
    let right = story.placed("bob", 20, None);
    story.tell(asked, AuctionReply::Placed(Effect::New(PlacedBid { fence: 9, ..right })));
    story.assert_found(check, "is not stored so");
}

#[test]
fn a_bid_that_is_told_before_it_is_stored_or_as_new_again_is_found() {
    let mut story = begun();
    story.charge("bob", 50);
    let asked = story.ask(bid_of("bob", 20, None));
    let placed = story.placed("bob", 20, None);
    story.end(asked, Outcome::Unknown).end_life();
    story.assert_clean(check);
    story.told(bid_of("bob", 20, None), AuctionReply::Placed(Effect::New(placed)));
    story.assert_found(check, "was stored before it was asked for");
    let mut story = begun();
    let (first, second) = (story.ask(bid_of("bob", 20, None)), story.ask(bid_of("bob", 20, None)));
    story.transfer("bob", Charge, 50, None);
    let placed = story.placed("bob", 20, None);
    story.tell(first, AuctionReply::Placed(Effect::New(placed.clone())));
    story.tell(second, AuctionReply::Placed(Effect::New(placed)));
    story.assert_found(check, "told as new twice");
}

#[test]
fn a_key_with_two_effects_or_with_another_answer_is_found() {
    let mut story = begun();
    story.charge("bob", 90);
    let asked = story.ask(bid_of("bob", 20, key(7, 7)));
    let placed = story.placed("bob", 20, key(7, 7));
    story.tell(asked, AuctionReply::Placed(Effect::New(placed.clone())));
    story.told(bid_of("bob", 20, key(7, 7)), AuctionReply::Placed(Effect::Again(placed)));
    story.refused(bid_of("bob", 30, key(7, 8)), Rejection::KeyReused);
    story.assert_clean(check);
    story.refused(bid_of("bob", 20, key(7, 7)), Rejection::AlreadyHighestBidder);
    story.assert_found(check, "its key was used before");
    let mut story = begun();
    story.refused(bid_of("ann", 20, key(7, 7)), Rejection::KeyReused);
    story.assert_found(check, "never so");
    let mut story = Story::auction();
    story.transfer("ann", Charge, 10, Some(7)).transfer("ann", Charge, 10, Some(7));
    story.assert_found(check, "moved points twice");
}

#[test]
fn the_key_of_a_movement_is_forgotten_after_its_time_and_not_before() {
    let month_ms = firstcome_core::limits::POINTS_KEY_MS;
    let mut story = Story::auction();
    story.transfer("ann", Charge, 10, Some(7)).pass_ms(month_ms + 1).transfer("ann", Charge, 10, Some(7));
    story.assert_clean(check);
    let mut story = Story::auction();
    story.transfer("ann", Charge, 10, Some(7)).pass_ms(month_ms).transfer("ann", Charge, 10, Some(7));
    story.assert_found(check, "moved points twice");
}

#[test]
fn what_no_client_asked_for_is_found() {
    let mut story = begun();
    story.charge("bob", 50).placed("bob", 20, None);
    story.assert_found(check, "without a request");
    let mut story = begun();
    story.transferred("ann", Kind::Charge, 5, None);
    story.assert_found(check, "without a request");
    let mut story = begun();
    let asked = story.ask(transfer_of("ann", Charge, 5, None));
    story.transferred("ann", Kind::Charge, 5, None);
    story.transferred("ann", Kind::Charge, 5, None);
    story.end(asked, Outcome::Unknown).end_life();
    story.assert_found(check, "or too often");
    let mut story = begun();
    let asked = story.ask(transfer_of("ann", Charge, 5, None));
    story.transferred("ann", Kind::Charge, 5, None);
    story.end(asked, Outcome::NotDone);
    story.assert_found(check, "without a request");
}

#[test]
fn a_movement_that_was_told_and_is_not_stored_is_found() {
    let mut story = begun();
    let balance = Balance::new(55, 10).unwrap();
    story.told(transfer_of("ann", Charge, 5, None), AuctionReply::Moved(Effect::New(balance)));
    story.assert_found(check, "no such movement is stored");
    let mut story = begun();
    let (first, second) =
        (story.ask(transfer_of("ann", Charge, 5, None)), story.ask(transfer_of("ann", Charge, 5, None)));
    let balance = story.transferred("ann", Kind::Charge, 5, None);
    story
        .tell(first, AuctionReply::Moved(Effect::New(balance)))
        .tell(second, AuctionReply::Moved(Effect::New(balance)));
    story.assert_found(check, "told as new to two");
}

#[test]
fn a_sale_that_was_told_and_is_not_stored_is_found() {
    let mut story = begun();
    story.pass_ms(10_001);
    let sale = Sale { buyer: member("ann"), price: amount(10), at: story.now() };
    story.told(purchase_of("ann", None), AuctionReply::Bought(Effect::New(sale.clone())));
    story.assert_found(check, "is not stored");
    let mut story = begun();
    story.pass_ms(10_001).sold("ann").told(purchase_of("ann", None), AuctionReply::Bought(Effect::New(sale)));
    story.assert_found(check, "told as new, and was stored before");
}

#[test]
fn a_refusal_that_contradicts_how_things_stood_is_found() {
    let wrong: [(Command, Rejection); 9] = [
        (bid_of("bob", 20, None), Rejection::UnknownListing),
        (bid_of("bob", 20, None), Rejection::OwnListing),
        (bid_of("bob", 20, None), Rejection::NotInProgress),
        (bid_of("bob", 20, None), Rejection::AlreadyHighestBidder),
        (bid_of("bob", 10, None), Rejection::BidTooLow(12)),
        (bid_of("bob", 10, None), Rejection::InsufficientPoints(0)),
        (purchase_of("ann", None), Rejection::NotWinner),
        (purchase_of("ann", None), Rejection::SettlementExpired(story_end().plus_ms(5_000))),
        (transfer_of("ann", Refund, 50, None), Rejection::InsufficientPoints(50)),
    ];
    for (command, rejection) in wrong {
        let mut story = begun();
        story.refused(command, rejection);
        story.assert_found(check, "which was never so while it was asked");
    }
    let right: [(Command, Rejection); 6] = [
        (bid_of("owner", 20, None), Rejection::OwnListing),
        (bid_of("ann", 20, None), Rejection::AlreadyHighestBidder),
        (bid_of("bob", 10, None), Rejection::BidTooLow(11)),
        (bid_of("bob", 11, None), Rejection::InsufficientPoints(0)),
        (purchase_of("ann", None), Rejection::AuctionNotEnded(story_end())),
        (transfer_of("ann", Refund, 50, None), Rejection::InsufficientPoints(40)),
    ];
    for (command, rejection) in right {
        let mut story = begun();
        story.refused(command, rejection);
        story.assert_clean(check);
    }
}

#[test]
fn an_end_is_inclusive_and_so_is_the_time_to_settle() {
    let mut story = begun();
    story.pass_ms(10_000).outbid("bob", 20, 50);
    story.assert_clean(check);
    let mut story = begun();
    story.charge("bob", 50).pass_ms(10_000).refused(bid_of("bob", 20, None), Rejection::NotInProgress);
    story.assert_found(check, "never so");
    let mut story = begun();
    let expired = Rejection::SettlementExpired(story_end().plus_ms(5_000));
    story.pass_ms(15_001).refused(purchase_of("ann", None), expired.clone());
    story.assert_clean(check);
    let mut story = begun();
    story.pass_ms(15_000).refused(purchase_of("ann", None), expired);
    story.assert_found(check, "never so");
}

#[test]
fn a_bid_that_should_have_been_refused_is_found() {
    let mut story = begun();
    story.charge("bob", 50).pass_ms(10_001).bid("bob", 20);
    story.assert_found(check, "bid 2 was accepted, and is not_in_progress");
    let mut story = begun();
    story.outbid("bob", 10, 50);
    story.assert_found(check, "bid 2 was accepted, and is bid_too_low");
    let mut story = begun();
    story.bid("ann", 20);
    story.assert_found(check, "bid 2 was accepted, and is already_highest_bidder");
    let mut story = begun();
    story.outbid("owner", 20, 50);
    story.assert_found(check, "bid 2 was accepted, and is own_listing");
}

#[test]
fn an_end_that_accepted_late_bids_do_not_lead_to_is_found() {
    let mut story = Story::extended();
    story.charge("ann", 90).charge("bob", 90).bid("ann", 10).pass_ms(9_000).bid("bob", 20).pass_ms(1_900);
    story.bid("ann", 30).pass_ms(900).bid("bob", 40);
    assert_eq!(story.standing().extensions, 2);
    story.assert_clean(check);
    // As if a bid that was refused had put the end off.
    let mut story = Story::extended();
    story.charge("ann", 90).charge("bob", 90).bid("ann", 10);
    story.row(|standing| {
        standing.effective_ends_at = standing.effective_ends_at.plus_ms(1_000);
        standing.extensions = 1;
        standing.version += 1;
    });
    story.assert_found(check, "bids and settings lead to");
    let mut story = Story::extended();
    story.charge("ann", 90).bid("ann", 10).edit_bids(|placed| {
        placed.effective_ends_at = placed.effective_ends_at.plus_ms(1_000);
    });
    story.assert_found(check, "accepted bids lead to");
}

#[test]
fn bids_out_of_order_and_fences_that_stand_are_found() {
    let mut story = begun();
    story.edit_bids(|placed| placed.bid.number = 2);
    story.assert_found(check, "bid 2 came after bid 0");
    let mut story = begun();
    story.edit_bids(|placed| placed.fence = 1);
    story.assert_found(check, "the fence of bid 1 does not rise");
    let mut story = begun();
    story.edit_bids(|placed| placed.bid.at = placed.bid.at.plus_ms(1));
    story.assert_found(check, "and was judged at");
    let mut story = begun();
    story.pass_ms(10_001).row(|standing| standing.phase = Phase::Ended(standing.last_at));
    story.assert_clean(check);
    story.row(|standing| standing.price = amount(11));
    story.assert_found(check, "bids and settings lead to");
}

#[test]
fn settings_that_were_told_and_are_not_stored_are_found() {
    let mut story = begun();
    let mut settings = firstcome_core::auction::ListingSettings::auction(member("owner"), amount(10), story_end());
    settings.price = amount(11);
    story.told(Command::Put(name(), Box::new(settings)), AuctionReply::Put(Put::Replaced));
    story.assert_found(check, "settings were told to be in force");
}

#[test]
fn a_listing_that_was_there_before_is_not_created() {
    let mut story = begun();
    let settings = crate::auction::rules::ListingRules::of(story.standing()).settings();
    story.told(Command::Put(name(), Box::new(settings.clone())), AuctionReply::Put(Put::Replaced));
    story.assert_clean(check);
    story.told(Command::Put(name(), Box::new(settings)), AuctionReply::Put(Put::Created));
    story.assert_found(check, "Created was told, and it was not so");
}

#[test]
fn a_bid_that_comes_out_after_the_end_was_shown_is_found() {
    for (passed_ms, wanted) in [(10_000, None), (10_001, Some("it was shown as over with 1 bids, and has 2"))] {
        let mut story = begun();
        story.charge("bob", 50).pass_ms(10_000);
        let asked = story.ask(bid_of("bob", 20, None));
        let standing = story.standing().clone();
        let view = firstcome_store::ListingView { standing, now: story.now().plus_ms(passed_ms - 10_000) };
        let look = story.ask(Command::View(name()));
        let placed = story.placed("bob", 20, None);
        story.tell(asked, AuctionReply::Placed(Effect::New(placed))).pass_ms(passed_ms - 10_000);
        story.tell(look, AuctionReply::View(Box::new(view)));
        match wanted {
            Some(wanted) => story.assert_found(check, wanted),
            None => story.assert_clean(check),
        }
    }
}

#[test]
fn a_winner_needs_no_points_beside_those_that_are_held() {
    let mut story = begun();
    story.refund("ann", 40).pass_ms(10_001);
    story.refused(purchase_of("ann", None), Rejection::InsufficientPoints(0));
    story.assert_found(check, "never so");
}

#[test]
fn what_was_read_and_was_not_in_force_is_found() {
    let mut story = begun();
    story.replied_balance("ann", 50, 0);
    story.assert_found(check, "was not so while it was asked");
    let mut story = begun();
    let stale = story.standing().clone();
    story.outbid("bob", 20, 50);
    let view = firstcome_store::ListingView { standing: stale, now: story.now() };
    story.told(Command::View(name()), AuctionReply::View(Box::new(view)));
    story.assert_found(check, "did not stand so");
    let mut story = begun();
    let bid = story.standing().highest.clone().unwrap();
    story.replied_bids(vec![bid.clone()], None);
    story.assert_clean(check);
    story.replied_bids(vec![bid], Some(1));
    story.assert_found(check, "1 items were told");
    let mut story = begun();
    story.replied_bids(Vec::new(), None);
    story.assert_found(check, "0 items were told");
}

#[test]
fn what_was_due_and_stands_open_after_a_tick_is_found() {
    let mut story = begun();
    story.pass_ms(10_000).told(Command::CloseDue, AuctionReply::Closed);
    story.assert_clean(check);
    story.pass_ms(1).told(Command::CloseDue, AuctionReply::Closed);
    story.assert_found(check, "was due, and was not closed");
    let mut story = begun();
    story.pass_ms(15_000).ended().told(Command::CloseDue, AuctionReply::Closed);
    story.assert_clean(check);
    story.pass_ms(1).told(Command::CloseDue, AuctionReply::Closed);
    story.assert_found(check, "was due, and was not closed");
}

#[test]
fn what_is_told_again_needs_its_key_and_its_request() {
    let mut story = begun();
    let asked = story.ask(bid_of("bob", 20, key(7, 7)));
    story.charge("bob", 90);
    let placed = story.placed("bob", 20, key(7, 7));
    story.tell(asked, AuctionReply::Placed(Effect::New(placed.clone())));
    story.told(bid_of("bob", 21, key(7, 7)), AuctionReply::Placed(Effect::Again(placed)));
    story.assert_found(check, "is of another request");
    let mut story = begun();
    story.charge("bob", 50).bid("bob", 20);
    let bid = story.standing().highest.clone().unwrap();
    let placed = PlacedBid { bid, effective_ends_at: story_end(), fence: story.standing().version };
    story.told(bid_of("bob", 20, None), AuctionReply::Placed(Effect::Again(placed)));
    story.assert_found(check, "told again without a key");
    let mut story = begun();
    let balance = Balance::new(50, 0).unwrap();
    story.told(transfer_of("ann", Charge, 50, None), AuctionReply::Moved(Effect::Again(balance)));
    story.assert_found(check, "told again without a key");
    for (who, wanted) in [("ann", "told again without a key"), ("bob", "a sale was told, and is of another request")] {
        let mut story = begun();
        story.pass_ms(10_001).sold("ann");
        let sale = Sale { buyer: member("ann"), price: amount(10), at: story.now() };
        story.told(purchase_of(who, None), AuctionReply::Bought(Effect::Again(sale)));
        story.assert_found(check, wanted);
    }
}

#[test]
fn an_instant_before_the_question_is_found() {
    let mut story = begun();
    story.charge("bob", 50).pass_ms(2_000);
    let asked = story.ask(bid_of("bob", 20, None));
    let placed = story.fall_back_ms(1_000).placed("bob", 20, None);
    story.tell(asked, AuctionReply::Placed(Effect::New(placed)));
    story.assert_found(check, "at which no request was under way");
    let mut story = begun();
    story.pass_ms(12_000);
    let asked = story.ask(purchase_of("ann", None));
    story.fall_back_ms(1_000).sold_unasked("ann");
    let sale = Sale { buyer: member("ann"), price: amount(10), at: story.now() };
    story.tell(asked, AuctionReply::Bought(Effect::New(sale)));
    story.assert_found(check, "a sale has the instant");
    let mut story = begun();
    let view = firstcome_store::ListingView { standing: story.standing().clone(), now: story.now().plus_ms(1) };
    story.told(Command::View(name()), AuctionReply::View(Box::new(view)));
    story.assert_found(check, "it was shown as of");
}

#[test]
fn a_sale_that_two_have_made_or_no_client_is_found() {
    let mut story = begun();
    story.pass_ms(10_001);
    let (first, second) = (story.ask(purchase_of("ann", None)), story.ask(purchase_of("ann", None)));
    let sale = Sale { buyer: member("ann"), price: amount(10), at: story.now() };
    story.sold_unasked("ann").tell(first, AuctionReply::Bought(Effect::New(sale.clone())));
    story.tell(second, AuctionReply::Bought(Effect::New(sale)));
    story.assert_found(check, "was told as new 2 times");
    let mut story = begun();
    story.pass_ms(10_001).sold_unasked("ann");
    story.assert_found(check, "who did not ask for it");
}

#[test]
fn one_key_with_two_bids_is_found() {
    let mut story = begun();
    story.charge("bob", 50);
    let (first, second) = (story.ask(bid_of("bob", 20, key(7, 7))), story.ask(bid_of("ann", 30, key(7, 7))));
    let placed = story.placed("bob", 20, key(7, 7));
    story.tell(first, AuctionReply::Placed(Effect::New(placed)));
    let placed = story.placed("ann", 30, key(7, 7));
    story.tell(second, AuctionReply::Placed(Effect::New(placed)));
    story.assert_found(check, "one key has two bids");
}

#[test]
fn what_is_shown_of_nothing_is_found() {
    let other = firstcome_core::id::ListingName::parse("other").unwrap();
    let mut story = begun();
    let view = firstcome_store::ListingView { standing: story.standing().clone(), now: story.now() };
    story.told(Command::View(other.clone()), AuctionReply::View(Box::new(view)));
    story.assert_found(check, "it was shown, and is not stored");
    let mut story = begun();
    let nothing = firstcome_store::Numbered { items: Vec::new(), next: None, removed_to: 0 };
    story.told(Command::Bids(other, None, 1), AuctionReply::Bids(nothing));
    story.assert_found(check, "nothing is stored");
}

#[test]
fn new_settings_raise_the_version() {
    for (rises, wanted) in [(1, None), (0, Some("it was changed, and its version is"))] {
        let mut story = begun();
        let mut settings = crate::auction::rules::ListingRules::of(story.standing()).settings();
        let end = story_end().plus_ms(1_000);
        if let firstcome_core::auction::Terms::Auction(terms) = &mut settings.terms {
            terms.ends_at = end;
        }
        let asked = story.ask(Command::Put(name(), Box::new(settings.clone())));
        story.row(|standing| {
            (standing.terms, standing.effective_ends_at) = (settings.terms, end);
            standing.version += rises;
        });
        story.tell(asked, AuctionReply::Put(Put::Replaced));
        match wanted {
            Some(wanted) => story.assert_found(check, wanted),
            None => story.assert_clean(check),
        }
    }
}
