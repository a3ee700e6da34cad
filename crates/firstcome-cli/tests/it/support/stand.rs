//! Shows a browser what a test makes up.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

/// Answers each GET with what `answer` returns for its path: a content type, and a body. Serves until the test program ends.
pub(crate) fn stand(mut answer: impl FnMut(&str) -> (String, Vec<u8>) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4_096];
            let read = stream.read(&mut head).unwrap_or_default();
            let head = String::from_utf8_lossy(&head[..read]);
            let Some(path) = head.split(' ').nth(1) else { continue };
            let (kind, body) = answer(path);
            let length = body.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
            );
            // The browser may have gone.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    address
}
