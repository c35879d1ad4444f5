//! Listening sockets: for each address one TCP socket per core, and a Unix socket.

use std::{
    fs,
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::{
        fd::OwnedFd,
        unix::{
            fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use engine::cores::listener::bind_all;
use tokio::net::TcpStream;

use crate::{
    client::accepted::{AcceptedConnection, ListenerKind},
    config::Config,
};

/// Permissions of the Unix socket: its owner and its group may connect.
const SOCKET_MODE: u32 = 0o660;

/// Address assigned to clients of the Unix socket: the loopback address.
const FROM_FILE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A bound socket, before its event loop has begun.
pub(crate) enum BoundSocket {
    Tcp(TcpListener, ListenerKind),
    Unix(UnixListener),
}

/// A socket from which an event loop accepts.
pub(crate) enum Listener {
    Tcp(tokio::net::TcpListener, ListenerKind),
    Unix(tokio::net::UnixListener),
}

/// All bound sockets.
pub(crate) struct ListenerSet {
    /// Sockets of each core.
    pub(crate) of_cores: Vec<Vec<BoundSocket>>,
    /// Address of the plain HTTP port, then of the TLS port if there is one.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Address of the port for peers.
    pub(crate) peers: Option<SocketAddr>,
    /// The Unix socket's file, which is removed when the server ends.
    pub(crate) file: Option<SocketFile>,
}

impl ListenerSet {
    /// Binds all configured addresses.
    ///
    /// # Errors
    /// The error of the system call, with the address or file in its message.
    pub(crate) fn new(config: &Config, cores: usize) -> io::Result<Self> {
        let mut of_cores: Vec<Vec<BoundSocket>> = (0..cores).map(|_| Vec::new()).collect();
        let mut addresses = Vec::new();
        let mut peers = None;
        let secured = config.tls.as_ref().map(|tls| (tls.listen, ListenerKind::Tls));
        let asked = config.peers.as_ref().map(|rules| (rules.listen, ListenerKind::Peer));
        for (address, over) in [(config.listen, ListenerKind::Plain)].into_iter().chain(secured).chain(asked)
        {
            let listeners = bind_all(address, cores)?;
            let bound = listeners.first().and_then(|listener| listener.local_addr().ok());
            match over {
                ListenerKind::Peer => peers = bound,
                ListenerKind::Plain | ListenerKind::Tls => addresses.extend(bound),
            }
            let bound = listeners.into_iter().map(|listener| BoundSocket::Tcp(listener, over));
            of_cores.iter_mut().zip(bound).for_each(|(of_core, bound)| of_core.push(bound));
        }
        let mut file = None;
        if let Some(path) = &config.listen_unix {
            let (listener, bound) = bind_file(path).map_err(|error| named(path, &error))?;
            // The first core accepts connections for all cores: `accept` hands them to the others.
            of_cores.iter_mut().take(1).for_each(|of_core| {
                // There is at least one core.
                of_core.extend(listener.try_clone().map(BoundSocket::Unix));
            });
            file = Some(bound);
        }
        Ok(Self { of_cores, addresses, peers, file })
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {}: {error}", path.display()))
}

/// Binds a Unix socket. A socket file without a listener is replaced; any other file is left alone.
fn bind_file(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    match fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "the path exists and is not a socket"));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(io::Error::new(ErrorKind::AddrInUse, "another program listens there"));
        }
        Ok(_) => fs::remove_file(path)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    let file = SocketFile { path: path.to_owned(), inode: fs::symlink_metadata(path)?.ino() };
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
    listener.set_nonblocking(true)?;
    Ok((listener, file))
}

/// A Unix socket's file. It is removed when the server ends, unless another server has replaced it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|there| there.ino() == self.inode) {
            // If it cannot be removed, the next server replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Registers the socket with the running event loop.
    pub(crate) fn new(bound: BoundSocket) -> io::Result<Self> {
        Ok(match bound {
            BoundSocket::Tcp(listener, over) => Self::Tcp(tokio::net::TcpListener::from_std(listener)?, over),
            BoundSocket::Unix(listener) => Self::Unix(tokio::net::UnixListener::from_std(listener)?),
        })
    }

    /// Accepts the next connection.
    pub(crate) async fn accept(&self) -> io::Result<(TcpStream, AcceptedConnection)> {
        match self {
            Self::Tcp(listener, over) => {
                let (stream, address) = listener.accept().await?;
                Ok((stream, AcceptedConnection { address, over: *over }))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                // Stream sockets of all address families are read, written and polled alike, so one type
                // serves both kinds.
                let socket = OwnedFd::from(stream.into_std()?);
                let stream = TcpStream::from_std(std::net::TcpStream::from(socket))?;
                Ok((stream, AcceptedConnection { address: FROM_FILE, over: ListenerKind::Plain }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unused_socket_file_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let (listener, file) = bind_file(&path).expect("bound");
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, SOCKET_MODE);
        assert_eq!(bind_file(&path).expect_err("in use").kind(), ErrorKind::AddrInUse);
        // The state after a crash: the file stays, without a listener.
        std::mem::forget(file);
        drop(listener);
        let (listener, file) = bind_file(&path).expect("replaced");
        drop((listener, file));
        assert!(!path.exists(), "it goes with its server");
        fs::write(&path, "precious").expect("written");
        assert_eq!(bind_file(&path).expect_err("not a socket").kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).expect("there"), "precious");
    }
}
