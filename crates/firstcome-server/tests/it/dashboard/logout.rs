//! Logouts: what becomes of copies of a cookie, at this node and at others.

use super::{Operator, fields, form, login, service, with_view};
use crate::cluster::World;
use crate::in_time;
use crate::service::{ADMIN, Answer, Ask, send};
use axum::Router;
use axum::http::StatusCode;
use firstcome_server::api;
use firstcome_test_servers::Kind;
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

const STREAM: &str = "/dashboard/stream";

pub(crate) async fn a_session_that_has_logged_out_is_refused_and_others_are_not() {
    let service = service();
    let [ann, bob] = [Operator::logged_in(&service, ADMIN).await, Operator::logged_in(&service, ADMIN).await];
    let page = ann.page("/dashboard").await.is(200);
    // A cookie of the same session with a later end.
    service.set_clock(1_800);
    let renewed = ann.page("/dashboard").await.is(200);
    let later = renewed.header("set-cookie").and_then(|line| line.split(';').next()).expect("a cookie").to_owned();
    let later = Operator { service: &service, cookie: later };
    ann.submit(&page, "/dashboard/logout", &[]).await.is(303);
    for copy in [&ann, &later] {
        assert_eq!(copy.page("/dashboard").await.is(303).header("location"), Some("/dashboard/login"));
        copy.send(Ask::get(STREAM)).await.refused(401, "unauthorized");
        copy.page("/dashboard/login").await.is(200);
        copy.send(form("/dashboard/rooms/sale/pause", &[]).header("accept", "application/json"))
            .await
            .refused(401, "unauthorized");
    }
    bob.page("/dashboard").await.is(200);
}

/// A node, and the cookie of an operator.
struct Node {
    router: Router,
}

impl Node {
    async fn over(world: &World) -> Self {
        Self { router: api::router(world.app(with_view()).await) }
    }

    async fn page(&self, path: &str, cookie: &str) -> Answer {
        send(self.router.clone(), Ask::get(path).header("cookie", cookie).header("host", "ops.example")).await
    }

    async fn log_in(&self) -> String {
        let answer = send(self.router.clone(), login(ADMIN)).await.is(303);
        let line = answer.header("set-cookie").expect("a cookie");
        line.split(';').next().unwrap_or_default().to_owned()
    }

    async fn log_out(&self, cookie: &str) {
        let page = self.page("/dashboard", cookie).await.is(200);
        let ask = form("/dashboard/logout", &fields(&page, "/dashboard/logout", &[]));
        send(self.router.clone(), ask.header("cookie", cookie).header("host", "ops.example")).await.is(303);
    }

    /// Reads a stream of samples to its end.
    async fn stream(&self, cookie: &str) -> impl Future<Output = String> + use<> {
        let response = self.router.clone().oneshot(Ask::get(STREAM).header("cookie", cookie).request()).await;
        let response = response.unwrap_or_else(|never| match never {});
        assert_eq!(response.status(), StatusCode::OK);
        let body = response.into_body();
        async move {
            let whole = body.collect().await.expect("a stream breaks off at no error").to_bytes();
            String::from_utf8_lossy(&whole).into_owned()
        }
    }

    /// Waits until the node sends the cookie to the login.
    async fn refuses(&self, cookie: &str) {
        let until = Instant::now() + Duration::from_secs(30);
        while self.page("/dashboard", cookie).await.status != 303 {
            assert!(Instant::now() < until, "the session goes on");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn a_logout_at_one_node_ends_the_session_at_the_others() {
    let test = async {
        let Some(world) = World::start(Kind::Postgres).await else { return };
        let [one, two] = [Node::over(&world).await, Node::over(&world).await];
        let [ann, bob] = [one.log_in().await, one.log_in().await];
        for cookie in [&ann, &bob] {
            two.page("/dashboard", cookie).await.is(200);
        }
        let (of_ann, of_bob) = (two.stream(&ann).await, tokio::spawn(two.stream(&bob).await));
        one.log_out(&ann).await;
        let told = of_ann.await;
        assert!(told.ends_with("event: end\ndata: {\"reason\":\"session\"}\n\n"), "{told}");
        one.page("/dashboard", &ann).await.is(303);
        two.refuses(&ann).await;
        // A node that begins later knows it too.
        Node::over(&world).await.page("/dashboard", &ann).await.is(303);
        two.page("/dashboard", &bob).await.is(200);
        assert!(!of_bob.is_finished(), "the stream of another session goes on");
        of_bob.abort();
    };
    in_time(test).await;
}

#[tokio::test]
async fn a_logout_is_told_when_redis_takes_it() {
    let test = async {
        let Some(world) = World::start(Kind::Postgres).await else { return };
        let [one, two] = [Node::over(&world).await, Node::over(&world).await];
        let ann = one.log_in().await;
        // Redis refuses to keep anything, and answers what it has.
        world.say(&["ACL", "SETUSER", "default", "-set"]).await;
        one.log_out(&ann).await;
        one.page("/dashboard", &ann).await.is(303);
        two.page("/dashboard", &ann).await.is(200);
        world.say(&["ACL", "SETUSER", "default", "+set"]).await;
        two.refuses(&ann).await;
    };
    in_time(test).await;
}
