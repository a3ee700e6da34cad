//! A connection over a pipe within the process, as measurements have it.

use crate::service::{SERVICE, Service};
use firstcome_server::{api, serve_stream};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

#[tokio::test]
async fn a_pipe_is_served_as_a_socket_is_until_its_peer_closes_it() {
    let service = Service::memory();
    service.make("launch", json!({"limit": 1})).await;
    let (mut client, server) = duplex(16 * 1024);
    let (app, router) = (Arc::clone(&service.app), api::router(Arc::clone(&service.app)));
    let served = tokio::spawn(serve_stream(server, IpAddr::V4(Ipv4Addr::LOCALHOST), app, router));
    for (user, status) in [("ann", "201"), ("bob", "409")] {
        let body = json!({"user": user}).to_string();
        let head = "POST /v1/coupons/launch/claims HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
        let request = format!("{head}authorization: Bearer {SERVICE}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        let count = client.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..count]);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    drop(client);
    served.await.unwrap();
}
