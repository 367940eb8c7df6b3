//! Searches the files of a directory on a few threads, with the result that one thread would give.
//!
//! ```text
//! walk ─path─▶ batch ─┬─ one that waits ─▶ a helper's thread ─┐
//!                     └─ all are busy ───▶ this thread ───────┴▶ lines, put in the order of batches
//! ```
//!
//! Invariant: the batches that are searched are the first ones of the walk. So once they have enough lines together, nothing
//! that the walk has not reached can be among the first lines of the result.

use std::iter;
use std::mem;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, Scope, ScopedJoinHandle};

use super::search::{Found, MAX_MATCHES, Search, Shows};
use crate::call::Stopped;
use crate::files::LocationFiles;
use crate::walk::Walked;

/// The files that one thread searches before it takes others. A directory with fewer needs one thread.
const BATCH: usize = 64;
/// The batches that wait for a helper.
const WAITING: usize = 2;
/// The most helpers of one search.
const MAX_HELPERS: usize = 3;

/// The helpers of all searches of this process.
static HELPERS: AtomicUsize = AtomicUsize::new(0);

/// Searches the files that `walk` adds, of which `shows` judges the targets of links. Returns what `walk` returned and what was found, in the order of the walk: all of it, or
/// so much that it is full.
///
/// # Errors
/// Those of `walk`.
pub(super) fn search(
    files: &LocationFiles,
    search: Search,
    shows: &Shows<'_>,
    walk: impl FnOnce(&mut Batches<'_, '_>) -> Result<Walked, Stopped>,
) -> Result<(Walked, Found), Stopped> {
    let lines = AtomicUsize::new(0);
    thread::scope(|scope| {
        let own = Searcher { files, search, shows, lines: &lines, found: Vec::new() };
        let mut batches = Batches { scope, own, next: Batch::default(), helpers: None };
        let walked = walk(&mut batches)?;
        Ok((walked, batches.finish()))
    })
}

/// Files in the order of a walk.
#[derive(Default)]
struct Batch {
    number: usize,
    paths: Vec<PathBuf>,
}

/// The files that a walk adds, and those who search them.
pub(super) struct Batches<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    own: Searcher<'env>,
    next: Batch,
    /// `None` until a batch is full.
    helpers: Option<Vec<Helper<'scope>>>,
}

impl<'env> Batches<'_, 'env> {
    /// Adds a file. Returns whether the walk goes on.
    pub(super) fn add(&mut self, path: &Path) -> ControlFlow<()> {
        self.next.paths.push(path.to_owned());
        if self.next.paths.len() == BATCH {
            let number = self.next.number + 1;
            let batch = mem::replace(&mut self.next, Batch { number, paths: Vec::new() });
            self.hand_out(batch);
        }
        match self.own.lines.load(Ordering::Relaxed) > MAX_MATCHES {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn hand_out(&mut self, mut batch: Batch) {
        let Self { scope, own, helpers, .. } = self;
        for helper in helpers.get_or_insert_with(|| Helper::start_some(scope, own)) {
            batch = match helper.batches.try_send(batch) {
                Ok(()) => return,
                Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) => batch,
            };
        }
        self.own.search(&batch);
    }

    fn finish(mut self) -> Found {
        self.own.search(&self.next);
        let mut found = self.own.found;
        for Helper { batches, thread } in self.helpers.into_iter().flatten() {
            drop(batches); // it ends when it has searched those that wait
            match thread.join() {
                Ok(others) => found.extend(others),
                Err(panic) => resume_unwind(panic),
            }
        }
        found.sort_unstable_by_key(|(number, _)| *number);
        let mut all = Found::default();
        for (_, found) in found {
            if !all.is_full() {
                all.lines.extend(found.lines);
                all.skipped += found.skipped;
                all.left_out += found.left_out;
            }
        }
        all
    }
}

/// One thread's part of a search.
struct Searcher<'env> {
    files: &'env LocationFiles,
    search: Search,
    shows: &'env Shows<'env>,
    /// The lines that all threads have found.
    lines: &'env AtomicUsize,
    /// By the number of the batch; without those that had nothing to tell.
    found: Vec<(usize, Found)>,
}

impl Searcher<'_> {
    fn search(&mut self, batch: &Batch) {
        let mut found = Found::default();
        for path in &batch.paths {
            if !found.is_full() {
                self.search.path(self.files, path, self.shows, &mut found);
            }
        }
        self.lines.fetch_add(found.lines.len(), Ordering::Relaxed);
        if !found.lines.is_empty() || found.skipped > 0 || found.left_out > 0 {
            self.found.push((batch.number, found));
        }
    }
}

/// A thread that searches batches until there are no more.
struct Helper<'scope> {
    batches: SyncSender<Batch>,
    thread: ScopedJoinHandle<'scope, Vec<(usize, Found)>>,
}

impl<'scope> Helper<'scope> {
    /// Starts as many as this process may have now, perhaps none. A worker has calls of many sessions, so all their searches
    /// together have helpers for half of the processors.
    fn start_some<'env>(scope: &'scope Scope<'scope, 'env>, own: &Searcher<'env>) -> Vec<Self> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        iter::from_fn(|| Self::start(scope, own, processors / 2)).take(MAX_HELPERS).collect()
    }

    fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        own: &Searcher<'env>,
        most: usize,
    ) -> Option<Self> {
        let permit = Permit::take(most)?;
        let (batches, given) = sync_channel::<Batch>(WAITING);
        let Searcher { files, ref search, shows, lines, .. } = *own;
        let search = search.clone();
        let mut searcher = Searcher { files, search, shows, lines, found: Vec::new() };
        let work = move || {
            let _permit = permit;
            for batch in given {
                searcher.search(&batch);
            }
            searcher.found
        };
        // Where no thread can be had, the others search.
        let thread = thread::Builder::new().name("grep".into()).spawn_scoped(scope, work).ok()?;
        Some(Self { batches, thread })
    }
}

/// The right to be a helper.
struct Permit;

impl Permit {
    fn take(most: usize) -> Option<Self> {
        let one_more = |helpers| (helpers < most).then_some(helpers + 1);
        HELPERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Self)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        HELPERS.fetch_sub(1, Ordering::Relaxed);
    }
}
