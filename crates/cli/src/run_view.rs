//! The way a run is shown: as text for people, with a line that moves while nothing comes, or as JSON.

use std::io::{self, IsTerminal as _, stdin};
use std::time::Duration;

use client::LogItem;
use tokio::time::Instant;

use crate::output::Screen;
use crate::render::{Piece, Printed, Renderer};
use crate::wrap::shortened;

/// How often the moving line moves.
pub(crate) const FRAME: Duration = Duration::from_millis(120);
/// How long nothing must come before it appears.
const QUIET: Duration = Duration::from_millis(400);
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
/// Goes to the first column and empties the line.
const CLEAR: &str = "\r\x1b[2K";

/// A run on a screen.
pub(crate) struct View<'a> {
    screen: &'a mut Screen,
    /// `None` prints JSON.
    renderer: Option<Renderer>,
    spinner: Option<Spinner>,
}

/// A line that moves while nothing comes.
struct Spinner {
    /// The time of the last thing that came.
    since: Instant,
    is_drawn: bool,
    frame: usize,
    /// The reason to wait, if the renderer does not know it.
    about: String,
}

impl<'a> View<'a> {
    pub(crate) fn new(is_json: bool, screen: &'a mut Screen) -> Self {
        let (out, err) = (screen.out.look(), screen.err.look());
        let renderer = (!is_json).then(|| Renderer::new(out, err));
        let is_moving = !is_json && err.is_drawn();
        let spinner = is_moving.then(|| Spinner {
            since: Instant::now(),
            is_drawn: false,
            frame: 0,
            about: String::new(),
        });
        Self { screen, renderer, spinner }
    }

    /// Returns whether a person can be asked here.
    pub(crate) fn has_person(&self) -> bool {
        // Questions go to standard error; the answer of the run may go anywhere.
        self.renderer.is_some() && self.screen.err.is_terminal() && stdin().is_terminal()
    }

    /// Returns whether a line moves while nothing comes.
    pub(crate) fn is_moving(&self) -> bool {
        self.spinner.is_some()
    }

    /// Says what is waited for, until something else comes.
    pub(crate) fn wait_for(&mut self, about: String) {
        if let Some(spinner) = &mut self.spinner {
            spinner.about = about;
        }
    }

    /// Shows an item of the log; of text only what `is_ours`.
    pub(crate) fn show(&mut self, item: &LogItem, is_ours: bool) -> io::Result<()> {
        let Some(renderer) = &mut self.renderer else {
            return self.screen.out.line(&item.json_line());
        };
        if !is_ours {
            return Ok(());
        }
        let printed = match item {
            LogItem::Delta(delta) => renderer.delta(delta),
            LogItem::Event(event) => {
                renderer.at(event.time);
                event.event.as_ref().map(|event| renderer.event(event)).unwrap_or_default()
            }
            LogItem::Workspace(_) => return Ok(()),
        };
        if let Some(spinner) = &mut self.spinner {
            spinner.since = Instant::now();
            spinner.about.clear();
        }
        self.print(&printed)
    }

    /// Announces what takes long, where no line moves.
    pub(crate) fn announce(&mut self) -> io::Result<()> {
        let is_moving = self.is_moving();
        let Some(renderer) = self.renderer.as_mut().filter(|_| !is_moving) else { return Ok(()) };
        let printed = renderer.announce();
        self.print(&printed)
    }

    /// Shows a message for people.
    pub(crate) fn note(&mut self, text: &str) -> io::Result<()> {
        if let Some(renderer) = &mut self.renderer {
            let printed = renderer.pause();
            self.print(&printed)?;
        }
        self.clear()?;
        self.screen.err.say(text)
    }

    /// Draws the moving line anew if nothing came for a moment.
    pub(crate) fn spin(&mut self) -> io::Result<()> {
        let (Some(spinner), Some(renderer)) = (&mut self.spinner, &self.renderer) else {
            return Ok(());
        };
        let quiet = spinner.since.elapsed();
        if quiet < QUIET && !spinner.is_drawn {
            return Ok(());
        }
        let work = renderer.describe_work();
        let about = if work.is_empty() { &spinner.about } else { &work };
        let width = self.screen.err.width();
        let line = write_spinner(spinner.frame, quiet, about, width);
        spinner.frame += 1;
        spinner.is_drawn = true;
        self.screen.err.print(&format!("{CLEAR}\x1b[2m{line}\x1b[0m"))
    }

    /// Shows all that is left, and leaves the screen to others.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if let Some(renderer) = &mut self.renderer {
            let printed = renderer.finish();
            self.print(&printed)?;
        }
        self.clear()
    }

    /// Takes the moving line away.
    fn clear(&mut self) -> io::Result<()> {
        let was_drawn = self.spinner.as_mut().map(|its| std::mem::take(&mut its.is_drawn));
        if was_drawn == Some(true) { self.screen.err.print(CLEAR) } else { Ok(()) }
    }

    fn print(&mut self, printed: &Printed) -> io::Result<()> {
        if !printed.pieces().is_empty() {
            self.clear()?;
        }
        for piece in printed.pieces() {
            match piece {
                Piece::Out(text) => self.screen.out.print(text)?,
                Piece::Err(text) => self.screen.err.prose(text)?,
            }
        }
        Ok(())
    }
}

/// Returns the moving line, which never fills the terminal's last column: the cursor would go to the next line.
fn write_spinner(frame: usize, quiet: Duration, about: &str, width: Option<usize>) -> String {
    let sign = FRAMES[frame % FRAMES.len()];
    let line = match quiet.as_secs() {
        0 => format!("{sign} {about}"),
        seconds => format!("{sign} {seconds} s  {about}"),
    };
    shortened(line.trim_end(), width.map(|width| width.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moving_line_has_seconds_and_fits() {
        let line = |ms, about| write_spinner(11, Duration::from_millis(ms), about, Some(16));
        assert_eq!(line(500, ""), "⠙");
        assert_eq!(line(12_900, "thinking"), "⠙ 12 s  thinkin…".replace("thinkin…", "thinki…"));
        assert_eq!(line(1_000, "x"), "⠙ 1 s  x");
    }
}
