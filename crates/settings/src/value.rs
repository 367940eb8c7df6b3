//! Values of one entry, with a remark on each that is of the wrong kind or out of bounds.

use domain::ModelRef;

use crate::diagnostic::{Remarks, shown};
use crate::named_text::has_gap;
use crate::tree::{Entry, Node, Tree};

/// The longest of other texts, in bytes.
const MAX_LINE: usize = 1024;
/// The most turns that a bound may say.
const MAX_STEPS: u64 = 10_000;
/// The longest wait for an answer: 90 days.
const MAX_HOURS: u64 = 90 * 24;
/// The most retries of a request.
const MAX_RETRIES: u64 = 20;
/// The most tokens that a bound may say.
const MAX_TOKENS: u64 = 10_000_000;

pub(crate) fn of_map<'n>(node: &'n Node, remarks: &mut Remarks<'_>) -> Option<&'n [Entry]> {
    if let Tree::Map(entries) = &node.value {
        return Some(entries);
    }
    remarks.error(node.line, format!("an object belongs here, not {}", node.kind()));
    None
}

pub(crate) fn text<'n>(node: &'n Node, key: &str, remarks: &mut Remarks<'_>) -> Option<&'n str> {
    if let Tree::Text(text) = &node.value {
        return Some(text);
    }
    remarks.error(node.line, format!("`{key}` is a text, not {}", node.kind()));
    None
}

pub(crate) fn line(node: &Node, key: &str, remarks: &mut Remarks<'_>) -> Option<String> {
    let text = text(node, key, remarks)?;
    if has_gap(text) {
        let message = format!("`{{env:…}}` and `{{file:…}}` are not filled in in `{key}`");
        remarks.idle(node.line, message);
    }
    bounded(text, node.line, &format!("`{key}`"), MAX_LINE, remarks)
}

/// Returns a text without surrounding space and NULs, which no row can hold; `None` if it is empty or too long.
pub(crate) fn bounded(
    text: &str,
    at: u32,
    what: &str,
    max: usize,
    remarks: &mut Remarks<'_>,
) -> Option<String> {
    let text = text.trim();
    if text.len() > max {
        remarks.error(at, format!("{what} has more than {max} bytes and does not count"));
        return None;
    }
    Some(text.replace('\0', "\u{FFFD}")).filter(|text| !text.is_empty())
}

pub(crate) fn flag(node: &Node, key: &str, remarks: &mut Remarks<'_>) -> Option<bool> {
    if let Tree::Bool(flag) = node.value {
        return Some(flag);
    }
    remarks.error(node.line, format!("`{key}` is true or false, not {}", node.kind()));
    None
}

pub(crate) fn tokens(node: &Node, key: &str, remarks: &mut Remarks<'_>) -> Option<u64> {
    number(node, &format!("`{key}`"), 0, MAX_TOKENS, remarks)
}

pub(crate) fn steps(node: &Node, remarks: &mut Remarks<'_>) -> Option<u32> {
    number(node, "`steps`", 1, MAX_STEPS, remarks).and_then(|steps| u32::try_from(steps).ok())
}

pub(crate) fn hours(node: &Node, remarks: &mut Remarks<'_>) -> Option<u32> {
    let hours = number(node, "`hours` of `asks`", 1, MAX_HOURS, remarks);
    hours.and_then(|hours| u32::try_from(hours).ok())
}

pub(crate) fn retries(node: &Node, remarks: &mut Remarks<'_>) -> Option<u32> {
    let retries = number(node, "`retries`", 0, MAX_RETRIES, remarks);
    retries.and_then(|retries| u32::try_from(retries).ok())
}

pub(crate) fn number(
    node: &Node,
    what: &str,
    min: u64,
    max: u64,
    remarks: &mut Remarks<'_>,
) -> Option<u64> {
    let number = match &node.value {
        Tree::Number(text) => text.parse().ok().filter(|number| (min..=max).contains(number)),
        Tree::Null | Tree::Bool(_) | Tree::Text(_) | Tree::List(_) | Tree::Map(_) => None,
    };
    if number.is_none() {
        remarks.error(node.line, format!("{what} is a whole number from {min} to {max}"));
    }
    number
}

/// Reads `provider/model`, where the model's name may have further slashes.
pub(crate) fn model(node: &Node, remarks: &mut Remarks<'_>) -> Option<ModelRef> {
    let text = line(node, "model", remarks)?;
    let model =
        text.split_once('/').filter(|(provider, model)| !provider.is_empty() && !model.is_empty());
    if model.is_none() {
        remarks.error(node.line, format!("a model is `provider/model`, not `{}`", shown(&text)));
    }
    model.map(|(provider, model)| ModelRef::new(provider, model))
}
