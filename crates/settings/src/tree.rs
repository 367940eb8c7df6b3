//! Values of a settings text with their lines. Keys keep their order, because the last rule that matches decides.

use std::fmt;

use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DefaultMessageFormatter, MessageFormatter as _, Spanned};

/// The deepest value that is read. Settings need six levels.
const MAX_DEPTH: usize = 32;

/// The longest YAML that is read, in bytes.
const MAX_YAML: usize = 64 * 1024;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    /// As it is written.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A value with its line, from 1; 0 if the line is not known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) line: u32,
    pub(crate) value: Tree,
}

/// An entry of a map. Its line is the key's.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) value: Node,
}

/// Why a text cannot be read, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub(crate) line: u32,
    pub(crate) why: String,
}

impl Node {
    /// Reads JSON with comments and trailing commas. A text without a value is an empty map.
    pub(crate) fn from_jsonc(text: &str) -> Result<Self, Unreadable> {
        let strict = ParseOptions {
            allow_comments: true,
            allow_trailing_commas: true,
            allow_loose_object_property_names: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        };
        let text = text.trim_start_matches('\u{FEFF}');
        let parsed = parse_to_ast(text, &CollectOptions::default(), &strict).map_err(|error| {
            let why = error.kind().to_string();
            Unreadable { line: number(error.line_display()), why }
        })?;
        let lines = Lines::of(text);
        match parsed.value {
            Some(value) => Self::of(value, &lines, 0),
            None => Ok(Self { line: 0, value: Tree::Map(Vec::new()) }),
        }
    }

    fn of(value: Value<'_>, lines: &Lines, depth: usize) -> Result<Self, Unreadable> {
        let line = lines.at(value.range().start);
        if depth > MAX_DEPTH {
            return Err(Unreadable { line, why: "it is nested too deeply".to_owned() });
        }
        let value = match value {
            Value::NullKeyword(_) => Tree::Null,
            Value::BooleanLit(lit) => Tree::Bool(lit.value),
            Value::NumberLit(lit) => Tree::Number(lit.value.to_owned()),
            Value::StringLit(lit) => Tree::Text(lit.value.into_owned()),
            Value::Array(array) => {
                let nodes = array.elements.into_iter();
                let nodes = nodes.map(|element| Self::of(element, lines, depth + 1));
                Tree::List(nodes.collect::<Result<_, _>>()?)
            }
            Value::Object(object) => {
                let mut entries = Vec::with_capacity(object.properties.len());
                for property in object.properties {
                    let line = lines.at(property.range.start);
                    let value = Self::of(property.value, lines, depth + 1)?.value;
                    let key = property.name.into_string();
                    entries.push(Entry { key, value: Self { line, value } });
                }
                Tree::Map(entries)
            }
        };
        Ok(Self { line, value })
    }

    /// Reads YAML. `above` is the number of lines of the file before the text.
    pub(crate) fn from_yaml(text: &str, above: u32) -> Result<Self, Unreadable> {
        if text.trim().is_empty() {
            return Ok(Self { line: above, value: Tree::Map(Vec::new()) });
        }
        if text.len() > MAX_YAML {
            let why = format!("it has more than {} KiB", MAX_YAML / 1024);
            return Err(Unreadable { line: above, why });
        }
        // Settings need no aliases, and a few of them can stand for more than memory holds.
        let strict = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_aliases: 0, max_anchors: 0, max_events: 20_000 },
        };
        let read = serde_saphyr::from_str_with_options(text, strict);
        let mut node: Self = read.map_err(|error: serde_saphyr::Error| {
            let line = error.location().map_or(0, |location| number(location.line()));
            // As a text, the error begins with a line of the YAML, which is none of the file.
            let text = DefaultMessageFormatter.format_message(error.without_snippet());
            let why = text.lines().next().unwrap_or_default();
            let why = why.chars().filter(|c| !c.is_control()).collect();
            Unreadable { line: if line == 0 { above } else { line.saturating_add(above) }, why }
        })?;
        node.lower(above);
        Ok(node)
    }

    /// Adds to all known lines.
    fn lower(&mut self, above: u32) {
        if self.line > 0 {
            self.line = self.line.saturating_add(above);
        }
        match &mut self.value {
            Tree::List(nodes) => nodes.iter_mut().for_each(|node| node.lower(above)),
            Tree::Map(entries) => entries.iter_mut().for_each(|entry| entry.value.lower(above)),
            Tree::Null | Tree::Bool(_) | Tree::Number(_) | Tree::Text(_) => {}
        }
    }

    /// Returns the kind of value, for a message.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Tree::Null => "null",
            Tree::Bool(_) => "true or false",
            Tree::Number(_) => "a number",
            Tree::Text(_) => "a text",
            Tree::List(_) => "a list",
            Tree::Map(_) => "an object",
        }
    }
}

fn number<N: TryInto<u32>>(line: N) -> u32 {
    line.try_into().unwrap_or(u32::MAX)
}

/// The offsets at which lines begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self(std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect())
    }

    fn at(&self, offset: usize) -> u32 {
        number(self.0.partition_point(|begin| *begin <= offset))
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Number(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Number(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Number(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Tree, E> {
        Ok(Tree::Text(value))
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Tree, D::Error> {
        inner.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = items.next_element::<Node>()? {
            nodes.push(node);
        }
        Ok(Tree::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut entries: Vec<Entry> = Vec::new();
        while let Some((key, value)) = map.next_entry::<Spanned<String>, Node>()? {
            if entries.iter().any(|entry| entry.key == key.value) {
                return Err(A::Error::custom(format!("`{}` is there twice", key.value)));
            }
            let line = number(key.referenced.line());
            entries.push(Entry { key: key.value, value: Node { line, value: value.value } });
        }
        Ok(Tree::Map(entries))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self { line: 0, value: from.deserialize_any(AnyValue)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(node: &Node) -> Vec<(&str, u32)> {
        let Tree::Map(entries) = &node.value else { panic!("{node:?}") };
        entries.iter().map(|entry| (entry.key.as_str(), entry.value.line)).collect()
    }

    #[test]
    fn jsonc_keeps_the_order_and_the_lines_of_keys() {
        let text = "\u{FEFF}{\n  // a comment\n  \"z\": 1,\n  \"a\": [true, null],\n}\n";
        let node = Node::from_jsonc(text).expect("readable");
        assert_eq!(keys(&node), [("z", 3), ("a", 4)]);
        assert_eq!(Node::from_jsonc(" // nothing\n").expect("empty").value, Tree::Map(Vec::new()));
    }

    #[test]
    fn broken_jsonc_says_where() {
        for (text, line) in [("{\n\"a\": }", 2), ("{\n\n'a': 1}", 3), ("{a: 1}", 1), ("[1", 1)] {
            assert_eq!(Node::from_jsonc(text).expect_err("broken").line, line, "{text}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Node::from_jsonc(&deep).is_err());
        let lists = format!("{}{}", "[".repeat(40), "]".repeat(40));
        assert_eq!(Node::from_jsonc(&lists).expect_err("deep").why, "it is nested too deeply");
    }

    #[test]
    fn yaml_keeps_the_order_and_the_lines_of_keys() {
        let node =
            Node::from_yaml("z: 1\na:\n  'git *': ask\n  \"*\": deny\n", 1).expect("readable");
        assert_eq!(keys(&node), [("z", 2), ("a", 3)]);
        let Tree::Map(entries) = &node.value else { panic!("{node:?}") };
        assert_eq!(keys(&entries[1].value), [("git *", 4), ("*", 5)]);
        let error = Node::from_yaml("a: 1\nb: [\n", 1).expect_err("broken");
        assert!(error.line >= 3, "{error:?}");
        // A newcomer read two lines, and one of them was wrong.
        assert!(!error.why.is_empty() && !error.why.contains("column"), "{error:?}");
        assert!(Node::from_yaml("a: 1\na: 2\n", 1).is_err(), "twice");
    }

    #[test]
    fn hostile_yaml_is_an_error() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let maps = "{a: ".repeat(100_000);
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..9 {
            let last = format!("*a{}", n - 1);
            bomb.push_str(&format!("a{n}: &a{n} [{}]\n", vec![last; 9].join(", ")));
        }
        for text in [deep, maps, bomb] {
            assert!(Node::from_yaml(&text, 1).is_err(), "{}", &text[..20]);
        }
    }
}
