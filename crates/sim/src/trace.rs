/// A hash of everything that happened in a history. If the same seed gives another hash, something besides the seed
/// decides.
#[derive(Debug, Clone)]
pub(crate) struct Trace(u64);

impl Default for Trace {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Trace {
    /// Adds what happened.
    pub(crate) fn add(&mut self, what: &str) {
        for byte in what.bytes().chain([0xff]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Adds a number.
    pub(crate) fn count(&mut self, number: i64) {
        self.0 =
            (self.0 ^ number.unsigned_abs()).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    /// All of it so far.
    #[must_use]
    pub(crate) fn hash(&self) -> u64 {
        self.0
    }
}
