//! `opencode-cloud export` and `import`: a session goes to another service, in a file or through a pipe.

mod export;
mod import;

pub use export::ExportArgs;
pub(crate) use export::execute as export;
pub use import::ImportArgs;
pub(crate) use import::execute as import;

/// Returns a number of bytes for people.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    if bytes < 1_000 {
        return format!("{bytes} bytes");
    }
    let (mut tenths, mut unit) = (bytes / 100, 0);
    while tenths >= 10_000 && unit + 1 < UNITS.len() {
        tenths /= 1_000;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_for_people() {
        for (bytes, shown) in [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1_000, "1.0 KB"),
            (1_234_567, "1.2 MB"),
            (999_999, "999.9 KB"),
            (8_000_000_000, "8.0 GB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }
}
