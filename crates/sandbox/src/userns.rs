//! User namespaces as descriptors: one in which a cell's commands run, one that translates the ids of a mount.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

use crate::sys::{self, Forked};

/// `inside outside` for one id each.
pub(crate) type IdMap<'m> = &'m [(u32, u32)];

/// Which ids a new user namespace knows.
pub(crate) struct Maps<'m> {
    pub(crate) users: IdMap<'m>,
    pub(crate) groups: IdMap<'m>,
}

fn lines(map: IdMap<'_>) -> String {
    map.iter().map(|(inside, outside)| format!("{inside} {outside} 1\n")).collect()
}

/// Makes a user namespace: a child moves into it, its parent, which may, writes the maps.
///
/// `maker`: whose it is. The kernel charges what happens in it to that user too: with root's, one cell could take all that
/// every other and the machine may have of inotify instances and the like.
pub(crate) fn make(maker: Option<(u32, u32)>, maps: &Maps<'_>) -> io::Result<OwnedFd> {
    let (mut ours, mut theirs) = UnixStream::pair()?;
    match sys::fork(0)? {
        Forked::Child => {
            drop(ours);
            let made = (|| {
                if let Some((uid, gid)) = maker {
                    sys::become_user(uid, gid, true)?;
                }
                sys::unshare(UnshareFlags::NEWUSER)?;
                theirs.write_all(b"u")?;
                theirs.read_exact(&mut [0])?;
                // The second wall, behind the filter: no user namespaces in this one.
                let _older_kernels_have_none = fs::write("/proc/sys/user/max_user_namespaces", "0");
                theirs.write_all(b"d")?;
                theirs.read_exact(&mut [0]) // until the parent has its descriptor
            })();
            sys::exit(i32::from(made.is_err()))
        }
        Forked::Parent { pid, .. } => {
            drop(theirs);
            let made = map(pid, &mut ours, maps);
            drop(ours);
            sys::reap(pid);
            made
        }
    }
}

fn map(child: Pid, socket: &mut UnixStream, maps: &Maps<'_>) -> io::Result<OwnedFd> {
    let refused = |_| io::Error::other("the kernel refuses a new user namespace");
    socket.read_exact(&mut [0]).map_err(refused)?;
    let number = child.as_raw_nonzero();
    let write = |file: &str, map| {
        let path = format!("/proc/{number}/{file}");
        fs::write(&path, lines(map))
            .map_err(|error| io::Error::new(error.kind(), format!("cannot write {file}: {error}")))
    };
    write("uid_map", maps.users)?;
    write("gid_map", maps.groups)?;
    let namespace = File::open(format!("/proc/{number}/ns/user"))?;
    socket.write_all(b"m")?;
    socket.read_exact(&mut [0])?;
    socket.write_all(b"e")?;
    Ok(namespace.into())
}

/// Moves this process into a user namespace of its own, as `inside`; any user may, where the system lets users.
pub(crate) fn enter_own(inside: (u32, u32)) -> io::Result<()> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    sys::unshare(UnshareFlags::NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{} {uid} 1\n", inside.0))?;
    fs::write("/proc/self/gid_map", format!("{} {gid} 1\n", inside.1))
}
