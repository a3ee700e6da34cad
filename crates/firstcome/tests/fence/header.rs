//! Tokens in headers, without a server.

use crate::token;
use firstcome::fence::sql::{ColumnError, Columns};
use firstcome::fence::{HeaderError, OWNER_BYTES_MAX, TokenError};
use firstcome::{Fence, FenceToken, Locks};
use proptest::prelude::*;

proptest! {
    #[test]
    fn every_token_comes_back_from_its_header(
        lock in "[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}",
        fence in 1_u64..1 << 53,
        owner in r"[!#-\[\]-~]{1,160}",
    ) {
        let token = token(&lock, fence, &owner);
        prop_assert_eq!(token.to_header().parse::<FenceToken>(), Ok(token));
    }

    #[test]
    fn no_text_but_a_header_is_a_token(text in r#"(lock|fence|owner|=|"|,| |a|7|\\|;|é){0,16}"#) {
        if let Ok(token) = text.parse::<FenceToken>() {
            prop_assert_eq!(token.to_header().parse::<FenceToken>(), Ok(token));
        }
    }
}

#[test]
fn a_header_is_read_in_any_order() {
    let expected = token("auction:7", 1_763_730_000_000_000, "worker-3#9f86d081884c7d65");
    let texts = [
        r#"lock="auction:7", fence="1763730000000000", owner="worker-3#9f86d081884c7d65""#,
        r#" owner="worker-3#9f86d081884c7d65",lock="auction:7" ,	fence="1763730000000000"  "#,
    ];
    for text in texts {
        assert_eq!(text.parse(), Ok(expected.clone()), "{text}");
    }
    assert_eq!(expected.to_header(), texts[0]);
}

#[test]
fn what_is_no_header_is_refused() {
    use HeaderError::{Fence, Missing, Syntax, TooLong, Twice, Unknown};
    let good = r#"lock="a", fence="7", owner="b""#;
    assert_eq!(good.parse(), Ok(token("a", 7, "b")));
    let long = format!(r#"lock="a", fence="7", owner="{}""#, "b".repeat(500));
    let rows = [
        ("", Syntax),
        ("garbage", Syntax),
        (r#"lock="a""#, Missing("fence")),
        (r#"lock="a", fence="7""#, Missing("owner")),
        (r#"fence="7", owner="b""#, Missing("lock")),
        (r#"lock="a", lock="a", fence="7", owner="b""#, Twice("lock")),
        (r#"lock="a", fence="7", fence="8", owner="b""#, Twice("fence")),
        (r#"lock="a", fence="7", owner="b", owner="c""#, Twice("owner")),
        (r#"lock="a", fence="7", owner="b", more="c""#, Unknown),
        (r#"lock="a", fence="7", owner="b","#, Syntax),
        (r#"lock="a", fence="7", owner="b";x=1"#, Syntax),
        (r#"lock="a" fence="7" owner="b""#, Syntax),
        (r#"lock="a",, fence="7", owner="b""#, Syntax),
        (r#"Lock="a", fence="7", owner="b""#, Syntax),
        (r#"lock = "a", fence="7", owner="b""#, Syntax),
        (r#"lock=a, fence=7, owner=b"#, Syntax),
        (r#"lock="a", fence=7, owner="b""#, Syntax),
        (r#"lock="a", fence="7", owner="b"#, Syntax),
        (r#"lock="a", fence="0", owner="b""#, Fence),
        (r#"lock="a", fence="-7", owner="b""#, Fence),
        (r#"lock="a", fence="+7", owner="b""#, Fence),
        (r#"lock="a", fence="07", owner="b""#, Fence),
        (r#"lock="a", fence="7.0", owner="b""#, Fence),
        (r#"lock="a", fence="", owner="b""#, Fence),
        (r#"lock="a", fence="9007199254740992", owner="b""#, Fence),
        (r#"lock="a", fence="99999999999999999999999", owner="b""#, Fence),
        (r#"lock="a", fence="7", owner="""#, HeaderError::Token(TokenError::Owner)),
        (r#"lock="a", fence="7", owner="b c""#, HeaderError::Token(TokenError::Owner)),
        (r#"lock="a", fence="7", owner="b\c""#, HeaderError::Token(TokenError::Owner)),
        (r#"lock="a", fence="7", owner="é""#, HeaderError::Token(TokenError::Owner)),
        (&long, TooLong),
    ];
    for (text, expected) in rows {
        assert_eq!(text.parse::<FenceToken>(), Err(expected), "{text}");
    }
    for lock in ["", "é", "a b", "-a"] {
        let read = format!(r#"lock="{lock}", fence="7", owner="b""#).parse::<FenceToken>();
        assert!(matches!(read, Err(HeaderError::Token(TokenError::Lock(_)))), "{lock}");
    }
}

#[test]
fn an_owner_is_visible_ascii_without_quotes() {
    let fence = Fence::new(7).unwrap();
    let longest = "~".repeat(OWNER_BYTES_MAX);
    assert!(FenceToken::new("a", fence, &longest).is_ok());
    for owner in ["", "a b", "a\"", "a\\", "a\n", "ä", "\u{7f}", &format!("{longest}~")] {
        assert_eq!(FenceToken::new("a", fence, owner), Err(TokenError::Owner), "{owner:?}");
    }
}

#[test]
fn a_column_is_a_plain_identifier() {
    let longest = "c".repeat(63);
    for good in ["fence", "_f2", "F", &longest] {
        assert!(Columns::new(good, "owner").is_ok() && Columns::new("fence", good).is_ok(), "{good}");
    }
    for bad in ["", "2f", "a b", "a;", "a\"", "a--", "a.b", "\u{e4}", &format!("{longest}c")] {
        assert_eq!(Columns::new(bad, "owner"), Err(ColumnError), "{bad}");
        assert_eq!(Columns::new("fence", bad), Err(ColumnError), "{bad}");
    }
    assert_eq!(Columns::default(), Columns::new("fence", "fence_owner").unwrap());
}

#[tokio::test]
async fn a_token_names_one_hold() {
    let locks = Locks::memory();
    let ask = || locks.lock("a").owner(&"o".repeat(128)).acquire();
    let first = ask().await.unwrap();
    let told = first.token().unwrap();
    assert_eq!((told.lock(), told.fence()), ("a", first.fence().unwrap()));
    assert_eq!(first.reenter().await.unwrap().token().unwrap(), told);
    first.release().await.unwrap();
    let second = ask().await.unwrap();
    assert_ne!(second.token().unwrap().owner(), told.owner());
    assert!(told.fence() < second.fence().unwrap());
    // Still the same hold when it is handed out.
    let told = second.token().unwrap();
    let lease = second.hand_out().await.unwrap();
    assert_eq!(lease.token(), told);
    // Nothing of the request, which allows to give the lock back, can be read in it.
    for secret in [lease.request.client.0, lease.request.number] {
        assert!(!told.owner().contains(&format!("{secret:x}")) && !told.owner().contains(&secret.to_string()));
    }
    assert_eq!(told.owner().len(), 128 + "#0123456789abcdef".len());
}
