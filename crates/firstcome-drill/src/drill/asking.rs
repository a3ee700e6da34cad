//! The requests of people: writes each step as a request.

use super::crowd::{Act, Step};
use super::messages::Request;
use super::people::{Fate, People, Phase, Stage};
use super::plan::Cheat;
use crate::rng::Rng;

impl People {
    /// Whether the step has no effect that matters after the event.
    fn is_fruitless(&self, step: &Step) -> bool {
        let effect = matches!(step.act, Act::Claim | Act::Leave | Act::Release) && self.stage.room.is_some();
        !effect && self.all[step.person as usize].phase != Phase::Over
    }

    /// Sends home everybody who would only ask again, since the event is over. Returns the remaining steps.
    pub(crate) fn send_home(&mut self, steps: Vec<Step>) -> Vec<Step> {
        let (fruitless, left): (Vec<Step>, Vec<Step>) = steps.into_iter().partition(|step| self.is_fruitless(step));
        for step in fruitless.iter().filter(|step| !step.act.is_side()) {
            self.go_home(step.person, Fate::StillThere);
        }
        left
    }

    /// Writes the request of this step. Returns false if there is none: the person has gone home, or goes home now
    /// because the event is over and the step has no effect.
    pub(crate) fn ask(&mut self, step: &Step, now_us: u64, over: bool, out: &mut Vec<u8>) -> bool {
        let one = &self.all[step.person as usize];
        if one.phase == Phase::Home || (step.act.is_side() && (one.phase != Phase::Unborn || self.sold_out)) {
            return false;
        }
        if over && self.is_fruitless(step) {
            self.go_home(step.person, Fate::StillThere);
            return false;
        }
        // The slot may end during the call, so that no answer could be judged.
        if step.act == Act::Cheat && one.phase == Phase::Admitted && one.expires_us < now_us + 3_000_000 {
            self.go_home(step.person, Fate::LostSlot);
            return false;
        }
        let person = step.person;
        if self.stage.room.is_some() {
            self.write_in_room(step, out);
        } else {
            write_at_counter(&self.stage, step.act, person, out);
        }
        true
    }

    fn write_in_room(&self, step: &Step, out: &mut Vec<u8>) {
        let (stage, person) = (&self.stage, step.person);
        let one = &self.all[person as usize];
        let room = stage.room.as_deref().unwrap_or_default();
        let ticket = one.ticket.as_deref().unwrap_or_default();
        let pass = one.pass.as_deref().unwrap_or_default();
        let by_shop = stage.by_shop(person);
        let name = format!("u{person}");
        let service = Some(stage.keys.service.as_str());
        let named = ["{\"user\":\"", name.as_str(), "\"}"];
        let who: &[&str] = if by_shop { &named } else { &["{}"] };
        let public = Request { person: Some(person), ..Request::default() };
        match step.act {
            Act::Join | Act::JoinTwin | Act::JoinHangUp => {
                let path = &["/v1/rooms/", room, "/tickets"];
                let keyed = !by_shop || Stage::keyed(person);
                let idempotency = keyed.then_some(("join", stage.seed, person));
                let key = service.filter(|_| by_shop);
                Request { method: "POST", path, key, idempotency, body: who, ..public }.write(out);
            }
            Act::Poll => {
                Request { method: "GET", path: &["/v1/rooms/", room, "/tickets/", ticket], ..public }.write(out);
            }
            Act::Leave => {
                Request { method: "DELETE", path: &["/v1/rooms/", room, "/tickets/", ticket], ..public }.write(out);
            }
            Act::Claim | Act::ClaimTwin | Act::ClaimHangUp => {
                let path = &["/v1/coupons/", stage.coupon.as_str(), "/claims"];
                // After the slot has ended, a repeat with the key of a successful claim would prove nothing.
                let keyed = Stage::keyed(person) && one.phase == Phase::Admitted;
                let idempotency = keyed.then_some(("claim", stage.seed, person));
                Request { method: "POST", path, pass: Some(pass), idempotency, body: who, ..public }.write(out);
            }
            Act::Release => {
                let path = &["/v1/rooms/", room, "/passes/release"];
                let body = &["{\"pass\":\"", pass, "\"}"];
                Request { method: "POST", path, key: service, body, ..Request::default() }.write(out);
            }
            Act::Verify => {
                let path = &["/v1/rooms/", room, "/passes/verify"];
                let body = &["{\"pass\":\"", pass, "\"}"];
                Request { method: "POST", path, key: service, body, ..Request::default() }.write(out);
            }
            Act::View => {
                Request { method: "GET", path: &["/v1/coupons/", stage.coupon.as_str()], ..public }.write(out);
            }
            Act::Cheat => self.write_cheat(person, room, who, out),
        }
    }

    fn write_cheat(&self, person: u32, room: &str, who: &[&str], out: &mut Vec<u8>) {
        let (stage, one) = (&self.stage, &self.all[person as usize]);
        let Some(cheat) = self.cheat_of(person) else { return };
        let mut rng = Rng::of(stage.seed, person, 3);
        let ticket = one.ticket.as_deref().unwrap_or_default();
        let pass = one.pass.as_deref().unwrap_or_default();
        let none = (String::new(), String::new());
        let any = rng.below(stage.foreign.len().max(1) as u64) as usize;
        let (foreign_ticket, foreign_pass) = stage.foreign.get(any).unwrap_or(&none);
        let public = Request { person: Some(person), ..Request::default() };
        let poll = |ticket: &str, out: &mut Vec<u8>| {
            Request { method: "GET", path: &["/v1/rooms/", room, "/tickets/", ticket], ..public }.write(out);
        };
        let claim = |pass: Option<&str>, body: &[&str], out: &mut Vec<u8>| {
            let path = &["/v1/coupons/", stage.coupon.as_str(), "/claims"];
            Request { method: "POST", path, pass, body, person: Some(person), ..Request::default() }.write(out);
        };
        let verify = |pass: &str, out: &mut Vec<u8>| {
            let (path, key) = (&["/v1/rooms/", room, "/passes/verify"], Some(stage.keys.service.as_str()));
            let body = &["{\"pass\":\"", pass, "\"}"];
            Request { method: "POST", path, key, body, ..Request::default() }.write(out);
        };
        match cheat {
            Cheat::ForgedTicket => poll(&forged(ticket, &mut rng), out),
            Cheat::FlippedTicket => poll(&flipped(ticket, &mut rng), out),
            Cheat::ForeignTicket => poll(foreign_ticket, out),
            Cheat::NoPass => claim(None, who, out),
            Cheat::ForgedPass => claim(Some(&forged(foreign_pass, &mut rng)), who, out),
            Cheat::ForeignPass => claim(Some(foreign_pass), who, out),
            Cheat::VerifyForged => verify(&forged(foreign_pass, &mut rng), out),
            Cheat::VerifyForeign => verify(foreign_pass, out),
            Cheat::FlippedPass => claim(Some(&flipped(pass, &mut rng)), who, out),
            Cheat::OtherUser => claim(Some(pass), &["{\"user\":\"somebody-else\"}"], out),
            Cheat::ReleasedPass | Cheat::LeftPass | Cheat::SharedPass => claim(Some(pass), who, out),
            Cheat::NoKey | Cheat::WrongKey => write_at_counter(stage, Act::Cheat, person, out),
        }
    }
}

/// Writes a claim of the shop's back end for one of its people.
fn write_at_counter(stage: &Stage, act: Act, person: u32, out: &mut Vec<u8>) {
    let name = format!("u{person}");
    let wrong = "nobody-has-ever-made-such-a-key";
    let cheats_without = act == Act::Cheat && !Stage::keyed(person);
    let key = if act == Act::Cheat { wrong } else { stage.keys.service.as_str() };
    let request = Request {
        method: "POST",
        path: &["/v1/coupons/", stage.coupon.as_str(), "/claims"],
        key: (!cheats_without).then_some(key),
        idempotency: (Stage::keyed(person) && act != Act::Cheat).then_some(("claim", stage.seed, person)),
        body: &["{\"user\":\"", name.as_str(), "\"}"],
        ..Request::default()
    };
    request.write(out);
}

/// Returns a text of the same shape with other letters and digits.
fn forged(text: &str, rng: &mut Rng) -> String {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let other = |letter: char| {
        if letter.is_ascii_alphanumeric() { char::from(LETTERS[rng.below(36) as usize]) } else { letter }
    };
    text.chars().map(other).collect()
}

/// Returns the text with one character changed, to one that also differs if case is ignored.
fn flipped(text: &str, rng: &mut Rng) -> String {
    let places: Vec<usize> = text.char_indices().filter(|(_, c)| c.is_ascii_alphanumeric()).map(|(at, _)| at).collect();
    if places.is_empty() {
        return "x".into();
    }
    let place = places[rng.below(places.len() as u64) as usize];
    let flip = |(at, c): (usize, char)| match (at == place, c.to_ascii_lowercase()) {
        (false, _) => c,
        (true, 'a') => 'b',
        (true, _) => 'a',
    };
    text.char_indices().map(flip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgeries_have_the_shape_and_are_not_the_same() {
        let text = "v1.AbC-dE_9.xyz";
        for seed in 0..200 {
            let mut rng = Rng::from_seed(seed);
            let (flipped, forged) = (flipped(text, &mut rng), forged(text, &mut rng));
            let changed = flipped.chars().zip(text.chars()).filter(|(a, b)| a != b).count();
            assert_eq!((changed, flipped.len(), forged.len()), (1, text.len(), text.len()));
            assert_ne!(forged, text);
            assert!(!flipped.eq_ignore_ascii_case(text));
        }
    }
}
