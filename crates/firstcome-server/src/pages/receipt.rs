//! Receipts for people: a file to keep, and a page that checks one without any further call.

use super::room::kept;
use super::{Base, asset, refusal, rendered};
use crate::api::body::{self, PathName};
use crate::api::{measured, receipt};
use crate::error::{Code, Problem};
use crate::metrics::Route;
use crate::state::App;
use askama::Template;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use firstcome::Receipt;
use std::pin::pin;
use std::sync::Arc;

/// Without `connect-src` the page cannot send what it reads.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; form-action 'none'; \
    frame-ancestors 'none'; base-uri 'none'";
const SCRIPT: &str = include_str!("../../assets/receipt.js");

#[derive(Template)]
#[template(path = "receipt.html")]
struct ReceiptPage {
    version: &'static str,
    base: &'static str,
}

/// Shows the page that checks a receipt. It sends nothing.
async fn checks(State(app): State<Arc<App>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let call = pin!(async {
        let page = ReceiptPage { version: env!("CARGO_PKG_VERSION"), base: Base::of(&parts) };
        let mut response = rendered(StatusCode::OK, &page);
        response
            .headers_mut()
            .insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
        Ok(response)
    });
    measured(&app, Route::GetReceiptPage, call).await
}

/// Returns the receipt of the place that the browser keeps in a room.
async fn kept_receipt(app: &App, path: PathName, parts: &Parts) -> Result<Box<Receipt>, Problem> {
    let room = body::room(&path.map_err(|_| body::undecodable())?.0)?;
    let kept = kept(&room, &parts.headers).ok_or(Code::UnknownTicket)?;
    receipt::of_ticket(app, &room, kept.ticket).await
}

/// Gives the receipt of the place that the browser keeps, as a file.
async fn keeps(State(app): State<Arc<App>>, path: PathName, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let call = pin!(async {
        match kept_receipt(&app, path, &parts).await {
            Ok(receipt) => Ok(file(&receipt)),
            Err(problem) => {
                app.metrics.refused(problem.code());
                Ok(refusal(problem, Base::of(&parts)))
            }
        }
    });
    measured(&app, Route::GetReceiptPage, call).await
}

/// Gives a receipt as a file.
pub(crate) fn file(receipt: &Receipt) -> Response {
    let subject = &receipt.statement.subject;
    let name = format!("{} {}", subject.object(), subject.number());
    // Names have no character but letters, digits and `._:@-`; of these only the colon may not be in the name of a file.
    let name = name.replace(' ', "-").replace(':', "_");
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"receipt-{name}.txt\"")),
    ];
    (headers, receipt.text()).into_response()
}

/// Builds the pages, and what they load.
pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/receipts", get(checks))
        .route("/rooms/{room}/receipt", get(keeps))
        .route("/assets/receipt.js", asset("text/javascript", SCRIPT))
}
