//! Root's processes give up rights. Root's files stay root's: this makes what a fault in the service can do smaller, and is no
//! boundary.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};

/// The service's own rights as root, once its launcher runs: to reach a workspace whoever owns it, to start Postgres as its
/// user, to end what it started, to see who holds a lock, and to listen on a low port.
const OF_FILES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_PTRACE);

/// The same, and what a launcher needs to make cells.
const NEEDED: CapabilitySet = OF_FILES
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_RESOURCE);

/// Gives up the capabilities that no service needs, for this process and all that it starts: modules, raw devices and
/// sockets, clocks, BPF and the like. Programs with setuid bits give it none back. Say it while there is one thread.
///
/// # Errors
/// When the system refuses, which no Linux does.
pub fn keep_needed_rights() -> io::Result<()> {
    keep(NEEDED)
}

/// Gives up besides what only a launcher needs: mounts, namespaces, networks, limits. What is started afterwards has none of
/// it either. Say it while there is one thread.
///
/// # Errors
/// When the system refuses, which no Linux does.
pub fn keep_rights_to_files() -> io::Result<()> {
    keep(OF_FILES)
}

/// Returns whether [`keep_rights_to_files`] takes rights that a launcher uses: all of root's, or some, as in a container
/// whose root makes user namespaces and no others.
///
/// # Errors
/// When the system refuses, which no Linux does.
pub fn has_rights_of_launchers() -> io::Result<bool> {
    Ok(capabilities(None)?.permitted.intersects(NEEDED.difference(OF_FILES)))
}

fn keep(kept: CapabilitySet) -> io::Result<()> {
    set_no_new_privs(true)?;
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(one) {
            continue;
        }
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // Without a capability there is none to give up; this kernel has none of this number.
            Err(Errno::PERM | Errno::INVAL) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    Ok(set_capabilities(
        None,
        CapabilitySets {
            effective: effective & kept,
            permitted: permitted & kept,
            inheritable: inheritable & kept,
        },
    )?)
}
