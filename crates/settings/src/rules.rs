//! Reads permission rules: `"bash": "ask"`, `"bash": {"git push*": "deny"}` and the older `tools: {"bash": false}`. Names of
//! tools count in any case, and `"Bash(git push:*)": "deny"` means what it means in other products.

use domain::{RuleAction, ToolRule, Word as _, rule_names};
use serde::{Deserialize, Serialize};

use crate::diagnostic::{Remarks, shown};
use crate::named_text::has_gap;
use crate::tree::{Entry, Node, Tree};

/// The longest name or pattern of a rule, in bytes.
const MAX_PATTERN: usize = 1024;
/// The tools that rules are about, by their own names.
const TOOLS: [&str; 9] =
    ["shell", "edit", "glob", "read", "grep", "skill", "todowrite", "todoread", "webfetch"];

/// A name that other products have for a tool, in small letters, and its name here.
const FOREIGN: [(&str, &str); 2] = [("ls", "list"), ("notebookedit", "edit")];
/// Actions that are no tool's, and tools of other products that may come.
const OTHERS: [&str; 7] =
    ["external_directory", "doom_loop", "task", "lsp", "websearch", "codesearch", "question"];

/// A rule with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) rule: ToolRule,
    /// Its file from the top of the project; empty for the organisation's text.
    pub(crate) path: String,
    /// Its line in that file, from 1; 0 if it is not known.
    pub(crate) line: u32,
}

/// Returns the action that a name in a rule stands for: one name for all [`rule_names`] of a tool.
pub(crate) fn action_of(name: &str) -> &str {
    TOOLS.into_iter().find(|tool| rule_names(tool).contains(&name)).unwrap_or(name)
}

/// Reads the value of `permission`.
pub(crate) fn permission(node: &Node, remarks: &mut Remarks<'_>) -> Vec<Rule> {
    match &node.value {
        Tree::Text(text) => {
            let effect = effect(text, node.line, remarks);
            effect.map(|e| rule("*", "*", e, node.line, remarks)).into_iter().collect()
        }
        Tree::Map(entries) => entries.iter().flat_map(|entry| of_action(entry, remarks)).collect(),
        Tree::List(nodes) => nodes.iter().filter_map(|node| of_list(node, remarks)).collect(),
        Tree::Null | Tree::Bool(_) | Tree::Number(_) => {
            let message =
                format!("`permission` is `allow`, `ask`, `deny` or an object, not {}", node.kind());
            remarks.error(node.line, message);
            Vec::new()
        }
    }
}

/// Reads the rules about one action.
fn of_action(entry: &Entry, remarks: &mut Remarks<'_>) -> Vec<Rule> {
    let Entry { key, value } = entry;
    match &value.value {
        _ if !is_usable(key, value.line, remarks) => Vec::new(),
        Tree::Text(text) => {
            let effect = effect(text, value.line, remarks);
            effect.map(|e| rule(key, "*", e, value.line, remarks)).into_iter().collect()
        }
        Tree::Map(entries) => {
            let mut rules = Vec::new();
            for Entry { key: pattern, value } in entries {
                let Tree::Text(text) = &value.value else {
                    let message = format!(
                        "the rule for `{}` is `allow`, `ask` or `deny`, not {}",
                        shown(pattern),
                        value.kind()
                    );
                    remarks.error(value.line, message);
                    continue;
                };
                if !is_usable(pattern, value.line, remarks) {
                    continue;
                }
                let Some(effect) = effect(text, value.line, remarks) else { continue };
                if pattern == "*" && !rules.is_empty() {
                    let message = "`*` hides the patterns before it, since the last one that matches decides: put it first";
                    remarks.note(value.line, message);
                }
                rules.push(rule(key, pattern, effect, value.line, remarks));
            }
            rules
        }
        Tree::Null | Tree::Bool(_) | Tree::Number(_) | Tree::List(_) => {
            let message = format!(
                "the permission `{}` is `allow`, `ask`, `deny` or an object of patterns, not {}",
                shown(key),
                value.kind()
            );
            remarks.error(value.line, message);
            Vec::new()
        }
    }
}

/// Reads an element of a list of rules: `{"action": "shell", "resource": "git *", "effect": "ask"}`.
fn of_list(node: &Node, remarks: &mut Remarks<'_>) -> Option<Rule> {
    let text = |name: &str| {
        let Tree::Map(entries) = &node.value else { return None };
        let entry = entries.iter().find(|entry| entry.key == name)?;
        let Tree::Text(text) = &entry.value.value else { return None };
        Some(text.as_str())
    };
    let (Some(action), Some(word)) = (text("action"), text("effect")) else {
        remarks.error(
            node.line,
            "a rule of a list has an `action` and an `effect`, and may have a `resource`",
        );
        return None;
    };
    let pattern = text("resource").unwrap_or("*");
    if !is_usable(action, node.line, remarks) || !is_usable(pattern, node.line, remarks) {
        return None;
    }
    let effect = effect(word, node.line, remarks)?;
    Some(rule(action, pattern, effect, node.line, remarks))
}

/// Reads the value of `tools`, the older form of `permission`.
pub(crate) fn tools(node: &Node, remarks: &mut Remarks<'_>) -> Vec<Rule> {
    let Tree::Map(entries) = &node.value else {
        remarks.error(node.line, format!("`tools` is an object of tools, not {}", node.kind()));
        return Vec::new();
    };
    let mut rules = Vec::new();
    for Entry { key, value } in entries {
        let Tree::Bool(on) = value.value else {
            let message = format!(
                "the tool `{}` is on (true) or off (false), not {}",
                shown(key),
                value.kind()
            );
            remarks.error(value.line, message);
            continue;
        };
        if is_usable(key, value.line, remarks) {
            let effect = if on { RuleAction::Allow } else { RuleAction::Deny };
            rules.push(rule(key, "*", effect, value.line, remarks));
        }
    }
    rules
}

/// Returns the name that a rule means, and the pattern in `Bash(git push:*)`.
fn read_name(name: &str, line: u32, remarks: &mut Remarks<'_>) -> (String, Option<String>) {
    let (tool, inner) = match name.strip_suffix(')').and_then(|name| name.split_once('(')) {
        Some((tool, inner)) => (tool.trim(), Some(read_foreign_pattern(inner))),
        None => (name, None),
    };
    let small = tool.to_ascii_lowercase();
    let foreign = FOREIGN.iter().find(|(foreign, _)| *foreign == small).map(|(_, own)| *own);
    let own = foreign.unwrap_or(&small);
    let is_known =
        OTHERS.contains(&own) || TOOLS.iter().any(|tool| rule_names(tool).contains(&own));
    if is_known {
        return (own.to_owned(), inner);
    }
    let message = format!("no tool has the name `{}`: this rule has no effect", shown(name));
    if name.contains('(') {
        remarks.stray(line, message);
    } else if small != name {
        remarks.note(line, message);
    }
    (name.to_owned(), None)
}

/// Returns a pattern of another product in our form: `git push:*` is `git push *`, and `./a` is `a`.
fn read_foreign_pattern(inner: &str) -> String {
    let inner = inner.trim();
    let inner = inner.strip_prefix("./").unwrap_or(inner);
    let inner = if inner.starts_with("//") { &inner[1..] } else { inner };
    match inner.strip_suffix(":*") {
        Some("domain") => inner.to_owned(),
        Some(command) => format!("{command} *"),
        None if inner.is_empty() => "*".to_owned(),
        None => inner.to_owned(),
    }
}

/// Says that an allow is narrower than its author may expect. A rule that denies or asks means these patterns as other products do.
fn note_idle_allow(pattern: &str, line: u32, remarks: &mut Remarks<'_>) {
    if let Some(host) = pattern.strip_prefix("domain:") {
        let message =
            format!("`domain:` allows nothing here: write the pattern `https://{}/*`", shown(host));
        remarks.idle(line, message);
    }
    if let Some((before, behind)) = pattern.split_once("/**/") {
        let message = format!(
            "`**/` of an allow stands for at least one folder: `*` crosses folders, so that `{}` is what you may mean",
            shown(&format!("{before}/{behind}"))
        );
        remarks.note(line, message);
    }
}

fn effect(text: &str, line: u32, remarks: &mut Remarks<'_>) -> Option<RuleAction> {
    let effect = RuleAction::read(text);
    if effect.is_none() {
        remarks.error(
            line,
            format!("a permission is `allow`, `ask` or `deny`, not `{}`", shown(text)),
        );
    }
    effect
}

fn is_usable(text: &str, line: u32, remarks: &mut Remarks<'_>) -> bool {
    let is_fine = !text.is_empty() && text.len() <= MAX_PATTERN && !text.contains('\0');
    if !is_fine {
        remarks
            .error(line, format!("a name or a pattern has 1 to {MAX_PATTERN} bytes, and no NUL"));
    }
    if is_fine && has_gap(text) {
        let message = format!(
            "`{{env:…}}` and `{{file:…}}` are not filled in here, so that nobody knows what a rule about `{}` means",
            shown(text)
        );
        remarks.error(line, message);
        return false;
    }
    is_fine
}

fn rule(
    permission: &str,
    pattern: &str,
    action: RuleAction,
    line: u32,
    remarks: &mut Remarks<'_>,
) -> Rule {
    let (permission, inner) = read_name(permission, line, remarks);
    let pattern = match inner {
        Some(inner) if pattern == "*" => inner,
        Some(inner) => {
            let message = format!(
                "`{}` and `{}` are two patterns of one rule, and the stricter reading of both counts: write one",
                shown(&inner),
                shown(pattern)
            );
            remarks.note(line, message);
            if action == RuleAction::Allow { inner } else { "*".to_owned() }
        }
        None => pattern.to_owned(),
    };
    if action == RuleAction::Allow {
        note_idle_allow(&pattern, line, remarks);
    }
    let rule = ToolRule { permission, pattern, action };
    Rule { rule, path: remarks.path().to_owned(), line }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, pattern, decision and line.
    type Read = (String, String, String, u32);

    fn read(text: &str) -> (Vec<Read>, Vec<String>) {
        let node = Node::from_jsonc(text).expect("JSON");
        let mut remarks = Remarks::new("opencode.json");
        let rules =
            permission(&node, &mut remarks).into_iter().map(|Rule { rule, line, .. }| {
                (rule.permission, rule.pattern, rule.action.to_string(), line)
            });
        (rules.collect(), remarks.into_all().into_iter().map(|remark| remark.message).collect())
    }

    fn owned(rules: &[(&str, &str, &str, u32)]) -> Vec<Read> {
        let own = |(a, b, c, line): &(&str, &str, &str, u32)| {
            ((*a).to_owned(), (*b).to_owned(), (*c).to_owned(), *line)
        };
        rules.iter().map(own).collect()
    }

    #[test]
    fn rules_are_read_in_their_order_with_their_lines() {
        let text = "{\n\"bash\": {\n\"*\": \"ask\",\n\"git push*\": \"deny\"\n},\n\"edit\": \"allow\", \"new_tool\": \"ask\"}";
        let expected = [
            ("bash", "*", "ask", 3),
            ("bash", "git push*", "deny", 4),
            ("edit", "*", "allow", 6),
            ("new_tool", "*", "ask", 6),
        ];
        assert_eq!(read(text), (owned(&expected), Vec::new()));
        assert_eq!(read("\"ask\"").0, owned(&[("*", "*", "ask", 1)]));
        let list = r#"[{"action": "shell", "resource": "rm *", "effect": "deny"}]"#;
        assert_eq!(read(list).0, owned(&[("shell", "rm *", "deny", 1)]));
    }

    #[test]
    fn names_and_patterns_of_other_products_count() {
        let (rules, told) = read(
            r#"{"Bash": "deny", "Bash(git push:*)": "deny", "Read(./.env)": "deny", "WebFetch": "ask",
            "LS": "allow", "MultiEdit": "ask", "mcp_*": "ask"}"#,
        );
        let rules: Vec<_> = rules.iter().map(|(name, pattern, ..)| (&**name, &**pattern)).collect();
        let expected = [
            ("bash", "*"),
            ("bash", "git push *"),
            ("read", ".env"),
            ("webfetch", "*"),
            ("list", "*"),
            ("multiedit", "*"),
            ("mcp_*", "*"),
        ];
        assert_eq!((rules, told), (expected.to_vec(), Vec::new()));
        let (rules, told) = read(r#"{"Bash(rm *": "deny", "Bash(rm *)": {"ls": "deny"}}"#);
        assert_eq!(rules[1], ("bash".to_owned(), "*".to_owned(), "deny".to_owned(), 1));
        assert!(told[0].contains("no effect") && told[1].contains("write one"), "{told:?}");
    }

    // Finding: report 30-b6 (anthropics/claude-code#67244), and report 30-b7 (anomalyco/opencode#13872).
    #[test]
    fn an_allow_that_is_narrower_than_it_looks_is_told() {
        let (rules, told) = read(
            r#"{"WebFetch(domain:a.example)": "allow", "WebFetch(domain:b.example)": "deny",
            "edit": {"src/**/*": "allow", "lib/**/*": "deny"}}"#,
        );
        assert_eq!(rules.len(), 4);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("`https://a.example/*`"), "{told:?}");
        assert!(told[1].contains("`src/*`"), "{told:?}");
    }

    #[test]
    fn a_wrong_value_is_told_and_the_others_count() {
        let (rules, told) =
            read(r#"{"bash": "maybe", "edit": 3, "read": {"a": true, "b": "deny"}, "": "ask"}"#);
        assert_eq!(rules, owned(&[("read", "b", "deny", 1)]));
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].contains("not `maybe`"), "{told:?}");
    }

    // Next report 31: nobody fills such a pattern in, and the rule had no effect in silence.
    #[test]
    fn a_pattern_with_a_gap_is_a_mistake() {
        let (rules, told) = read(r#"{"read": {"{env:HOME}/*": "deny", "b": "deny"}}"#);
        assert_eq!(rules, owned(&[("read", "b", "deny", 1)]));
        assert!(told.len() == 1 && told[0].contains("{env:HOME}"), "{told:?}");
    }

    #[test]
    fn a_star_after_patterns_is_told() {
        let (rules, told) = read(r#"{"bash": {"git push": "deny", "*": "ask"}}"#);
        assert_eq!(rules.len(), 2);
        assert!(told[0].contains("put it first"), "{told:?}");
    }

    #[test]
    fn all_names_of_a_tool_stand_for_one_action() {
        for (name, action) in [
            ("bash", "shell"),
            ("shell", "shell"),
            ("write", "edit"),
            ("list", "glob"),
            ("task", "task"),
        ] {
            assert_eq!(action_of(name), action);
        }
    }
}
