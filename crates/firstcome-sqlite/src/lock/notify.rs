//! Telling the clients whose turn it is: within the process directly, else by a datagram to a socket in the directory.
//!
//! Each client has one socket, named by its id, in a directory that only its owner can enter: a process that could send to it
//! could make it believe in a grant. A name in the abstract space of Linux would be open to everybody on the machine.

use firstcome_core::lock::{ClientId, Push};
use firstcome_core::time::Timestamp;
use firstcome_store::Fault;
use firstcome_store::{LockEvent, LockInbox};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::path::Path;

#[cfg(unix)]
use sockets::{Listener, Sockets};

struct Attached {
    inbox: LockInbox,
    /// Dropped, no process listens any more. `None` if there are no sockets here: then only heartbeats find what other
    /// processes grant.
    #[cfg(unix)]
    _listener: Option<Listener>,
}

pub(super) struct LockNotifier {
    attached: RwLock<BTreeMap<ClientId, Attached>>,
    #[cfg(unix)]
    sockets: Option<Sockets>,
}

impl LockNotifier {
    /// Refused if the sockets' directory is open to others and cannot be closed to them.
    pub(super) fn new(directory: &Path) -> Result<Self, Fault> {
        #[cfg(not(unix))]
        let _ = directory;
        Ok(Self {
            attached: RwLock::default(),
            #[cfg(unix)]
            sockets: Sockets::in_directory(directory)?,
        })
    }

    pub(super) fn attach(&self, client: ClientId, inbox: LockInbox, now: Timestamp) {
        // First the old socket goes, then a new one can take its name.
        self.detach(client);
        #[cfg(not(unix))]
        let _ = now;
        let attached = Attached {
            #[cfg(unix)]
            _listener: self.sockets.as_ref().and_then(|sockets| {
                sockets.remove_dead(now);
                sockets.listen(client, LockInbox::clone(&inbox)).ok()
            }),
            inbox,
        };
        self.attached.write().insert(client, attached);
    }

    pub(super) fn detach(&self, client: ClientId) {
        // Dropped outside the lock: an inbox may hold any value.
        let gone = self.attached.write().remove(&client);
        drop(gone);
    }

    pub(super) fn detach_all(&self) {
        let gone = std::mem::take(&mut *self.attached.write());
        drop(gone);
    }

    /// Tells what was granted. Never waits: a push that finds no room is lost.
    pub(super) fn send(&self, pushes: Vec<Push>) {
        let mut others: BTreeMap<ClientId, Vec<Push>> = BTreeMap::new();
        for push in pushes {
            let client = push.grant.request.client;
            let inbox = self.attached.read().get(&client).map(|attached| LockInbox::clone(&attached.inbox));
            match inbox {
                Some(inbox) => inbox(LockEvent::Push(push)),
                None => others.entry(client).or_default().push(push),
            }
        }
        #[cfg(unix)]
        if let Some(sockets) = &self.sockets {
            for (client, pushes) in others {
                sockets.send(client, &pushes);
            }
        }
    }
}

#[cfg(unix)]
mod sockets {
    use super::super::{LOCKS_FILE, io_fault, make_private};
    use firstcome_core::id::LockName;
    use firstcome_core::lock::{ClientId, Fence, Grant, Push, Request, Taken};
    use firstcome_core::time::Timestamp;
    use firstcome_store::{Fault, FaultKind};
    use firstcome_store::{LockEvent, LockInbox};
    use std::fs::{self, File, Permissions};
    use std::io::{self, ErrorKind};
    use std::net::Shutdown;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::net::UnixDatagram;
    use std::path::{Path, PathBuf};
    use std::thread;
    use std::time::{Duration, UNIX_EPOCH};

    /// The sockets' directory, beside the file.
    const SOCKETS_DIRECTORY: &str = "locks.d";

    /// Bytes that the path of a socket has at most, by `sockaddr_un` (104 on some systems).
    const PATH_BYTES_MAX: usize = 103;

    /// Hexadecimal digits of a client's id.
    const ID_DIGITS: usize = 16;

    /// Pushes in one datagram at most: 100 of at most 170 bytes are far below what a socket takes.
    const DATAGRAM_PUSHES_MAX: usize = 100;

    /// More than the longest datagram.
    const BUFFER_BYTES: usize = 32_768;

    /// How old a socket without a listener is before it is removed: none is so slow between being named and being bound.
    const DEAD_AFTER: Duration = Duration::from_secs(60);

    /// Names that one clean-up looks at, at most.
    const DEAD_LOOKED_AT_MAX: usize = 256;

    /// The sockets of all clients of a directory.
    pub(super) struct Sockets {
        /// Short enough for the names in it.
        directory: PathBuf,
        /// What a short path goes through, if there is one.
        _opened: Option<File>,
        sender: UnixDatagram,
    }

    impl Sockets {
        /// `None` where there can be no sockets.
        pub(super) fn in_directory(directory: &Path) -> Result<Option<Self>, Fault> {
            let sockets = directory.join(SOCKETS_DIRECTORY);
            let made = make_private(&sockets);
            keep_private(&sockets, &directory.join(LOCKS_FILE))?;
            Ok(made.and_then(|()| Self::opened(sockets)).ok())
        }

        fn opened(directory: PathBuf) -> io::Result<Self> {
            let sender = UnixDatagram::unbound()?;
            sender.set_nonblocking(true)?;
            if directory.as_os_str().as_bytes().len() + 1 + ID_DIGITS <= PATH_BYTES_MAX {
                return Ok(Self { directory, _opened: None, sender });
            }
            // Linux leads a short path through the opened directory. Where there is no such path nothing can be bound,
            // and heartbeats do without.
            let opened = File::open(directory)?;
            let directory = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
            Ok(Self { directory, _opened: Some(opened), sender })
        }

        fn path(&self, client: ClientId) -> PathBuf {
            self.directory.join(format!("{:016x}", client.0))
        }

        pub(super) fn listen(&self, client: ClientId, inbox: LockInbox) -> io::Result<Listener> {
            let path = self.path(client);
            // Ids are drawn: a process that had this one before is dead.
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let socket = UnixDatagram::bind(&path)?;
            let listener = Listener { socket: socket.try_clone()?, path };
            let thread = thread::Builder::new().name("firstcome-pushes".into());
            thread.spawn(move || hear(&socket, client, &inbox))?;
            Ok(listener)
        }

        pub(super) fn send(&self, client: ClientId, pushes: &[Push]) {
            let path = self.path(client);
            for some in pushes.chunks(DATAGRAM_PUSHES_MAX) {
                // No process there, or no room: a heartbeat finds it.
                let _ = self.sender.send_to(&encode(some), &path);
            }
        }

        /// Removes what killed processes have left.
        pub(super) fn remove_dead(&self, now: Timestamp) {
            let Ok(entries) = fs::read_dir(&self.directory) else { return };
            for entry in entries.flatten().take(DEAD_LOOKED_AT_MAX) {
                let made = entry.metadata().and_then(|metadata| metadata.modified());
                let made = made.ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
                let age_us = now.as_us() - i64::try_from(made.as_micros()).unwrap_or(i64::MAX);
                let is_old = DEAD_AFTER.as_micros().cast_signed() < i128::from(age_us);
                if is_old && is_dead(&entry.path()) {
                    // If it is gone already, so much the better.
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
    }

    /// Closes a directory that was there before to everybody but its owner, who must be able to change the
    /// locks themselves.
    fn keep_private(sockets: &Path, locks: &Path) -> Result<(), Fault> {
        let shown = sockets.display();
        let refused = |what: &str| {
            let detail =
                format!("{shown} {what}: others could forge grants; remove it, and the next start makes it again");
            Err(Fault::new(FaultKind::Foreign, detail))
        };
        // Not of what a link leads to: that may be anybody's, and have a mode for a reason.
        let found = match fs::symlink_metadata(sockets) {
            Ok(found) => found,
            // Why it could not be made is told there.
            Err(_) => return Ok(()),
        };
        if !found.is_dir() {
            return refused("is no directory");
        }
        let owner = fs::metadata(locks).map_err(|error| io_fault(&error, format!("{} is gone", locks.display())))?;
        // The superuser needs no directory for that.
        if ![owner.uid(), 0].contains(&found.uid()) {
            return refused("belongs to another user");
        }
        let is_open = found.mode() & 0o077 != 0;
        if is_open && fs::set_permissions(sockets, Permissions::from_mode(0o700)).is_err() {
            return refused("is open to other users");
        }
        Ok(())
    }

    fn is_dead(path: &Path) -> bool {
        let connected = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
        connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    }

    /// A client's socket, which is heard by a thread of its own.
    pub(super) struct Listener {
        socket: UnixDatagram,
        path: PathBuf,
    }

    impl Drop for Listener {
        fn drop(&mut self) {
            // What fails here is cleaned up by another process later.
            let _ = fs::remove_file(&self.path);
            // Ends the thread. It is not awaited: it may be the one that runs this.
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }

    fn hear(socket: &UnixDatagram, client: ClientId, inbox: &LockInbox) {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match socket.recv(&mut buffer) {
                // No process sends nothing: it was shut down.
                Ok(0) => return,
                Ok(length) => {
                    for push in decode(&buffer[..length]).unwrap_or_default() {
                        if push.grant.request.client == client {
                            inbox(LockEvent::Push(push));
                        }
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// The form of what follows. A process of another version says so here, and is not understood.
    const FORM: u8 = 1;

    pub(super) fn encode(pushes: &[Push]) -> Vec<u8> {
        let mut bytes = vec![FORM];
        for Push { name, grant } in pushes {
            let name = name.as_str().as_bytes();
            bytes.push(u8::try_from(name.len()).unwrap_or(0));
            bytes.extend_from_slice(name);
            let Grant { request, fence, expires_us, taken } = grant;
            for number in [request.client.0, request.number, fence.get(), *expires_us] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.push(u8::from(*taken == Taken::Yes));
        }
        bytes
    }

    /// `None` for anything that [`encode`] does not write.
    pub(super) fn decode(bytes: &[u8]) -> Option<Vec<Push>> {
        let (&form, mut rest) = bytes.split_first()?;
        let mut pushes = Vec::new();
        while form == FORM && !rest.is_empty() {
            let (&length, after) = rest.split_first()?;
            let (name, mut after) = after.split_at_checked(usize::from(length))?;
            let mut numbers = [0; 4];
            for number in &mut numbers {
                let (bytes, others) = after.split_first_chunk()?;
                *number = u64::from_le_bytes(*bytes);
                after = others;
            }
            let (&taken, after) = after.split_first()?;
            let [client, request, fence, expires_us] = numbers;
            pushes.push(Push {
                name: LockName::parse(std::str::from_utf8(name).ok()?).ok()?,
                grant: Grant {
                    request: Request { client: ClientId(client), number: request },
                    fence: Fence::new(fence)?,
                    expires_us,
                    taken: if taken == 1 { Taken::Yes } else { Taken::Open },
                },
            });
            rest = after;
        }
        (form == FORM).then_some(pushes)
    }
}
