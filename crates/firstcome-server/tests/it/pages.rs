//! The pages and the two documents that are kept in the repository.

use crate::promises::document;
use crate::service::{ADMIN, Ask, Service, config};
use crate::stores::{clock, open};
use firstcome_server::error::{Code, catalogue_markdown};
use firstcome_server::{Config, Keys, api};
use serde_json::Value;

const HOW: &str = "is not what the code says: run `cargo run -p firstcome-server --example write_docs`";

fn repository(file: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    std::fs::read_to_string(&path).unwrap_or_default()
}

#[test]
fn the_documents_in_the_repository_are_those_of_the_code() {
    assert!(repository("openapi.json") == api::openapi_json(), "docs/openapi.json {HOW}");
    assert!(repository("errors.md") == catalogue_markdown(), "docs/errors.md {HOW}");
}

#[tokio::test]
async fn the_document_that_is_served_is_the_one_in_the_repository() {
    let answer = Service::memory().send(Ask::get("/openapi.json")).await.is(200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let kept: Value = serde_json::from_str(&repository("openapi.json")).expect("JSON");
    // Both are too long to be shown.
    assert!(answer.json() == kept, "docs/openapi.json {HOW}");
}

#[test]
fn every_code_that_the_document_announces_exists() {
    let text = document()["paths"].to_string();
    let words = text.split('`').skip(1).step_by(2).filter(|word| word.contains('_') && word.to_lowercase() == *word);
    for word in words {
        assert!(Code::ALL.iter().any(|code| code.as_str() == word), "{word} is no code");
    }
}

/// All pages.
fn pages() -> Vec<String> {
    let errors = Code::ALL.iter().map(|code| format!("/errors/{}", code.as_str()));
    ["/".to_owned(), "/docs".to_owned()].into_iter().chain(errors).collect()
}

#[tokio::test]
async fn no_page_needs_anything_from_elsewhere() {
    let service = Service::memory();
    let css = service.send(Ask::get("/assets/firstcome.css")).await.is(200);
    assert!(css.header("content-type").is_some_and(|kind| kind.starts_with("text/css")));
    assert_eq!(css.header("x-content-type-options"), Some("nosniff"));
    for foreign in ["@import", "url(", "http:", "https:"] {
        assert!(!css.body().contains(foreign), "{foreign} in the style");
    }
    for page in pages() {
        let answer = service.send(Ask::get(&page)).await.is(200);
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"), "{page}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{page}");
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{page}");
        let policy = answer.header("content-security-policy").expect("a policy");
        for rule in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"] {
            assert!(policy.contains(rule), "{page}: {rule}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"), "{page}: {policy}");
        let html = answer.body();
        for foreign in
            ["<script", "style=", "<iframe", "@import", "http://", "https://", "src=", "href=\"//", " onload="]
        {
            assert!(!html.contains(foreign), "{foreign} in {page}");
        }
        assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"), "{page} is whole");
    }
}

#[tokio::test]
async fn every_link_of_a_page_leads_somewhere() {
    let service = Service::memory();
    let mut links = std::collections::BTreeSet::new();
    for page in pages() {
        let html = service.send(Ask::get(&page)).await.body();
        for link in html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            links.insert(if link.starts_with('#') { format!("{page}{link}") } else { link.to_owned() });
        }
    }
    assert!(50 < links.len(), "{links:?}");
    for link in links {
        let (path, anchor) = link.split_once('#').map_or((link.as_str(), None), |(path, anchor)| (path, Some(anchor)));
        let html = service.send(Ask::get(path)).await.is(200).body();
        if let Some(anchor) = anchor {
            assert!(html.contains(&format!("id=\"{anchor}\"")), "{link} leads to no place");
        }
    }
}

/// A text as HTML shows it.
fn escaped(text: &str) -> String {
    text.replace('&', "&#38;").replace('<', "&#60;").replace('>', "&#62;").replace('\'', "&#39;").replace('"', "&#34;")
}

#[tokio::test]
async fn the_reference_shows_every_call_and_every_code() {
    let html = Service::memory().send(Ask::get("/docs")).await.is(200).body();
    for (path, methods) in document()["paths"].as_object().expect("paths") {
        assert!(html.contains(path), "{path}");
        for operation in methods.as_object().expect("methods").values() {
            let summary = operation["summary"].as_str().expect("a summary");
            assert!(html.contains(&escaped(summary)), "{summary}");
        }
    }
    for code in Code::ALL {
        assert!(html.contains(&format!("<code>{}</code>", code.as_str())), "{}", code.as_str());
    }
    assert!(!html.contains("{{") && !html.contains("&#38;#"), "nothing is left unrendered or escaped twice");
}

#[tokio::test]
async fn a_page_about_a_code_says_what_to_do() {
    let service = Service::memory();
    for code in Code::ALL {
        let html = service.send(Ask::get(&format!("/errors/{}", code.as_str()))).await.is(200).body();
        // Backticks become code.
        let text = html.replace("<code>", "`").replace("</code>", "`");
        assert!(text.contains(&escaped(code.title())), "{}", code.as_str());
        assert!(text.contains(&escaped(code.advice())), "{}", code.as_str());
    }
    for path in ["/errors/", "/errors/SOLD_OUT", "/errors/%3Cscript%3E", "/errors/sold_out%00", "/errors/sold_out/x"] {
        let answer = service.send(Ask::get(path)).await.refused(404, "not_found");
        assert!(!answer.body().contains("script"), "nothing is echoed");
    }
}

#[tokio::test]
async fn the_first_page_says_what_the_service_is() {
    let html = Service::memory().send(Ask::get("/")).await.body();
    for word in ["in memory only", "gone with the process", ">ready<", ">required<"] {
        assert!(html.contains(word), "{word}");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock = clock();
    let service = Service::new(open(directory.path(), &clock), clock, Config { keys: Keys::Dev, ..config() });
    service.app.begin_drain();
    let html = service.send(Ask::get("/")).await.body();
    for word in ["embedded, on disk", "after it is synced", ">draining<", "none: development mode"] {
        assert!(html.contains(word), "{word}");
    }
    assert!(!html.contains(&directory.path().display().to_string()), "where it lies is nobody's business");
}

#[test]
fn the_table_of_codes_has_one_row_each() {
    let page = catalogue_markdown();
    for code in Code::ALL {
        let start = format!("| {} | `{}` | {} |", code.status(), code.as_str(), code.title());
        assert_eq!(page.lines().filter(|line| line.starts_with(&start)).count(), 1, "{}", code.as_str());
    }
    assert_eq!(page.lines().filter(|line| line.starts_with("| ")).count(), Code::ALL.len() + 1);
}

#[tokio::test]
async fn the_example_of_a_listing_is_accepted() {
    let example = &document()["components"]["schemas"]["ListingBody"]["example"];
    Service::memory().send(Ask::put("/v1/listings/lamp").by(ADMIN).json(example)).await.is(201);
}

#[test]
fn the_document_says_what_a_generator_needs() {
    let document = document();
    assert_eq!(document["servers"][0]["url"], "/");
    let schemes = document["components"]["securitySchemes"].as_object().expect("schemes");
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let asked = format!("{method} {path}");
            let keys = operation["security"].as_array().unwrap_or_else(|| panic!("{asked} does not say which keys"));
            for key in keys {
                assert!(
                    key.as_object().is_some_and(|key| key.keys().all(|name| schemes.contains_key(name))),
                    "{asked}"
                );
            }
            for (status, response) in operation["responses"].as_object().expect("responses") {
                let kinds = response["content"].as_object().map(|content| content.keys().collect::<Vec<_>>());
                let is_refusal = status.as_str() >= "400";
                // That the service is not ready is an answer.
                let is_problem = is_refusal && (path.as_str(), status.as_str()) != ("/readyz", "503");
                let wanted = ["application/problem+json"];
                assert_eq!(kinds.is_some_and(|kinds| kinds == wanted), is_problem, "{asked} {status}");
            }
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let schema = &parameter["schema"];
                let bound = if schema["type"] == "integer" { "maximum" } else { "maxLength" };
                assert!(schema[bound].is_u64(), "{asked} {parameter}");
            }
        }
    }
    let claim = document["paths"]["/v1/coupons/{coupon}/claims"]["post"]["security"].to_string();
    assert!(claim.contains("service") && claim.contains("pass"), "{claim}");
    let codes = document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"].as_array().expect("codes");
    assert_eq!(codes.len(), Code::ALL.len());
}
