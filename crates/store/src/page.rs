//! Pages of rows whose sizes differ by a factor of a million.

/// After how many bytes of text a page of events ends, as `page_bytes()` says it: the event that goes past it is the
/// page's last.
pub(crate) const PAGE_BYTES: usize = 8 << 20;
/// The same of messages: clients show a session by them, and most read it once.
pub(crate) const MESSAGE_PAGE_BYTES: usize = 4 * PAGE_BYTES;
/// Rows of a page at the most, whatever its reader asks for.
pub(crate) const MAX_ROWS: i64 = 10_000;

/// A part of something long. It is bounded by bytes as well as by rows, so a page with fewer rows than were asked for
/// need not be the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// At least one, if there is any.
    pub items: Vec<T>,
    /// There may be more. The page behind the last one is empty.
    pub more: bool,
}

impl<T> Page<T> {
    /// A page of `items` with `bytes` of text, of which at most `limit` rows and about `most` bytes were asked for.
    pub(crate) fn of(items: Vec<T>, limit: i64, bytes: usize, most: usize) -> Self {
        let is_full = i64::try_from(items.len()).is_ok_and(|rows| rows >= limit);
        Self { more: is_full || bytes >= most, items }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_the_last_only_below_both_bounds() {
        let more = |rows: usize, bytes| Page::of(vec![(); rows], 3, bytes, 100).more;
        assert_eq!([more(0, 0), more(2, 99), more(3, 0), more(1, 100)], [false, false, true, true]);
    }
}
