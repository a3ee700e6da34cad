//! How the page of a room looks: what an operator may set, and what visitors see of it.

use crate::service::{ADMIN, Answer, Ask, SERVICE, Service, config};
use serde_json::{Value, json};

const LOOK: &str = "/v1/rooms/sale/appearance";
/// `<svg xmlns="http://www.w3.org/2000/svg"/>` in base64.
const SVG: &str = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4=";

fn colors() -> Value {
    json!({"accent": "#0b6e5f", "background": "#ffffff", "text": "#16202c"})
}

fn put(look: &Value) -> Ask {
    Ask::put(LOOK).by(ADMIN).json(look)
}

async fn dressed(look: Value) -> Service {
    let service = Service::memory();
    service.make_room("sale", json!({"max_active": 1})).await;
    service.send(put(&look)).await.is(200);
    service
}

async fn page(service: &Service, language: &str) -> Answer {
    service.send(Ask::get("/rooms/sale").header("accept-language", language)).await.is(503)
}

/// The address of an attribute that begins so.
fn address(page: &str, begin: &str) -> String {
    let (_, rest) = page.split_once(begin).unwrap_or_else(|| panic!("no {begin} in {page}"));
    format!("{begin}{}", rest.split('"').next().unwrap_or_default())
}

pub(crate) async fn an_appearance_is_put_shown_and_taken_back() {
    let service = Service::memory_with(config());
    for ask in [Ask::get(LOOK).by(ADMIN), put(&json!({})), Ask::delete(LOOK).by(ADMIN)] {
        service.send(ask).await.refused(404, "unknown_room");
    }
    service.make_room("sale", json!({"max_active": 1})).await;
    for (key, status, code) in [(None, 401, "unauthorized"), (Some(SERVICE), 403, "forbidden")] {
        for ask in [Ask::get(LOOK), Ask::put(LOOK).json(&json!({})), Ask::delete(LOOK)] {
            let ask = if let Some(key) = key { ask.by(key) } else { ask };
            service.send(ask).await.refused(status, code);
        }
    }
    let shown = async || service.send(Ask::get(LOOK).by(ADMIN)).await.is(200).json();
    assert_eq!(shown().await, json!({}));
    let look = json!({
        "texts": {"title": "Spring concert", "next": "Tickets are sold by name."},
        "translations": {"ko": {"title": "봄 콘서트"}, "zh-Hant": {"footer": "音樂會"}},
        "colors": colors(),
        "dark_colors": {"accent": "#52c7b1", "background": "#171e26", "text": "#e9eef3"},
        "style": "main { border-radius: 0 }",
        "logo": SVG,
    });
    assert_eq!(service.send(put(&look)).await.is(200).json(), look);
    assert_eq!(shown().await, look);
    // All of it is replaced.
    service.send(put(&json!({"texts": null, "translations": {"zh-TW": {"title": "t"}}}))).await.is(200);
    assert_eq!(shown().await, json!({"translations": {"zh-Hant": {"title": "t"}}}));
    for _ in 0..2 {
        service.send(Ask::delete(LOOK).by(ADMIN)).await.is(204);
        assert_eq!(shown().await, json!({}));
    }
}

pub(crate) async fn an_appearance_that_visitors_could_not_use_is_refused() {
    let service = dressed(json!({})).await;
    let with = |name: &str, value: &str| {
        let mut colors = colors();
        colors[name] = json!(value);
        json!({"colors": colors})
    };
    let answer = service.send(put(&with("text", "#999"))).await.refused(400, "low_contrast").json();
    assert_eq!((&answer["field"], &answer["ratio"]), (&json!("colors.text"), &json!(2.84)), "{answer}");
    let dark = json!({"dark_colors": with("accent", "#eee")["colors"]});
    let answer = service.send(put(&dark)).await.refused(400, "low_contrast").json();
    assert_eq!((&answer["field"], &answer["ratio"]), (&json!("dark_colors.accent"), &json!(1.16)), "{answer}");
    let cases = [
        ("colors.text", with("text", "black")),
        ("colors.accent", with("accent", "#fff;}body{display:none")),
        ("colors", json!({"colors": {"accent": "#000"}})),
        ("colors", json!({"colors": ["#000", "#fff", "#000"]})),
        ("texts.titel", json!({"texts": {"titel": "a"}})),
        ("texts", json!({"texts": {"title": ""}})),
        ("texts", json!({"texts": {"title": "a".repeat(513)}})),
        ("texts", json!({"texts": {"footer": "a\nb"}})),
        ("translations", json!({"translations": {"kr": {}}})),
        ("translations", json!({"translations": {"zh": {"title": "a"}, "zh-CN": {"title": "b"}}})),
        ("style", json!({"style": "@import 'https://evil.example/a.css'"})),
        ("style", json!({"style": "a { background: url(https://evil.example/a.png) }"})),
        ("style", json!({"style": " ".repeat(8_193)})),
        ("logo", json!({"logo": "not base64!"})),
        ("logo", json!({"logo": "R0lGODlh"})),
        ("logo", json!({"logo": "/9j/".repeat(65_540 / 3)})),
        ("look", json!({"look": 1})),
    ];
    for (field, look) in cases {
        let answer = service.send(put(&look)).await.refused(400, "invalid_field").json();
        let told = answer["field"].as_str().expect("a field");
        assert!(told.starts_with(field.split('.').next().unwrap_or_default()), "{field}: {answer}");
    }
    let large = json!({"style": "a".repeat(256 * 1024)});
    service.send(put(&large)).await.refused(413, "body_too_large");
    service.send(Ask::put(LOOK).by(ADMIN).raw("{")).await.refused(400, "invalid_json");
    let kept = service.send(Ask::get(LOOK).by(ADMIN)).await.is(200).json();
    assert_eq!(kept, json!({}), "nothing of it is kept");
}

pub(crate) async fn the_page_has_the_texts_the_colors_and_the_logo_of_its_room() {
    let hostile = "<script>alert('\"&')</script>";
    let service = dressed(json!({
        "texts": {"title": "Spring concert", "heading": hostile, "next": hostile, "footer": hostile},
        "translations": {"ko": {"title": "봄 콘서트", "heading": "곧 시작합니다"}},
        "colors": colors(),
        "style": "main { border-radius: 0 } </style><script>",
        "logo": SVG,
    }))
    .await;
    let answer = page(&service, "en").await;
    let (english, korean) = (answer.body(), page(&service, "ko").await.body());
    assert_eq!(english.matches("<script").count(), 1, "texts are texts: {english}");
    assert!(english.contains(">Spring concert<") && !english.contains("alert('"), "{english}");
    assert!(korean.contains(">봄 콘서트<") && korean.contains(">곧 시작합니다</h1>"), "{korean}");
    // Half of the first view is left for the look.
    assert!(answer.bytes.len() <= 9_000, "{} bytes", answer.bytes.len());

    let style = address(&english, "/rooms/sale/style.css?");
    let sheet = service.send(Ask::get(&style)).await.is(200);
    assert_eq!(sheet.header("content-type"), Some("text/css; charset=utf-8"));
    assert!(sheet.header("cache-control").is_some_and(|keep| keep.contains("immutable")));
    for part in ["--ink:#16202c", "--brand:#0b6e5f", "main { border-radius: 0 } </style><script>"] {
        assert!(sheet.body().contains(part), "{part}");
    }
    let logo = address(&english, "/rooms/sale/logo?");
    let picture = service.send(Ask::get(&logo)).await.is(200);
    assert_eq!(picture.header("content-type"), Some("image/svg+xml"));
    let policy = picture.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("sandbox"), "{policy}");
    for loaded in [&sheet, &picture] {
        assert_eq!(loaded.header("x-content-type-options"), Some("nosniff"));
    }
    // Under another name it may be another one soon.
    let other = service.send(Ask::get("/rooms/sale/logo?0")).await.is(200);
    assert_eq!(other.header("cache-control"), Some("no-store"));

    // A page that is open loads itself again when the look changes.
    let told = async || {
        let ask = Ask::get("/rooms/sale").header("accept", "application/json").header("accept-language", "ko");
        service.send(ask).await.is(200).json()
    };
    let before = told().await;
    assert_eq!(before["title"], "곧 시작합니다");
    assert_eq!(told().await["look"], before["look"]);
    service.send(Ask::delete(LOOK).by(ADMIN)).await.is(204);
    assert_ne!(told().await["look"], before["look"]);
    let bare = page(&service, "en").await.body();
    for (gone, path) in [("style.css", style), ("/logo", logo)] {
        assert!(!bare.contains(gone), "{gone}");
        service.send(Ask::get(&path)).await.refused(404, "not_found");
    }
    service.send(Ask::get("/rooms/nowhere/logo")).await.refused(404, "unknown_room");
}
