//! FNV-1a, 64 bits: fast and identical everywhere, but no defence against an attacker.

/// Returns the hash of some bytes.
pub(crate) fn hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_the_published_function() {
        // http://www.isthe.com/chongo/tech/comp/fnv/: the offset basis, and the test value of "foobar".
        assert_eq!(super::hash([]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(super::hash(*b"foobar"), 0x8594_4171_f739_67e8);
    }
}
