//! The runtime of a service over servers.

/// Builds a runtime that runs tasks of one burst in the order in which they woke. Without the flag in
/// `.cargo/config.toml` the last task runs first. Of bids that arrive together the highest is then judged first, and
/// the others are too low.
pub(super) fn in_order() -> tokio::runtime::Builder {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    #[cfg(tokio_unstable)]
    builder.disable_lifo_slot();
    builder
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::{mpsc, oneshot};

    #[test]
    fn what_wakes_first_in_a_burst_runs_first() {
        let runtime = in_order().worker_threads(1).build().unwrap();
        let order = runtime.block_on(runtime.spawn(async {
            let (tell, mut told) = mpsc::unbounded_channel();
            let mut gates = Vec::new();
            for number in 0..8 {
                let (open, opened) = oneshot::channel::<()>();
                let tell = tell.clone();
                gates.push(open);
                tokio::spawn(async move {
                    tell.send(None).unwrap();
                    opened.await.unwrap();
                    tell.send(Some(number)).unwrap();
                });
            }
            for _ in 0..8 {
                assert_eq!(told.recv().await, Some(None), "all wait");
            }
            for open in gates {
                open.send(()).unwrap();
            }
            let mut order = Vec::new();
            for _ in 0..8 {
                order.extend(told.recv().await.unwrap());
            }
            order
        }));
        assert_eq!(order.unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
