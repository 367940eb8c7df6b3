//! Turns a page's HTML into Markdown or plain text, within bounds on time and depth.
//!
//! A hostile page nests elements without end: the parser's time grows with the square of the depth, and the conversion's stack
//! with the depth. So the parser gets the page in pieces until its time is over, and what is nested too deeply is left out.

use std::rc::Rc;
use std::time::{Duration, Instant};

use htmd::HtmlToMarkdown;
use html5ever::tendril::{StrTendril, TendrilSink};
use html5ever::{ParseOpts, parse_document};
use markup5ever_rcdom::{Node, NodeData, RcDom};

/// The time for parsing.
const MAX_TIME: Duration = Duration::from_secs(3);
/// The bytes that the parser gets at once.
const PIECE_BYTES: usize = 4 * 1024;
/// The deepest elements that count.
const MAX_DEPTH: usize = 100;
/// Elements that hold no text for a reader.
const SILENT: [&str; 11] = [
    "head",
    "script",
    "style",
    "noscript",
    "template",
    "svg",
    "iframe",
    "object",
    "canvas",
    "form-control",
    "math",
];
/// Elements that stand in their line.
const INLINE: [&str; 20] = [
    "a", "abbr", "b", "bdi", "cite", "code", "em", "font", "i", "kbd", "label", "mark", "q", "s",
    "small", "span", "strong", "sub", "sup", "u",
];

/// A page as text.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) text: String,
    /// Parts were left out, because they were nested too deeply or took too long.
    pub(super) is_cut: bool,
}

/// Converts HTML to Markdown.
pub(super) fn markdown(html: &str) -> Page {
    let (document, mut is_cut) = parse(html);
    is_cut |= prune(&document);
    let converter = HtmlToMarkdown::builder().skip_tags(SILENT.to_vec()).build();
    Page { text: converter.tree_to_markdown(&document), is_cut }
}

/// Returns the text of HTML, one block a line.
pub(super) fn plain(html: &str) -> Page {
    let (document, is_cut) = parse(html);
    let mut text = String::new();
    // A node, or the end of a block.
    let mut next = vec![Some(document.clone())]; // it must outlive the walk: a node that is dropped takes all below it along
    while let Some(node) = next.pop() {
        let Some(node) = node else {
            end_line(&mut text);
            continue;
        };
        match &node.data {
            NodeData::Text { contents } => {
                for word in contents.borrow().split_inclusive(char::is_whitespace) {
                    let is_spaced = text.ends_with(char::is_whitespace) || text.is_empty();
                    let bare = word.trim_end();
                    text.push_str(bare);
                    if bare.len() < word.len() && !(bare.is_empty() && is_spaced) {
                        text.push(' ');
                    }
                }
                continue;
            }
            NodeData::Element { name, .. } if SILENT.contains(&&*name.local) => continue,
            NodeData::Element { name, .. } if !INLINE.contains(&&*name.local) => {
                end_line(&mut text);
                next.push(None);
            }
            NodeData::Element { .. }
            | NodeData::Document
            | NodeData::Doctype { .. }
            | NodeData::Comment { .. }
            | NodeData::ProcessingInstruction { .. } => {}
        }
        next.extend(node.children.borrow().iter().rev().cloned().map(Some));
    }
    Page { text: text.trim().to_owned(), is_cut }
}

fn end_line(text: &mut String) {
    text.truncate(text.trim_end_matches(' ').len());
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

/// Parses as much as there is time for. Returns whether that is less than all.
fn parse(html: &str) -> (Rc<Node>, bool) {
    let until = Instant::now() + MAX_TIME;
    let mut parser = parse_document(RcDom::default(), ParseOpts::default());
    let mut rest = html;
    while !rest.is_empty() && Instant::now() < until {
        let (piece, after) = rest.split_at(rest.ceil_char_boundary(PIECE_BYTES));
        parser.process(StrTendril::from_slice(piece));
        rest = after;
    }
    (parser.finish().document, !rest.is_empty())
}

/// Takes away what is nested too deeply. Returns whether there was something.
fn prune(document: &Rc<Node>) -> bool {
    let mut is_cut = false;
    let mut next = vec![(document.clone(), 0)];
    while let Some((node, depth)) = next.pop() {
        let mut children = node.children.borrow_mut();
        if depth == MAX_DEPTH {
            is_cut |= !children.is_empty();
            children.clear();
        }
        next.extend(children.iter().map(|child| (child.clone(), depth + 1)));
    }
    is_cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_markdown_or_text() {
        let html = "<html><head><title>T</title><style>x{}</style></head><body><h1>One</h1><p>a <b>b</b>\n c\
                    <script>alert(1)</script></p><ul><li>x</li><li><a href=\"/y\">y</a></li></ul></body></html>";
        let page = markdown(html);
        assert!(!page.is_cut);
        for part in ["# One", "a **b** c", "[y](/y)"] {
            assert!(page.text.contains(part), "{}", page.text);
        }
        assert!(!page.text.contains("alert") && !page.text.contains("x{}"));
        assert_eq!(plain(html).text, "One\na b c\nx\ny");
    }

    #[test]
    fn a_hostile_page_costs_bounded_time_and_stack() {
        for piece in [
            "<div>",
            "<b><div></b>",
            "<table><tr><td>",
            "<p><a>",
            "<ul><li>",
            "<svg>",
            "<font><p>",
            "<blockquote>",
        ] {
            let html = piece.repeat(40 * 1024 / piece.len());
            let before = Instant::now();
            let page = markdown(&html);
            let is_flat = ["<p><a>", "<font><p>"].contains(&piece);
            assert!(page.is_cut || is_flat, "{piece}");
            let _text = plain(&html);
            assert!(before.elapsed() < Duration::from_secs(60), "{piece}: {:?}", before.elapsed());
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_page(html in "(<(/?(p|b|pre|code|h1|ul|ol|li|table|tr|td|th|a|img|br|div)|!--)( href=x)?>|[a-z`*_# \n]{1,4}|&lt;|é){0,30}") {
            let _page = markdown(&html);
            let _page = plain(&html);
        }
    }
}
