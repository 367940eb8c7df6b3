//! The refs of a repository as text, for a row: what a fetch was for, and what a clone shows as `origin/…`.

use git_wire::{Listed, Oid};

/// The error for text that is no list of refs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a kept list of refs is damaged at line {0}")]
pub struct ListingError(pub usize);

/// Writes refs, one a line: the object, the object behind a tag or `-`, and the name.
#[must_use]
pub fn write_refs(refs: &[Listed]) -> String {
    let line = |found: &Listed| {
        let peeled = found.peeled.map_or_else(|| "-".to_owned(), |oid| oid.to_string());
        format!("{} {peeled} {}\n", found.oid, found.name)
    };
    refs.iter().map(line).collect()
}

/// Reads what [`write_refs`] wrote.
///
/// # Errors
/// The text is another.
pub fn parse_refs(text: &str) -> Result<Vec<Listed>, ListingError> {
    let read = |(index, line): (usize, &str)| {
        let damaged = ListingError(index + 1);
        let mut words = line.splitn(3, ' ');
        let (Some(oid), Some(peeled), Some(name)) = (words.next(), words.next(), words.next())
        else {
            return Err(damaged);
        };
        let oid: Oid = oid.parse().map_err(|_| damaged.clone())?;
        let peeled = match peeled {
            "-" => None,
            oid => Some(oid.parse().map_err(|_| damaged.clone())?),
        };
        let name = name.parse().map_err(|_| damaged)?;
        Ok(Listed { name, oid, peeled })
    };
    text.lines().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refs_are_had_back_from_their_text() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let text = format!("{a} - refs/heads/main\n{b} {a} refs/tags/v1\n");
        let refs = parse_refs(&text).expect("refs");
        assert_eq!((refs.len(), write_refs(&refs)), (2, text));
        assert_eq!(parse_refs(&format!("{a} - HEAD\n")), Err(ListingError(1)));
        assert_eq!(parse_refs("x\n"), Err(ListingError(1)));
    }
}
