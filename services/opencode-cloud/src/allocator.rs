//! The allocator, and how soon it gives memory back.
#![expect(unsafe_code, reason = "mimalloc's options have no safe wrapper")]

use std::ffi::{c_int, c_long};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` in `mimalloc.h`: the milliseconds after which free memory goes back to the system, and ten times
/// as many for whole blocks.
const PURGE_DELAY: c_int = 15;

unsafe extern "C" {
    fn mi_option_set(option: c_int, value: c_long);
}

/// Has free memory go back to the system at once. Ten seconds later, as mimalloc would have it, a worker that reads a log of
/// 100 MB a turn kept what several turns had freed: 600 MiB instead of 150. It costs turns nothing that can be measured.
pub(crate) fn return_memory_at_once() {
    // SAFETY: the function stores a number in a table that the allocator reads, and the option is one of the table.
    unsafe { mi_option_set(PURGE_DELAY, 0) }
}
