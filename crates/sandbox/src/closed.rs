use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Closes this process to others of the same user: they can no longer read its memory, its environment or its
/// descriptors, or trace it (`PR_SET_DUMPABLE`). A process that it starts is open again. There are no core dumps any more.
///
/// Say it before anything secret is read. Root, and who may trace any process, is not kept out.
///
/// # Errors
/// When the system refuses, which no Linux does.
pub fn close_to_other_processes() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
