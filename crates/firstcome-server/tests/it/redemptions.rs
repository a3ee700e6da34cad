//! The row that uses up a coupon.

use crate::service::redeem;
use crate::stores::on_each;
use serde_json::json;

pub(crate) async fn a_code_is_used_up_once() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9})).await;
        let code = service.claim_code("launch", "ann").await;
        service.set_clock(7);
        let redeemed = service.redeem("launch", &code).await.is(201);
        assert_eq!(redeemed.header("cache-control"), Some("no-store"));
        let wanted = json!({"coupon": "launch", "user": "ann", "serial": 1, "code": code,
            "issued_at": "2030-01-01T00:00:00Z", "redeemed_at": "2030-01-01T00:00:07Z"});
        assert_eq!(redeemed.json(), wanted);
        service.set_clock(8);
        let again = service.redeem("launch", &code).await.refused(409, "already_redeemed");
        assert_eq!(again.text("redeemed_at"), "2030-01-01T00:00:07Z");
        assert_eq!(service.claim_of("launch", "ann").await.text("redeemed_at"), "2030-01-01T00:00:07Z");
        assert_eq!(service.claims("launch", "").await.json()["items"][0]["redeemed_at"], "2030-01-01T00:00:07Z");
    })
    .await;
}

pub(crate) async fn case_blanks_and_dashes_of_a_code_do_not_matter() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9})).await;
        for (user, spell) in [
            ("ann", (|code| code.to_lowercase()) as fn(&str) -> String),
            ("bob", |code| code.replace('-', "")),
            ("cid", |code| format!(" {} ", code.replace('-', " "))),
        ] {
            let code = service.claim_code("launch", user).await;
            let redeemed = service.redeem("launch", &spell(&code)).await.is(201);
            assert_eq!((redeemed.text("code"), redeemed.text("user").as_str()), (code, user));
        }
    })
    .await;
}

pub(crate) async fn a_code_that_is_not_of_this_coupon_is_unknown() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9})).await;
        service.make("other", json!({"limit": 9})).await;
        let code = service.claim_code("launch", "ann").await;
        service.claim("other", "ann").await.is(201);
        service.redeem("other", &code).await.refused(404, "unknown_code");
        let typo = code.replacen(|c: char| c != '-', if code.starts_with('2') { "3" } else { "2" }, 1);
        for wrong in [typo.as_str(), "", "-", "1", "22222-22222-22222-22222", "🎫", "\u{0}", &"2".repeat(60_000)] {
            service.redeem("launch", wrong).await.refused(404, "unknown_code");
        }
        service.redeem("launch", &code).await.is(201);
    })
    .await;
}

pub(crate) async fn a_code_is_redeemed_for_its_holder_only() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9})).await;
        let code = service.claim_code("launch", "ann").await;
        let by = |user: &str| redeem("launch", &json!({"code": code, "user": user}));
        service.send(by("bob")).await.refused(409, "wrong_user");
        service.send(by("pass:1")).await.refused(400, "invalid_name");
        assert!(service.claim_of("launch", "ann").await.json().get("redeemed_at").is_none());
        service.send(by("ann")).await.is(201);
        service.send(by("bob")).await.refused(409, "wrong_user");
        service.send(by("ann")).await.refused(409, "already_redeemed");
    })
    .await;
}

pub(crate) async fn redeeming_ends_at_its_own_instant() {
    on_each(async |service| {
        let settings =
            json!({"limit": 9, "expires_at": "2030-01-01T00:00:05Z", "redeem_until": "2030-01-01T00:00:10Z"});
        service.make("launch", settings).await;
        let (ann, bob) = (service.claim_code("launch", "ann").await, service.claim_code("launch", "bob").await);
        service.set_clock(9);
        service.redeem("launch", &ann).await.is(201);
        service.set_clock(10);
        let late = service.redeem("launch", &bob).await.refused(410, "expired");
        assert_eq!(late.text("expired_at"), "2030-01-01T00:00:10Z");
        service.redeem("launch", &ann).await.refused(409, "already_redeemed");
        assert!(service.claim_of("launch", "bob").await.json().get("redeemed_at").is_none());
    })
    .await;
}
