//! A fixed address in front of a server that can be replaced, as a load balancer or a service address is.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Passes connections on to whichever server is behind it. Runs until the test binary ends.
#[derive(Debug)]
pub struct Relay {
    /// `http://127.0.0.1:port`.
    pub url: String,
    backend: Arc<Mutex<String>>,
}

impl Relay {
    /// Listens on a free port of loopback, in front of the server at this `host:port`.
    pub fn before(backend: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let backend = Arc::new(Mutex::new(backend.to_owned()));
        let current = backend.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let to = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // Without a server the connection is closed at once, and the client tries again.
                if let Ok(server) = TcpStream::connect(to) {
                    drop(join(client, server));
                }
            }
        });
        Self { url, backend }
    }

    /// New connections go to this server; open ones stay where they are.
    pub fn turn_to(&self, backend: &str) {
        backend.clone_into(&mut self.backend.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Copies both ways; the end of either side is passed on.
fn join(client: TcpStream, server: TcpStream) -> io::Result<()> {
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
    }
    copy(client.try_clone()?, server.try_clone()?);
    copy(server, client);
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Write));
    });
}
