use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};

/// All that a service of root's needs: to make cells and change users, to end what it started, to see who holds a lock, and
/// to reach a workspace whoever owns it.
const NEEDED: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_RESOURCE);

/// Gives up the capabilities that no service needs, for this process and all that it starts: modules, raw devices and
/// sockets, clocks, BPF and the like. Programs with setuid bits give it none back. Say it while there is one thread.
///
/// Root's files stay root's: this makes the kernel's surface smaller, and is no boundary.
///
/// # Errors
/// When the system refuses, which no Linux does.
pub fn keep_needed_rights() -> io::Result<()> {
    set_no_new_privs(true)?;
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if NEEDED.contains(one) {
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
            effective: effective & NEEDED,
            permitted: permitted & NEEDED,
            inheritable: inheritable & NEEDED,
        },
    )?)
}
