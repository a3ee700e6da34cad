//! Checks the idempotency keys: one effect each, and the same answer to every repeat.

use super::super::CheckCounter;
use super::{seconds, who};
use crate::drill::auction::record::{DrillReply, History, ReceivedReply, RequestKind};
use crate::drill::facts::AuditCheck;
use std::collections::BTreeMap;

/// Checks that all effects told under a key are equal. After the first such answer, a repeat gets the same answer, and
/// another body gets `idempotency_key_reused`. Another body never gets that refusal without an effect under the key.
pub(super) fn one_effect_per_key(history: &History) -> AuditCheck {
    let says = "a key has one effect: every repeat is answered alike, through every kill, and another body under it is refused";
    let mut counter = CheckCounter::new("one_effect_per_key", says);
    let mut keys: BTreeMap<(RequestKind, u32), Vec<&ReceivedReply>> = BTreeMap::new();
    for on_reply in &history.on_reply {
        let order = history.order(on_reply);
        keys.entry((order.what, order.key)).or_default().push(on_reply);
    }
    for ((what, key), on_reply) in keys {
        let member = who(history.order(on_reply[0]).member);
        let about = |on_reply: &ReceivedReply| {
            format!("{} {key} by {member}, sent {}: {:?}", what.name(), seconds(on_reply.sent_us), on_reply.told)
        };
        let effects: Vec<&ReceivedReply> =
            on_reply.iter().copied().filter(|on_reply| on_reply.told.is_effect()).collect();
        // An effect is known from its first answer on.
        let first = effects.iter().min_by_key(|on_reply| on_reply.received_us).copied();
        for one in &on_reply {
            let Some(effect) = first else { break };
            let told = match one.told {
                told if told.is_effect() => one.order == effect.order && told == effect.told,
                told if told.is_undecided() => continue,
                _ if one.sent_us <= effect.received_us && one.order == effect.order => continue,
                DrillReply::KeyReused => one.order != effect.order,
                // A refused request was sent before the other body had its effect; later it must get
                // `idempotency_key_reused`.
                _ => one.sent_us <= effect.received_us,
            };
            counter.check(told, || {
                format!("{}, and the key had its effect by {}", about(one), seconds(effect.received_us))
            });
        }
        for one in on_reply.iter().filter(|on_reply| on_reply.told == DrillReply::KeyReused) {
            let can_have = |other: &&ReceivedReply| {
                let effect = other.told.is_effect() || other.told.is_undecided();
                other.order != one.order && effect && other.sent_us <= one.received_us
            };
            counter.check(on_reply.iter().copied().any(|other| can_have(&other)), || {
                format!("{}, and no other body can have had an effect", about(one))
            });
        }
    }
    counter.done()
}

#[cfg(test)]
mod tests {
    use super::super::story::Story;
    use super::*;

    const MOVED: DrillReply = DrillReply::Moved { total: 100, available: 100 };

    #[test]
    fn repeats_are_answered_alike() {
        let mut story = Story::new();
        story.asks(RequestKind::Charge, 1, 100, [10, 20], MOVED);
        story.hears_again(0, 30, 40, MOVED);
        assert_eq!(one_effect_per_key(&story.history).breaches, 0);
        let mut other = story.clone();
        other.hears_again(0, 50, 60, DrillReply::Moved { total: 200, available: 200 });
        assert_eq!(one_effect_per_key(&other.history).breaches, 1);
        let mut refused = story.clone();
        refused.hears_again(0, 50, 60, DrillReply::Insufficient(3));
        assert_eq!(one_effect_per_key(&refused.history).breaches, 1);
        let mut reused = story;
        reused.hears_again(0, 50, 60, DrillReply::KeyReused);
        assert!(1 <= one_effect_per_key(&reused.history).breaches);
    }

    #[test]
    fn another_body_is_sent_away_and_only_then() {
        let mut story = Story::new();
        story.asks(RequestKind::Charge, 1, 100, [10, 20], MOVED);
        story.asks(RequestKind::Charge, 1, 200, [30, 40], DrillReply::KeyReused);
        story.history.orders[1].key = story.history.orders[0].key;
        assert_eq!(one_effect_per_key(&story.history).breaches, 0);
        let mut both = story.clone();
        both.history.on_reply[1].told = MOVED;
        assert_eq!(one_effect_per_key(&both.history).breaches, 1, "two bodies had an effect");
        let mut groundless = story;
        groundless.history.on_reply[0].told = DrillReply::Insufficient(1);
        assert_eq!(one_effect_per_key(&groundless.history).breaches, 1);
    }
}
