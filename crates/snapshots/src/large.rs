//! The files of a Location that are too large for its trees, and their list in each tree.

use std::collections::BTreeSet;
use std::path::Path;

use crate::directory::{Leaf, Vouch};
use crate::object::{Entry, Kind, ObjectId};
use crate::scan::{LeftOut, REMEMBERED, Why};
use crate::touched::Touched;

/// The files outside of `.git` that were too large at the last look.
#[derive(Debug, Default)]
pub(crate) struct LargeFiles(BTreeSet<String>);

impl LargeFiles {
    /// Takes in what a look at `touched` has left out.
    pub(crate) fn note(&mut self, touched: &Touched, left_out: &[LeftOut]) {
        match touched {
            Touched::Nothing => return,
            Touched::Anything => self.0.clear(),
            Touched::Paths(paths) => self.0.retain(|known| {
                !paths.iter().any(|path| Path::new(known).starts_with(path.trim_matches('/')))
            }),
        }
        let large = left_out.iter().filter(|left| left.why == Why::TooLarge);
        let outside = large.filter(|left| !Path::new(&left.path).starts_with(".git"));
        self.0.extend(outside.map(|left| left.path.clone()).take(REMEMBERED));
    }

    /// Returns their list as the file that trees have.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|path| path.bytes().chain([0])).collect()
    }
}

/// Returns the entry of the list. No scan believes its stat.
pub(crate) fn leaf(bytes: &[u8]) -> Leaf {
    let entry = Entry { kind: Kind::File, id: ObjectId::of(bytes) };
    let vouch = Vouch { changed_ns: 0, modified_ns: 0, size: 0, inode: 0, mode: 0 };
    Leaf { entry, vouch, racy: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_at_paths_forgets_only_what_is_there() {
        let left = |path: &str, why| LeftOut { path: path.into(), why, vouch: None };
        let mut large = LargeFiles::default();
        let all = ["a/x", "a/y", "b", ".git/pack"].map(|path| left(path, Why::TooLarge));
        large.note(&Touched::Anything, &all);
        assert_eq!(large.bytes(), b"a/x\0a/y\0b\0");
        large.note(&Touched::Nothing, &[]);
        let paths = ["a".to_owned(), "c".to_owned()].into();
        large.note(&Touched::Paths(paths), &[left("c", Why::TooLarge), left("d", Why::Special)]);
        assert_eq!(large.bytes(), b"b\0c\0");
        large.note(&Touched::Anything, &[]);
        assert_eq!(large.bytes(), b"");
    }
}
