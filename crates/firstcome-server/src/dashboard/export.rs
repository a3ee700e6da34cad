//! The claims of a coupon as CSV, for spreadsheets.
//!
//! # What it promises
//! - The file has each claim that was stored when the export began, in the order of serials, without voucher codes.
//! - Memory is bounded by a page of claims: the next page is read when the client has taken the one before it.
//! - A file that cannot be completed breaks off, so that the client sees a failed download and no shorter file.
//! - No cell is a formula: a cell that a spreadsheet would compute begins with an apostrophe.

use super::Visit;
use crate::api::{self, answered, body};
use crate::error::{Code, Problem};
use crate::rfc3339::format as instant;
use crate::state::App;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use firstcome::core::coupon::Serial;
use firstcome::core::id::CouponName;
use firstcome::{ClaimRecord, CouponStore, Page};
use http_body_util::BodyExt;
use hyper::body::Frame;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// How many claims are read at once.
const CLAIMS_READ: usize = 500;
const HEAD: &str = "serial,user,issued_at,redeemed_at,attributes\r\n";

/// Writes a cell by RFC 4180. A cell that begins as a formula does gets an apostrophe before it.
fn cell(row: &mut String, text: &str) {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\r', '\n']) {
        row.push('"');
        row.push_str(&text.replace('"', "\"\""));
        row.push('"');
    } else {
        row.push_str(&text);
    }
}

fn row(text: &mut String, record: &ClaimRecord) {
    let issued = &record.claimed.issued;
    let redeemed_at = record.redeemed.map(|redeemed| instant(redeemed.redeemed_at)).unwrap_or_default();
    let serial = issued.serial.get().to_string();
    let attributes = record.attributes.as_ref().map(|attributes| attributes.as_str()).unwrap_or_default();
    let cells = [&serial, record.user.as_ref(), &instant(issued.issued_at), &redeemed_at, attributes];
    for (place, value) in cells.into_iter().enumerate() {
        if 0 < place {
            text.push(',');
        }
        cell(text, value);
    }
    text.push_str("\r\n");
}

/// A body whose pieces another task makes. It breaks off with an error of that task.
struct Pieces(mpsc::Receiver<io::Result<Bytes>>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = ready!(self.0.poll_recv(cx));
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }
}

async fn read(app: &App, coupon: &CouponName, after: Option<Serial>) -> Result<Page<ClaimRecord>, Problem> {
    let found = answered(app, pin!(app.coupons.claims(coupon, after, CLAIMS_READ))).await?;
    found.map_err(|refusal| api::coupon::refused(app, coupon, "", &refusal))
}

/// Sends the pages up to a serial. Ends when the client has gone.
async fn send(
    app: Arc<App>,
    coupon: CouponName,
    first: Page<ClaimRecord>,
    last: u32,
    out: mpsc::Sender<io::Result<Bytes>>,
) {
    let (mut page, mut text) = (first, HEAD.to_owned());
    loop {
        for record in page.items.iter().filter(|record| record.claimed.issued.serial.get() <= last) {
            row(&mut text, record);
        }
        if out.send(Ok(Bytes::from(std::mem::take(&mut text)))).await.is_err() {
            return;
        }
        let Some(after) = page.next.filter(|after| after.get() < last) else { return };
        page = match read(&app, &coupon, Some(after)).await {
            Ok(page) => page,
            Err(problem) => {
                tracing::warn!(%coupon, code = problem.code().as_str(), "an export of claims breaks off");
                // A client that has gone needs no end.
                let _ = out.send(Err(io::Error::other("the store cannot be read"))).await;
                return;
            }
        };
    }
}

impl Visit<'_> {
    /// Streams the claims of a coupon.
    pub(super) async fn export(&self, app: &Arc<App>, coupon: &str) -> Result<Response, Problem> {
        let coupon = body::coupon(coupon)?;
        let view = answered(app, pin!(app.coupons.coupon(&coupon))).await?;
        let view = view.map_err(|refusal| api::coupon::refused(app, &coupon, "", &refusal))?;
        let first = read(app, &coupon, None).await?;
        let entry = self.entry("export", format!("coupon {}", coupon.as_str()));
        let change = format!("{} claims", view.issued);
        app.dashboard.audit.add(super::audit::AuditEntry { change, ..entry });
        // Names have no character that a header could not have, and none that a file name could not have but `:`.
        let file = format!("attachment; filename=\"claims-{}.csv\"", coupon.as_str().replace(':', "_"));
        let file = HeaderValue::try_from(file).map_err(|_| Problem::new(Code::InvalidName))?;
        let (out, pieces) = mpsc::channel(1);
        tokio::spawn(send(Arc::clone(app), coupon, first, view.issued, out));
        let mut response = Response::new(Body::new(Pieces(pieces).boxed_unsync()));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
        headers.insert(header::CONTENT_DISPOSITION, file);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula() {
        for (text, wanted) in [
            ("ann", "ann"),
            ("=1+2", "'=1+2"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@cmd", "'@cmd"),
            ("\t=1", "'\t=1"),
            ("a,b", "\"a,b\""),
            ("=a\"b", "\"'=a\"\"b\""),
            ("a\nb", "\"a\nb\""),
            ("{\"a\":1}", "\"{\"\"a\"\":1}\""),
        ] {
            let mut row = String::new();
            cell(&mut row, text);
            assert_eq!(row, wanted, "{text:?}");
        }
    }
}
