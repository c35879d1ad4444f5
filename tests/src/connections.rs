//! Unusual connections: from another address of this machine, or with a small receive window.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use socket2::{Domain, Socket, Type};

/// Time within which a server on this machine accepts a connection, however busy the machine is.
const CONNECT_WITHIN: Duration = Duration::from_secs(60);

/// Connects from the address `from` of this machine; all of 127.0.0.0/8 belongs to it.
///
/// # Errors
/// The kernel's error.
pub fn connect_from(from: [u8; 4], server: SocketAddr) -> io::Result<TcpStream> {
    connect(server, |socket| socket.bind(&SocketAddr::from((from, 0)).into()))
}

/// Connects with a receive buffer so small that data which the client does not read stays with the server.
///
/// # Errors
/// The kernel's error.
pub fn connect_with_small_window(server: SocketAddr) -> io::Result<TcpStream> {
    connect(server, |socket| socket.set_recv_buffer_size(4096))
}

fn connect(server: SocketAddr, prepare: impl FnOnce(&Socket) -> io::Result<()>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    prepare(&socket)?;
    socket.connect_timeout(&server.into(), CONNECT_WITHIN)?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}
