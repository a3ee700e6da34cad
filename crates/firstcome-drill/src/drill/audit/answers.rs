//! Checks the answers themselves: only those that the API allows, every cheat refused, nothing acknowledged is taken
//! back.

use super::super::facts::AuditCheck;
use super::super::plan::Cheat;
use super::super::record::{Call, History, Record, Reply};
use super::{CheckCounter, seconds};
use std::collections::HashMap;

/// The answer that a cheat must get.
const fn wanted(cheat: Cheat) -> Reply {
    match cheat {
        Cheat::ForgedTicket | Cheat::FlippedTicket | Cheat::ForeignTicket => Reply::UnknownTicket,
        Cheat::NoPass => Reply::PassRequired,
        Cheat::VerifyForged | Cheat::VerifyForeign => Reply::Invalid,
        Cheat::SharedPass => Reply::AlreadyIssued,
        Cheat::NoKey | Cheat::WrongKey => Reply::Unauthorized,
        Cheat::ForgedPass
        | Cheat::ForeignPass
        | Cheat::FlippedPass
        | Cheat::OtherUser
        | Cheat::ReleasedPass
        | Cheat::LeftPass => Reply::InvalidPass,
    }
}

/// Checks that every cheat is refused with its own code.
pub(crate) fn cheats_refused(history: &History) -> AuditCheck {
    let mut counter =
        CheckCounter::new("cheats_refused", "every forged, flipped, foreign, dead or shared thing is refused");
    let cheats = history.records.iter().filter(|record| record.call == Call::Cheat && !record.reply.is_undecided());
    for record in cheats {
        let Some(&cheat) = Cheat::ALL.get(record.value as usize) else { continue };
        // The slot may have ended meanwhile: its pass is then invalid, which is a refusal too.
        let over = cheat == Cheat::SharedPass && record.poll_after_ms == 1 && record.reply == Reply::InvalidPass;
        counter.check(record.reply == wanted(cheat) || over, || {
            let (name, at) = (cheat.name(), seconds(record.sent_us));
            format!("{name} was answered {:?} at {at}", record.reply)
        });
    }
    counter.done()
}

/// Whether the API allows this answer to this call.
const fn knows(call: Call, reply: Reply, room: bool) -> bool {
    if reply.is_undecided() {
        return !matches!(reply, Reply::RateLimited) || matches!(call, Call::Join);
    }
    match call {
        Call::Join => matches!(reply, Reply::Joined | Reply::JoinedAgain | Reply::RoomFull),
        Call::Poll => matches!(reply, Reply::Waiting | Reply::Admitted | Reply::Expired | Reply::Left),
        Call::Leave | Call::Release => matches!(reply, Reply::Done),
        Call::Claim => match reply {
            Reply::Issued | Reply::AlreadyIssued | Reply::SoldOut => true,
            Reply::InvalidPass => room,
            Reply::NotOpen => !room,
            _ => false,
        },
        Call::Verify => matches!(reply, Reply::Valid | Reply::Invalid),
        Call::View => matches!(reply, Reply::CouponOpen | Reply::CouponSoldOut),
        // Other checks judge cheats one by one.
        Call::Cheat => !matches!(reply, Reply::Unexpected),
    }
}

/// Checks that every status and code is one that the API allows for the call.
pub(crate) fn answers_known(history: &History, room: bool) -> AuditCheck {
    let mut counter =
        CheckCounter::new("answers_known", "every status and code is one that the API knows for the call");
    let mut strange = history.strange.iter();
    for record in &history.records {
        counter.check(knows(record.call, record.reply, room), || {
            let words = if record.reply == Reply::Unexpected { strange.next() } else { None };
            let told =
                || format!("{} was answered {:?} at {}", record.call.name(), record.reply, seconds(record.sent_us));
            words.cloned().unwrap_or_else(told)
        });
    }
    counter.done()
}

/// Checks that an acknowledged ticket is never unknown later, and that an acknowledged claim stays, with its code.
pub(crate) fn acknowledged_stays(history: &History) -> AuditCheck {
    let says = "a ticket that was told is never unknown later, and a claim that was told is in the list with its code";
    let mut counter = CheckCounter::new("acknowledged_stays", says);
    let asks = |record: &&Record| matches!(record.call, Call::Poll | Call::Leave) && 0 < record.number;
    for record in history.records.iter().filter(asks) {
        counter.check(record.reply != Reply::UnknownTicket, || {
            format!("number {} was unknown at {}", record.number, seconds(record.received_us()))
        });
    }
    let listed: HashMap<u32, _> = history.listed.iter().map(|claim| (claim.serial, claim)).collect();
    for told in &history.told {
        let stays = listed.get(&told.serial);
        let same = stays.is_some_and(|claim| (claim.code_hash, claim.holder) == (told.code_hash, told.holder));
        counter.check(same, || {
            let what = if stays.is_some() { "has another code or holder" } else { "is not there" };
            format!("serial {} of {:?} was told at {} and {what}", told.serial, told.holder, seconds(told.received_us))
        });
    }
    counter.done()
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    #[test]
    fn every_cheat_has_one_right_refusal() {
        for cheat in Cheat::ALL {
            let mut story = Story::new();
            story.says(Call::Cheat, wanted(cheat), 1, 0, 10).value = cheat as u32;
            story.says(Call::Cheat, Reply::Lost, 1, 0, 10).value = cheat as u32;
            let good = cheats_refused(&story.history);
            assert_eq!((good.checked, good.breaches), (1, 0), "{cheat:?}");
            for wrong in [Reply::Waiting, Reply::Issued, Reply::Valid, Reply::Unexpected, Reply::RoomFull] {
                let mut story = Story::new();
                story.says(Call::Cheat, wrong, 1, 0, 10).value = cheat as u32;
                assert_eq!(cheats_refused(&story.history).breaches, 1, "{cheat:?} {wrong:?}");
            }
        }
    }

    #[test]
    fn an_answer_of_another_call_is_not_known() {
        let mut story = Story::new();
        story.join(0, 1, 0, 1).waits(1, 2, 3, 0).claims(1, 4, 5, 1);
        story.says(Call::Poll, Reply::Overloaded, 1, 6, 7);
        assert_eq!(answers_known(&story.history, true).breaches, 0);
        story.says(Call::Poll, Reply::RateLimited, 1, 6, 7);
        story.says(Call::Claim, Reply::NotOpen, 1, 6, 7);
        story.says(Call::Release, Reply::InvalidPass, 1, 6, 7);
        assert_eq!(answers_known(&story.history, true).breaches, 3);
        story.says(Call::View, Reply::Unexpected, 1, 6, 7);
        story.history.strange.push("look: 500 oh".into());
        let check = answers_known(&story.history, true);
        assert!(check.examples.contains(&"look: 500 oh".to_owned()), "{:?}", check.examples);
    }

    #[test]
    fn what_was_told_stays() {
        let mut story = Story::new();
        story.join(0, 1, 0, 1).waits(1, 2, 3, 0).claims(1, 4, 5, 1).listed(1, 1);
        assert_eq!(acknowledged_stays(&story.history).breaches, 0);
        story.says(Call::Poll, Reply::UnknownTicket, 1, 8, 9);
        story.history.listed[0].code_hash = 99;
        story.claims(2, 10, 11, 2);
        assert_eq!(acknowledged_stays(&story.history).breaches, 3);
    }
}
