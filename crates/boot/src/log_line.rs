//! Bounds the lines of a log: texts of a workspace or a provider may be as long as they like.

use std::io::{self, Write};

use crate::telemetry::LogFormat;

/// The most bytes of a line.
const MOST: usize = 8 * 1024;
/// The bytes that are kept of a longer one. Within JSON each may take two.
const KEPT: usize = 3 * 1024;

/// A writer that is given one whole line at a time.
pub(crate) struct LogLine<W> {
    pub(crate) to: W,
    pub(crate) format: LogFormat,
}

impl<W: Write> Write for LogLine<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if line.len() <= MOST {
            self.to.write_all(line)?;
        } else {
            self.to.write_all(cut(line, self.format).as_bytes())?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn cut(line: &[u8], format: LogFormat) -> String {
    let head = String::from_utf8_lossy(line.get(..KEPT).unwrap_or(line));
    // A character that was cut in two.
    let head = head.trim_end_matches(char::REPLACEMENT_CHARACTER);
    match format {
        LogFormat::Compact => format!("{head}… ({} bytes)\n", line.len()),
        LogFormat::Json => {
            let message = "a line of the log was too long";
            let told =
                serde_json::json!({ "message": message, "bytes": line.len(), "begins": head });
            format!("{told}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(line: &str, format: LogFormat) -> String {
        let mut to = Vec::new();
        LogLine { to: &mut to, format }.write_all(line.as_bytes()).unwrap();
        String::from_utf8(to).unwrap()
    }

    // Attack 36 of production: a repository makes a line of gigabytes.
    #[test]
    fn a_long_line_is_cut_and_stays_a_line_of_its_format() {
        let short = format!("{}\n", "x".repeat(MOST - 1));
        assert_eq!(written(&short, LogFormat::Compact), short);
        let long = format!("{{\"message\":\"{}\"}}\n", "\\\"ü".repeat(100_000));
        let plain = written(&long, LogFormat::Compact);
        assert!(plain.len() < MOST && plain.ends_with("… (400015 bytes)\n"), "{plain}");
        let json = written(&long, LogFormat::Json);
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(json.len() < MOST && json.lines().count() == 1, "{} bytes", json.len());
        assert_eq!(read["bytes"], 400_015);
        assert!(long.starts_with(read["begins"].as_str().unwrap()));
    }
}
