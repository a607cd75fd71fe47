//! A fixed address in front of a server that can be replaced, as a load balancer or a service address is.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

/// Passes connections on to whichever server is behind it. Runs until the test binary ends.
#[derive(Debug)]
pub struct Relay {
    /// `http://127.0.0.1:port`.
    pub url: String,
    backend: Arc<Mutex<String>>,
    open: Arc<Mutex<Vec<Weak<Open>>>>,
}

/// A connection that is passed on; both of its sockets are closed once neither way is copied any more.
#[derive(Debug)]
struct Open {
    client: TcpStream,
    server: TcpStream,
    is_dead: AtomicBool,
}

impl Relay {
    /// Listens on a free port of loopback, in front of the server at this `host:port`.
    pub fn before(backend: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let backend = Arc::new(Mutex::new(backend.to_owned()));
        let current = backend.clone();
        let open = Arc::<Mutex<Vec<Weak<Open>>>>::default();
        let noted = open.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let to = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // Without a server the connection is closed at once, and the client tries again.
                if let Ok(joined) = TcpStream::connect(to).and_then(|server| join(client, server)) {
                    noted.lock().unwrap_or_else(PoisonError::into_inner).push(joined);
                }
            }
        });
        Self { url, backend, open }
    }

    /// Cuts every connection there is; new ones are passed on.
    pub fn cut(&self) {
        for open in self.take() {
            for socket in [&open.client, &open.server] {
                drop(socket.shutdown(Shutdown::Both));
            }
        }
    }

    /// Whatever is sent over the connections there are is lost without a word; new ones are passed on.
    pub fn swallow(&self) {
        for open in self.take() {
            open.is_dead.store(true, Ordering::SeqCst);
        }
    }

    fn take(&self) -> Vec<Arc<Open>> {
        let open = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        open.iter().filter_map(Weak::upgrade).collect()
    }

    /// New connections go to this server; open ones stay where they are.
    pub fn turn_to(&self, backend: &str) {
        backend.clone_into(&mut self.backend.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Copies both ways; the end of either side is passed on.
fn join(client: TcpStream, server: TcpStream) -> io::Result<Weak<Open>> {
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
    }
    let open = Arc::new(Open { client, server, is_dead: AtomicBool::default() });
    let (there, back) = (open.clone(), open.clone());
    thread::spawn(move || copy(&there.client, &there.server, &there.is_dead));
    thread::spawn(move || copy(&back.server, &back.client, &back.is_dead));
    Ok(Arc::downgrade(&open))
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, is_dead: &AtomicBool) {
    let mut piece = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        if !is_dead.load(Ordering::SeqCst) && to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    if !is_dead.load(Ordering::SeqCst) {
        drop(to.shutdown(Shutdown::Write));
    }
}
