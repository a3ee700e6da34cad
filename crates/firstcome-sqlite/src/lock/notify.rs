//! Pushes grants to clients: within the process directly, else by a datagram to a socket in the directory.
//!
//! Each client has one socket, named by its id, in a directory that only its owner can enter: a process that can write to the
//! socket can forge a grant. A name in Linux's abstract socket space would be open to every process on the machine.

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
    /// Its drop stops the client's listener. `None` if sockets do not work here: then only heartbeats find grants from other
    /// processes.
    #[cfg(unix)]
    _listener: Option<Listener>,
}

pub(super) struct LockNotifier {
    attached: RwLock<BTreeMap<ClientId, Attached>>,
    #[cfg(unix)]
    sockets: Option<Sockets>,
}

impl LockNotifier {
    /// Fails if the sockets' directory is open to other users and cannot be closed to them.
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
        // Removes the old socket first, so that a new one can take its name.
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
        // Dropped outside the lock: the drop of an inbox may run any code.
        let gone = self.attached.write().remove(&client);
        drop(gone);
    }

    pub(super) fn detach_all(&self) {
        let gone = std::mem::take(&mut *self.attached.write());
        drop(gone);
    }

    /// Sends the pushes. Never waits: a push that finds no room is lost.
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

    /// The longest path of a socket, in bytes, by `sockaddr_un` (104 on some systems).
    const PATH_BYTES_MAX: usize = 103;

    /// Hexadecimal digits of a client's id.
    const ID_DIGITS: usize = 16;

    /// Pushes in one datagram at most: 100 pushes of at most 170 bytes are far below the limit of a socket.
    const DATAGRAM_PUSHES_MAX: usize = 100;

    /// The size of the receive buffer: more than the longest datagram.
    const BUFFER_BYTES: usize = 32_768;

    /// The age at which a socket without a listener is removed. The step from its creation to its bind is never that slow.
    const DEAD_AFTER: Duration = Duration::from_secs(60);

    /// Entries that one clean-up examines at most.
    const DEAD_LOOKED_AT_MAX: usize = 256;

    /// The sockets of all clients of a directory.
    pub(super) struct Sockets {
        /// A path that is short enough for the names in it.
        directory: PathBuf,
        /// The open directory behind a `/proc` path, if the path is one.
        _opened: Option<File>,
        sender: UnixDatagram,
    }

    impl Sockets {
        /// Opens the sockets of a directory; `None` where sockets do not work.
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
            // On Linux, a short path leads through the opened directory. Elsewhere the bind fails, and heartbeats suffice.
            let opened = File::open(directory)?;
            let directory = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
            Ok(Self { directory, _opened: Some(opened), sender })
        }

        fn path(&self, client: ClientId) -> PathBuf {
            self.directory.join(format!("{:016x}", client.0))
        }

        pub(super) fn listen(&self, client: ClientId, inbox: LockInbox) -> io::Result<Listener> {
            let path = self.path(client);
            // Ids are random, so an earlier socket of this name belongs to a dead process.
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
                // A failure means no listener, or no room: a heartbeat finds the grant.
                let _ = self.sender.send_to(&encode(some), &path);
            }
        }

        /// Removes the sockets of killed processes.
        pub(super) fn remove_dead(&self, now: Timestamp) {
            let Ok(entries) = fs::read_dir(&self.directory) else { return };
            for entry in entries.flatten().take(DEAD_LOOKED_AT_MAX) {
                let made = entry.metadata().and_then(|metadata| metadata.modified());
                let made = made.ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
                let age_us = now.as_us() - i64::try_from(made.as_micros()).unwrap_or(i64::MAX);
                let is_old = DEAD_AFTER.as_micros().cast_signed() < i128::from(age_us);
                if is_old && is_dead(&entry.path()) {
                    // An error means that it is already gone.
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
    }

    /// Closes an existing directory to all users except its owner. The owner must be the owner of the locks' file, or the
    /// superuser.
    fn keep_private(sockets: &Path, locks: &Path) -> Result<(), Fault> {
        let shown = sockets.display();
        let refused = |what: &str| {
            let detail =
                format!("{shown} {what}: others could forge grants; remove it, and the next start makes it again");
            Err(Fault::new(FaultKind::Foreign, detail))
        };
        // Does not follow a link: its target may belong to another user, and have its mode for a reason.
        let found = match fs::symlink_metadata(sockets) {
            Ok(found) => found,
            // The directory is absent: `make_private` failed, and its caller handles that.
            Err(_) => return Ok(()),
        };
        if !found.is_dir() {
            return refused("is no directory");
        }
        let owner = fs::metadata(locks).map_err(|error| io_fault(&error, format!("{} is gone", locks.display())))?;
        // The superuser can change the locks anyway.
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

    /// A client's socket, with a thread that receives from it.
    pub(super) struct Listener {
        socket: UnixDatagram,
        path: PathBuf,
    }

    impl Drop for Listener {
        fn drop(&mut self) {
            // After a failure, another process removes the socket later.
            let _ = fs::remove_file(&self.path);
            // Ends the thread. Does not wait for it: this may run on that thread.
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }

    fn hear(socket: &UnixDatagram, client: ClientId, inbox: &LockInbox) {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match socket.recv(&mut buffer) {
                // No process sends an empty datagram: the socket was shut down.
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

    /// The version of the encoding. A process ignores datagrams of other versions.
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

    /// Reads a datagram; `None` for anything that [`encode`] does not write.
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
