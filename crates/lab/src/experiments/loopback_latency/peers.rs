//! Servers that do as little as possible, each on one core, so that the figures describe the generator.
//!
//! A server ends when all its connections are closed, and then accepts no new ones.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use rustix::event::epoll;

use crate::placement::restrict;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const READ_BYTES: usize = 64 << 10;
const EVENTS: usize = 256;
/// Event identifier of the listener; connections have smaller numbers.
const LISTENER: u64 = u64::MAX;

/// Starts a server that echoes one connection.
pub(super) fn echo(core: usize) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || -> io::Result<()> {
        restrict(&[core])?;
        let (mut peer, _) = listener.accept()?;
        peer.set_nodelay(true)?;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match peer.read(&mut buffer)? {
                0 => return Ok(()),
                bytes => peer.write_all(&buffer[..bytes])?,
            }
        }
    });
    Ok(address)
}

/// Starts a server that answers each read with two bytes of HTTP: its client sends one request at a time on a
/// connection, in one piece.
pub(super) fn http(core: usize) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    thread::spawn(move || -> io::Result<()> {
        restrict(&[core])?;
        answer_all(&listener)
    });
    Ok(address)
}

fn answer_all(listener: &TcpListener) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    let mut peers: Vec<Option<TcpStream>> = Vec::new();
    let mut events = Vec::with_capacity(EVENTS);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        events.clear();
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in &events {
            let event: &epoll::Event = event;
            let at = event.data.u64();
            if at == LISTENER {
                while let Ok((peer, _)) = listener.accept() {
                    peer.set_nonblocking(true)?;
                    peer.set_nodelay(true)?;
                    let number = epoll::EventData::new_u64(peers.len() as u64);
                    epoll::add(&epoll, &peer, number, epoll::EventFlags::IN)?;
                    peers.push(Some(peer));
                }
                continue;
            }
            let Some(peer) = &mut peers[at as usize] else { continue };
            match peer.read(&mut buffer) {
                Ok(1..) => peer.write_all(ANSWER)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The connection is closed or broken.
                Ok(0) | Err(_) => peers[at as usize] = None,
            }
        }
        if !peers.is_empty() && peers.iter().all(Option::is_none) {
            return Ok(());
        }
    }
}
