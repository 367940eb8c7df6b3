//! The way from a cell into a network: a listener that is made inside the cell and passed out to the worker, which serves a
//! proxy on it. A cell has no interface but loopback, so that there is no other way.
//!
//! Absent: the proxy itself, which whoever starts the sandbox gives as [`Exits`].

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpListener;

/// Where the proxy of a cell listens, on the cell's own loopback.
pub const EXIT_PORT: u16 = 3128;

/// The most refusals that are kept for the commands of one cell.
const KEPT: usize = 64;

/// How far the commands of a cell get into networks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Reach {
    /// To nobody but the cell's own processes.
    #[default]
    None,
    /// To the registries that package managers use, by HTTP and TLS.
    Packages,
    /// To every public address, by HTTP and TLS.
    Open,
}

impl Reach {
    /// All, the shortest one first.
    pub const ALL: [Self; 3] = [Self::None, Self::Packages, Self::Open];

    /// Its name on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Packages => "packages",
            Self::Open => "open",
        }
    }

    /// The reach of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reach| reach.name() == name)
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Serves the proxies of cells.
pub trait Exits: fmt::Debug + Send + Sync + 'static {
    /// Serves the proxy of one cell, in the background, until [`Opening::closed`] ends.
    fn serve(&self, opening: Opening);

    /// Certificates in PEM that commands believe, the system's among them; empty: the system's alone.
    fn certificates(&self) -> &[u8];
}

/// A cell that has just been made, and its way out.
pub struct Opening {
    /// Its listener. Who connects to it is a command of this cell, and of no other.
    pub listener: TcpListener,
    /// How far its commands get.
    pub reach: Reach,
    /// Whose cell it is: [`crate::Cell::name`].
    pub cell: String,
    /// Where the proxy writes whom it refused, for the results of commands.
    pub refusals: Arc<Refusals>,
    /// Ends with the cell.
    pub closed: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The connections of one cell that were refused.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    newest: VecDeque<String>,
    /// How many there were before those.
    dropped: u64,
}

impl Refusals {
    /// Keeps one, in a sentence for the model.
    pub fn push(&self, sentence: String) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.newest.len() == KEPT {
            kept.newest.pop_front();
            kept.dropped += 1;
        }
        kept.newest.push_back(sentence);
    }

    /// How many there have been.
    #[must_use]
    pub fn count(&self) -> u64 {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.dropped + u64::try_from(kept.newest.len()).unwrap_or(u64::MAX)
    }

    /// Those after the first `count`, each sentence once.
    #[must_use]
    pub fn since(&self, count: u64) -> Vec<String> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let skip = usize::try_from(count.saturating_sub(kept.dropped)).unwrap_or(usize::MAX);
        let mut found: Vec<String> = Vec::new();
        for sentence in kept.newest.iter().skip(skip) {
            if !found.contains(sentence) {
                found.push(sentence.clone());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_sees_its_own_refusals_and_the_newest_ones() {
        let refusals = Refusals::default();
        refusals.push("before".to_owned());
        let mark = refusals.count();
        assert_eq!(refusals.since(mark), Vec::<String>::new());
        for sentence in ["a", "b", "a"] {
            refusals.push(sentence.to_owned());
        }
        assert_eq!(refusals.since(mark), ["a", "b"]);
        for number in 0..1_000 {
            refusals.push(number.to_string());
        }
        let since = refusals.since(mark);
        assert_eq!((since.len(), since[KEPT - 1].as_str()), (KEPT, "999"));
        assert_eq!(refusals.since(refusals.count()).len(), 0);
    }
}
