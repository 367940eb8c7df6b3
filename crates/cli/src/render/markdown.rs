//! Shows markdown in a terminal, block by block while it comes.
//!
//! `pieces of an answer ─Markdown─▶ whole blocks ─write_document─▶ lines that fit the terminal`
//!
//! A block is shown once it is whole; a line of code at once. Nothing of a text is left out but its marks.

mod document;

use document::write_document;

/// The sign and the number of signs that open a block of code.
type Fence = (char, usize);

/// Markdown that comes in pieces.
#[derive(Debug)]
pub(super) struct Markdown {
    width: usize,
    /// The line that is not whole yet.
    line: String,
    /// The block that is not whole yet.
    block: String,
    /// The block of code that the lines are in.
    code: Option<Fence>,
    /// A block of code within `block`, such as one in a list.
    inner: Option<Fence>,
    is_after_blank: bool,
    has_shown: bool,
}

impl Markdown {
    pub(super) fn new(width: usize) -> Self {
        Self {
            width,
            line: String::new(),
            block: String::new(),
            code: None,
            inner: None,
            is_after_blank: false,
            has_shown: false,
        }
    }

    /// Takes the next piece, and returns the lines that can be shown now.
    pub(super) fn add(&mut self, piece: &str) -> String {
        let mut out = String::new();
        for part in piece.split_inclusive('\n') {
            self.line.push_str(part);
            if part.ends_with('\n') {
                let line = std::mem::take(&mut self.line);
                self.take(&line, &mut out);
            }
        }
        out
    }

    /// Returns whether something was taken and not shown yet.
    pub(super) fn is_waiting(&self) -> bool {
        !(self.line.is_empty() && self.block.trim().is_empty())
    }

    /// Returns the end of what was taken and not shown yet.
    pub(super) fn newest(&self) -> &str {
        let line = self.line.trim();
        if line.is_empty() { self.block.trim().lines().last().unwrap_or_default() } else { line }
    }

    /// Shows what is left of a text.
    pub(super) fn finish(&mut self) -> String {
        let mut out = String::new();
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.take(&format!("{line}\n"), &mut out);
        }
        self.show_block(&mut out);
        *self = Self::new(self.width);
        out
    }

    fn take(&mut self, line: &str, out: &mut String) {
        if let Some(fence) = self.code {
            if is_end(line, fence) {
                self.code = None;
            } else {
                out.push_str(&document::write_code_line(line));
            }
            return;
        }
        if let Some(fence) = self.inner {
            self.block.push_str(line);
            if is_end(line, fence) {
                self.inner = None;
            }
            return;
        }
        if line.trim().is_empty() {
            self.block.push('\n');
            self.is_after_blank = true;
            return;
        }
        let is_indented = line.starts_with([' ', '\t']);
        let fence = fence_of(line);
        if !is_indented && (self.is_after_blank || fence.is_some()) {
            self.show_block(out);
        }
        self.is_after_blank = false;
        match fence {
            Some(fence) if self.block.trim().is_empty() => {
                self.begin_block(out);
                self.code = Some(fence);
            }
            fence => {
                self.inner = fence;
                self.block.push_str(line);
            }
        }
    }

    fn show_block(&mut self, out: &mut String) {
        let block = std::mem::take(&mut self.block);
        self.inner = None;
        let shown = write_document(&block, self.width);
        if !shown.is_empty() {
            self.begin_block(out);
            out.push_str(&shown);
        }
    }

    /// Leaves a line between two blocks.
    fn begin_block(&mut self, out: &mut String) {
        if self.has_shown {
            out.push('\n');
        }
        self.has_shown = true;
    }
}

/// Returns the fence with which a line opens a block of code.
fn fence_of(line: &str) -> Option<Fence> {
    let line = line.trim();
    let sign = line.chars().next().filter(|sign| matches!(sign, '`' | '~'))?;
    let count = line.chars().take_while(|c| *c == sign).count();
    let is_code = sign == '`' && line[count..].contains('`');
    (count >= 3 && !is_code).then_some((sign, count))
}

fn is_end(line: &str, (sign, count): Fence) -> bool {
    let line = line.trim();
    line.len() >= count && line.chars().all(|c| c == sign)
}

#[cfg(test)]
mod tests;
