//! Connects to one of several addresses, in parallel while the first does not answer (RFC 8305).

use std::{net::SocketAddr, time::Duration};

use tokio::{net::TcpStream, task::JoinSet, time::sleep};

use super::OriginError;

/// Time after which the next address is tried in parallel (RFC 8305 §5 recommends 250 ms).
const NEXT_AFTER: Duration = Duration::from_millis(250);

/// Connects to the first of `addresses` that accepts. Each address is tried when the one before it has
/// failed, or has not answered for [`NEXT_AFTER`].
pub(super) async fn connect_any(addresses: &[SocketAddr]) -> Result<TcpStream, OriginError> {
    if let [only] = addresses {
        return TcpStream::connect(only).await.map_err(|error| OriginError::of_connect(&error));
    }
    let mut trying = JoinSet::new();
    let mut waiting = addresses.iter().copied();
    let mut failed = None;
    loop {
        let next = waiting.next();
        let is_last = next.is_none();
        if let Some(address) = next {
            trying.spawn(TcpStream::connect(address));
        }
        loop {
            let tried = if is_last {
                trying.join_next().await
            } else {
                tokio::select! {
                    tried = trying.join_next() => tried,
                    () = sleep(NEXT_AFTER) => break,
                }
            };
            match tried {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(error))) => {
                    failed = Some(OriginError::of_connect(&error));
                    if !is_last {
                        break;
                    }
                }
                // The task was aborted or has panicked; neither happens.
                Some(Err(_)) => {}
                None => return Err(failed.unwrap_or(OriginError::Refused)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test(flavor = "local")]
    async fn a_dead_address_does_not_block_others() {
        let good = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let good = good.local_addr().map(|address| (good, address)).expect("an address");
        // A listener with a full queue answers no SYN: the kernel drops it.
        let silent =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        silent.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
        silent.listen(0).expect("a listener");
        let full = silent.local_addr().ok().and_then(|a| a.as_socket()).expect("an address");
        let _first = TcpStream::connect(full).await.expect("one is taken into the queue");
        let refused = {
            let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            gone.local_addr().expect("an address")
        };
        let stream = connect_any(&[refused, full, good.1]).await.expect("connected");
        assert_eq!(stream.peer_addr().expect("connected"), good.1);
        assert_eq!(connect_any(&[refused, refused]).await.expect_err("nobody"), OriginError::Refused);
    }
}
