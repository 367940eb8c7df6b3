//! The output of commands. A reader that goes away (`… | head`) is no error.

use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};

use crate::wrap::wrapped;

/// The look of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// ASCII marks, no colour: for files, pipes, `NO_COLOR` and dumb terminals.
    Plain,
    /// Colours and ticks.
    Fancy,
}

/// The way in which a stream shows things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The look of its marks.
    pub style: Style,
    /// Whether it goes to a terminal, where foreign text is shown without control characters.
    pub is_terminal: bool,
    /// The terminal's columns; `None` without a terminal.
    pub width: Option<usize>,
}

impl Look {
    /// Returns whether what stands there can be replaced: a line that moves, or a text that is laid out.
    #[must_use]
    pub fn is_drawn(self) -> bool {
        self.is_terminal && self.style == Style::Fancy
    }
}

/// One stream of output.
pub struct Output {
    to: Box<dyn Write + Send>,
    style: Style,
    is_terminal: bool,
    is_closed: bool,
}

impl Output {
    /// Returns our standard output.
    #[must_use]
    pub fn stdout() -> Self {
        let is_terminal = io::stdout().is_terminal();
        Self::new(Box::new(io::stdout()), is_terminal)
    }

    /// Returns our standard error.
    #[must_use]
    pub fn stderr() -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self::new(Box::new(io::stderr()), is_terminal)
    }

    /// Prints to `to`, in a style that suits it.
    #[must_use]
    pub fn new(to: Box<dyn Write + Send>, is_terminal: bool) -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let fancy = is_terminal && !set("NO_COLOR") && !is_dumb;
        let style = if fancy { Style::Fancy } else { Style::Plain };
        Self { to, style, is_terminal, is_closed: false }
    }

    /// Returns the style of the output.
    #[must_use]
    pub fn style(&self) -> Style {
        self.style
    }

    /// Returns whether it goes to a terminal, where foreign text is shown without control characters.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Returns its look.
    #[must_use]
    pub fn look(&self) -> Look {
        Look { style: self.style, is_terminal: self.is_terminal, width: self.width() }
    }

    /// Returns the terminal's columns; `None` without a terminal.
    #[must_use]
    pub fn width(&self) -> Option<usize> {
        let size = self.is_terminal.then(terminal_size::terminal_size)??;
        Some(usize::from(size.0.0))
    }

    /// Prints a long text through the pager (`PAGER`, otherwise `less`) if it does not fit the terminal. Otherwise
    /// prints it like [`Output::print`].
    ///
    /// # Errors
    /// Those of [`Output::print`].
    pub fn print_paged(&mut self, text: &str) -> io::Result<()> {
        let size = if self.is_terminal { terminal_size::terminal_size() } else { None };
        let is_long = size.is_some_and(|(_, height)| text.lines().count() > usize::from(height.0));
        if is_long && paged(text) { Ok(()) } else { self.print(text) }
    }

    /// Returns whether the reader has gone away.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Prints and flushes. Does nothing once the reader has gone away.
    ///
    /// # Errors
    /// When writing fails for another reason, such as a full disk.
    pub fn print(&mut self, text: &str) -> io::Result<()> {
        self.write(text.as_bytes())
    }

    /// Prints a text and a line feed.
    ///
    /// # Errors
    /// Those of [`Output::print`].
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        self.write(format!("{text}\n").as_bytes())
    }

    /// Prints prose. A terminal gets lines that fit it; where one must be broken, that is between words.
    ///
    /// # Errors
    /// Those of [`Output::print`].
    pub fn prose(&mut self, text: &str) -> io::Result<()> {
        self.print(&wrapped(text, self.width()))
    }

    /// Prints prose and a line feed.
    ///
    /// # Errors
    /// Those of [`Output::print`].
    pub fn say(&mut self, text: &str) -> io::Result<()> {
        self.prose(&format!("{text}\n"))
    }

    /// Prints bytes unchanged.
    ///
    /// # Errors
    /// Those of [`Output::print`].
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_closed || bytes.is_empty() {
            return Ok(());
        }
        match self.to.write_all(bytes).and_then(|()| self.to.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            other => other,
        }
    }
}

/// Shows a text in the pager. Returns `false` if there is no pager.
fn paged(text: &str) -> bool {
    let chosen = std::env::var_os("PAGER").filter(|pager| !pager.is_empty());
    let pager = chosen.unwrap_or_else(|| "less -FRX".into());
    let mut command = Command::new("sh");
    command.arg("-c").arg(pager).stdin(Stdio::piped());
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut stdin) = child.stdin.take() {
        // The user may quit the pager before the end.
        let _left_early = stdin.write_all(text.as_bytes());
    }
    // 127 means that the shell found no such program.
    child.wait().is_ok_and(|status| status.code() != Some(127))
}

/// Both streams of a command.
pub struct Screen {
    /// The result.
    pub out: Output,
    /// Messages for people.
    pub err: Output,
}

impl Screen {
    /// Returns our own standard streams.
    #[must_use]
    pub fn standard() -> Self {
        Self { out: Output::stdout(), err: Output::stderr() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fails(io::ErrorKind);

    impl Write for Fails {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_goes_away_is_no_error_but_a_full_disk_is() {
        let mut gone = Output::new(Box::new(Fails(io::ErrorKind::BrokenPipe)), false);
        gone.print("a").expect("quiet");
        assert!(gone.is_closed());
        gone.print("b").expect("still quiet");
        let mut full = Output::new(Box::new(Fails(io::ErrorKind::StorageFull)), false);
        assert!(full.print("a").is_err());
    }
}
