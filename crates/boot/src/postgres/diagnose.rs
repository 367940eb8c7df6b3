//! Reads the log of a Postgres that did not start. Its text is the only information.

/// The reason why Postgres or initdb failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Diagnosis {
    PortInUse,
    DiskFull,
    /// The most informative line.
    Other(String),
}

/// Reads the log of one start, which is in the C locale.
pub(super) fn diagnose(log: &str) -> Diagnosis {
    if log.contains("No space left on device") {
        return Diagnosis::DiskFull;
    }
    if log.contains("Address already in use") {
        return Diagnosis::PortInUse;
    }
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    let worst = lines()
        .find(|line| ["PANIC:", "FATAL:", "error:"].iter().any(|severity| line.contains(severity)));
    let line = worst.or_else(|| lines().next_back()).unwrap_or("it said nothing");
    Diagnosis::Other(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_found_among_its_consequences() {
        let taken = "LOG:  could not bind IPv4 address \"127.0.0.1\": Address already in use\n\
                     FATAL:  could not create any TCP/IP sockets\n";
        assert_eq!(diagnose(taken), Diagnosis::PortInUse);
        let full = "initdb: error: could not write file \"x\": No space left on device\n";
        assert_eq!(diagnose(full), Diagnosis::DiskFull);
        let other =
            "LOG:  starting\n 1 FATAL:  lock file is empty\nLOG:  database is shut down\n\n";
        assert_eq!(diagnose(other), Diagnosis::Other("1 FATAL:  lock file is empty".into()));
        assert_eq!(diagnose("last words\n"), Diagnosis::Other("last words".into()));
        assert_eq!(diagnose(""), Diagnosis::Other("it said nothing".into()));
    }
}
