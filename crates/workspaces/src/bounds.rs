//! How large a repository may be.

/// The bounds of one fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillBounds {
    /// The most bytes of one fetched pack.
    pub pack_bytes: u64,
    /// The most bytes of a file.
    pub file_bytes: u64,
    /// The most bytes of all files.
    pub tree_bytes: u64,
    /// The most files, links and directories.
    pub entries: u64,
    /// The most directories in each other.
    pub depth: u64,
}

impl Default for FillBounds {
    fn default() -> Self {
        const GIB: u64 = 1 << 30;
        Self {
            pack_bytes: 5 * GIB,
            file_bytes: 2 * GIB,
            tree_bytes: 20 * GIB,
            entries: 2_000_000,
            depth: 1_000,
        }
    }
}

/// The sizes of a commit's tree, added up before anything is checked out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Its files, links and directories.
    pub entries: u64,
    /// The bytes of all its files.
    pub tree_bytes: u64,
    /// The bytes of its largest file.
    pub file_bytes: u64,
    /// Its directories in each other.
    pub depth: u64,
}

/// The bound that a repository exceeds. Nothing of it was checked out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// Its pack.
    #[error("what it has to send is more than {0} bytes")]
    Pack(u64),
    /// One file.
    #[error("it has a file of {has} bytes, and a file may have {bound}")]
    File {
        /// The file's bytes.
        has: u64,
        /// The bound.
        bound: u64,
    },
    /// All files together.
    #[error("its files have {has} bytes together, and they may have {bound}")]
    Tree {
        /// Their bytes.
        has: u64,
        /// The bound.
        bound: u64,
    },
    /// Too many files.
    #[error("it has more than {0} files and directories")]
    Entries(u64),
    /// Too many directories in each other.
    #[error("it has more than {0} directories in each other")]
    Depth(u64),
}

impl Measured {
    /// Reads the line that [`crate::measure`] prints.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut numbers = line.split_ascii_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        let (entries, tree_bytes, file_bytes) = (next()?, next()?, next()?);
        let measured = Self { entries, tree_bytes, file_bytes, depth: next()? };
        next().is_none().then_some(measured)
    }

    /// Checks the sizes.
    ///
    /// # Errors
    /// The first bound that is exceeded.
    pub fn within(self, bounds: &FillBounds) -> Result<(), TooLarge> {
        let Self { entries, tree_bytes, file_bytes, depth } = self;
        if depth > bounds.depth {
            Err(TooLarge::Depth(bounds.depth))
        } else if entries > bounds.entries {
            Err(TooLarge::Entries(bounds.entries))
        } else if file_bytes > bounds.file_bytes {
            Err(TooLarge::File { has: file_bytes, bound: bounds.file_bytes })
        } else if tree_bytes > bounds.tree_bytes {
            Err(TooLarge::Tree { has: tree_bytes, bound: bounds.tree_bytes })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_held_to_their_bounds() {
        let bounds =
            FillBounds { pack_bytes: 1, file_bytes: 10, tree_bytes: 100, entries: 5, depth: 3 };
        let of = |line: &str| Measured::parse(line).expect("a line").within(&bounds);
        assert_eq!(of("5 100 10 3\n"), Ok(()));
        assert_eq!(of("6 1 1 0"), Err(TooLarge::Entries(5)));
        assert_eq!(of("1 1 11 0"), Err(TooLarge::File { has: 11, bound: 10 }));
        assert_eq!(of("2 101 1 0"), Err(TooLarge::Tree { has: 101, bound: 100 }));
        assert_eq!(of("4 1 1 4"), Err(TooLarge::Depth(3)));
        for bad in ["", "1 2", "1 2 3", "1 2 3 4 5", "a b c d", "-1 2 3 4"] {
            assert_eq!(Measured::parse(bad), None, "{bad}");
        }
    }
}
