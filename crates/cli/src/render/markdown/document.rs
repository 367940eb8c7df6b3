//! One whole piece of markdown as the lines of a terminal.

use std::fmt::Write as _;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::super::printable;
use super::super::table::{Cell, write_table};
use super::super::words::{Words, lay_out};

const BOLD: &str = "1";
const DIM: &str = "2";
const ITALIC: &str = "3";
const UNDERLINED: &str = "4";
const STRUCK: &str = "9";
const CODE: &str = "36";
/// The longest rule.
const RULE: usize = 40;
/// The narrowest column in which words are laid out.
const NARROWEST: usize = 16;

/// Returns the lines of a piece of markdown, each with a line feed.
pub(super) fn write_document(text: &str, width: usize) -> String {
    let mut writer = Writer { width, ..Writer::default() };
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    for event in Parser::new_ext(text, options) {
        writer.take(event);
    }
    writer.show_words();
    writer.out
}

/// Returns a line of code. It stays whole, since people paste it.
pub(super) fn write_code_line(line: &str) -> String {
    let line = printable::block(line);
    match line.trim_end_matches('\n') {
        "" => "\n".to_owned(),
        line => format!("  \x1b[{CODE}m{line}\x1b[0m\n"),
    }
}

#[derive(Default)]
struct Writer {
    width: usize,
    out: String,
    words: Words,
    /// The codes of the styles that are on.
    styles: Vec<&'static str>,
    /// The address of each link that is open, and where its text begins.
    links: Vec<(String, usize)>,
    /// The beginning of each line: of quotes and lists.
    margins: Vec<Margin>,
    /// The number of the next item of each list that is open.
    lists: Vec<Option<u64>>,
    is_code: bool,
    table: Option<Vec<Vec<Cell>>>,
}

struct Margin {
    /// The first line's, until it is written.
    first: Option<String>,
    rest: &'static str,
    spaces: usize,
}

impl Writer {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.begin(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.is_code => {
                for line in printable::block(&text).lines() {
                    let line = write_code_line(line);
                    self.put_line(line.trim_end_matches('\n'));
                }
            }
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.add(&text),
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.styles.push(CODE);
                self.add(&text);
                self.styles.pop();
            }
            Event::SoftBreak => self.words.space(),
            Event::HardBreak => self.words.break_line(),
            Event::Rule => {
                self.leave_line();
                self.put_line(&"─".repeat(self.left().min(RULE)));
            }
            Event::TaskListMarker(is_done) => self.add(if is_done { "✓ " } else { "□ " }),
            Event::FootnoteReference(name) => self.add(&format!("[{name}]")),
        }
    }

    fn begin(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.leave_line(),
            Tag::Heading { level, .. } => {
                self.leave_line();
                self.styles.push(BOLD);
                if level <= HeadingLevel::H2 {
                    self.styles.push(UNDERLINED);
                }
            }
            Tag::BlockQuote(_) => {
                self.leave_line();
                self.margins.push(Margin { first: None, rest: "│ ", spaces: 0 });
            }
            Tag::CodeBlock(_) => {
                self.leave_line();
                self.is_code = true;
            }
            Tag::List(number) => {
                self.leave_line();
                self.lists.push(number);
            }
            Tag::Item => {
                self.show_words();
                let sign = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    Some(None) | None => "• ".to_owned(),
                };
                let spaces = sign.chars().count();
                self.margins.push(Margin { first: Some(sign), rest: "", spaces });
            }
            Tag::Table(_) => {
                self.leave_line();
                self.table = Some(Vec::new());
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(rows) = &mut self.table {
                    rows.push(Vec::new());
                }
            }
            Tag::Emphasis => self.styles.push(ITALIC),
            Tag::Strong => self.styles.push(BOLD),
            Tag::Strikethrough => self.styles.push(STRUCK),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((printable::line(&dest_url, 2_000), self.words.len()));
                self.styles.push(UNDERLINED);
            }
            Tag::TableCell
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.show_words(),
            TagEnd::Heading(level) => {
                self.show_words();
                self.styles.pop();
                if level <= HeadingLevel::H2 {
                    self.styles.pop();
                }
            }
            TagEnd::BlockQuote(_) | TagEnd::Item => {
                self.show_words();
                if self.margins.last().is_some_and(|margin| margin.first.is_some()) {
                    self.put_line(""); // an item without a text
                }
                self.margins.pop();
            }
            TagEnd::CodeBlock => self.is_code = false,
            TagEnd::List(_) => drop(self.lists.pop()),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.words);
                if let Some(row) = self.table.as_mut().and_then(|rows| rows.last_mut()) {
                    row.push(cell);
                }
            }
            TagEnd::Table => {
                let rows = self.table.take().unwrap_or_default();
                for line in write_table(&rows, self.left()) {
                    self.put_line(&line);
                }
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => drop(self.styles.pop()),
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                self.name_address();
            }
            TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    /// Says where a link leads, unless its text says it.
    fn name_address(&mut self) {
        let Some((address, start)) = self.links.pop() else { return };
        let text = self.words.text_from(start);
        if !address.is_empty() && !address.ends_with(text.as_str()) {
            self.styles.push(DIM);
            self.words.space();
            self.add(&format!("({address})"));
            self.styles.pop();
        }
    }

    fn add(&mut self, text: &str) {
        self.words.add(&printable::block(text), &self.styles.join(";"));
    }

    /// Leaves a line before a block, but not within lists.
    fn leave_line(&mut self) {
        self.show_words();
        if !self.out.is_empty() && self.lists.is_empty() {
            let margin: String = self.margins.iter().map(|margin| margin.rest).collect();
            writeln!(self.out, "{}", margin.trim_end()).expect("writing to a string cannot fail");
        }
    }

    /// The columns that the margins leave.
    fn left(&self) -> usize {
        let margins = self.margins.iter().map(|its| its.rest.chars().count() + its.spaces);
        self.width.saturating_sub(margins.sum()).max(NARROWEST)
    }

    fn show_words(&mut self) {
        let words = std::mem::take(&mut self.words);
        for line in lay_out(&words, self.left()) {
            self.put_line(&line.text);
        }
    }

    fn put_line(&mut self, line: &str) {
        for margin in &mut self.margins {
            match margin.first.take() {
                Some(first) => self.out.push_str(&first),
                None if margin.rest.is_empty() && line.is_empty() => {}
                None if margin.rest.is_empty() => {
                    self.out.extend(std::iter::repeat_n(' ', margin.spaces));
                }
                None => {
                    write!(self.out, "\x1b[{DIM}m{}\x1b[0m", margin.rest)
                        .expect("writing to a string cannot fail");
                }
            }
        }
        self.out.push_str(line);
        self.out.push('\n');
    }
}
