use std::fmt;

use domain::ModelRef;
use serde::{Deserialize, Serialize};

use crate::permissions::Layer;

/// The longest prompt that a command makes, in bytes.
const MAX_PROMPT: usize = 512 * 1024;

/// A command: a prompt with gaps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandDefinition {
    /// Its name, which people type after `/`.
    pub name: String,
    /// Its purpose, for people.
    #[serde(default)]
    pub description: String,
    /// The agent that works on it; `None`: the session's.
    #[serde(default)]
    pub agent: Option<String>,
    /// The model that works on it; `None`: the agent's or the session's.
    #[serde(default)]
    pub model: Option<ModelRef>,
    /// Whether its author wants a session of its own for it.
    #[serde(default)]
    pub subtask: bool,
    /// The prompt, in which `$ARGUMENTS` stands for all arguments and `$1`, `$2` … for one each.
    /// A backslash before one of them keeps it as it is.
    pub template: String,
    /// The layer that made it.
    #[serde(default)]
    pub layer: Layer,
}

/// The prompt of a command would be longer than a prompt may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpansionTooLong;

impl fmt::Display for ExpansionTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the command's prompt with these arguments is longer than {MAX_PROMPT} bytes; give it less"
        )
    }
}

impl std::error::Error for ExpansionTooLong {}

/// A gap of a template.
enum Gap {
    /// All arguments, as they were typed.
    All,
    /// The argument with this number, from 1.
    One(usize),
    /// A backslash, which keeps the text behind it from being a gap. It is left out.
    Backslash,
}

impl CommandDefinition {
    /// Returns the prompt for these arguments. The last numbered gap takes all arguments that are left; arguments that no
    /// gap takes follow after an empty line. Gaps within arguments stay as they are.
    ///
    /// # Errors
    /// The prompt would have more than 512 KiB.
    pub fn expand(&self, arguments: &str) -> Result<String, ExpansionTooLong> {
        let words = words(arguments);
        let last = gaps(&self.template)
            .filter_map(|(_, gap)| match gap {
                Gap::One(number) => Some(number),
                Gap::All | Gap::Backslash => None,
            })
            .max();
        let mut prompt = String::new();
        let (mut at, mut has_gap) = (0, false);
        for (range, gap) in gaps(&self.template) {
            has_gap |= !matches!(gap, Gap::Backslash);
            push(&mut prompt, &self.template[at..range.start])?;
            at = range.end;
            match gap {
                Gap::All => push(&mut prompt, arguments)?,
                Gap::Backslash => {}
                Gap::One(number) if Some(number) == last => {
                    let left = words.get(number - 1..).unwrap_or_default().join(" ");
                    push(&mut prompt, &left)?;
                }
                Gap::One(number) => {
                    push(&mut prompt, words.get(number - 1).copied().unwrap_or_default())?;
                }
            }
        }
        push(&mut prompt, &self.template[at..])?;
        if !has_gap && !arguments.trim().is_empty() {
            push(&mut prompt, "\n\n")?;
            push(&mut prompt, arguments)?;
        }
        Ok(prompt.trim().to_owned())
    }

    /// Returns the gaps of the template as their author wrote them, each once, in order: what a client may ask for.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        let mut hints: Vec<String> = Vec::new();
        let is_hint = |gap: &Gap| !matches!(gap, Gap::Backslash);
        for (range, _) in gaps(&self.template).filter(|(_, gap)| is_hint(gap)) {
            let hint = &self.template[range];
            if !hints.iter().any(|known| known == hint) {
                hints.push(hint.to_owned());
            }
        }
        hints
    }
}

fn push(prompt: &mut String, text: &str) -> Result<(), ExpansionTooLong> {
    if prompt.len() + text.len() > MAX_PROMPT {
        return Err(ExpansionTooLong);
    }
    prompt.push_str(text);
    Ok(())
}

/// Returns the gaps of a template with their places. `\$1` and `\$ARGUMENTS` are none.
fn gaps(template: &str) -> impl Iterator<Item = (std::ops::Range<usize>, Gap)> {
    const ALL: &str = "$ARGUMENTS";
    template.match_indices('$').filter_map(|(at, _)| {
        let rest = &template[at + 1..];
        let (range, gap) = if template[at..].starts_with(ALL) {
            (at..at + ALL.len(), Gap::All)
        } else {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let number: usize = rest[..digits].parse().ok().filter(|number| *number > 0)?;
            (at..at + 1 + digits, Gap::One(number))
        };
        let is_kept = template[..at].ends_with('\\');
        Some(if is_kept { (at - 1..at, Gap::Backslash) } else { (range, gap) })
    })
}

/// Splits arguments at spaces; quotes keep words together.
fn words(arguments: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = arguments.trim_start();
    while let Some(first) = rest.chars().next() {
        let quoted = (first == '"' || first == '\'').then(|| rest[1..].find(first)).flatten();
        let (word, after) = match quoted {
            Some(end) => (&rest[1..=end], &rest[end + 2..]),
            None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        words.push(word);
        rest = after.trim_start();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(template: &str, arguments: &str) -> String {
        let command = CommandDefinition {
            name: "x".into(),
            description: String::new(),
            agent: None,
            model: None,
            subtask: false,
            template: template.into(),
            layer: Layer::Project,
        };
        command.expand(arguments).expect("short")
    }

    #[test]
    fn gaps_take_the_arguments() {
        assert_eq!(expand("Fix $ARGUMENTS in @src/a.rs", "it all"), "Fix it all in @src/a.rs");
        assert_eq!(expand("Move $1 to $2.", "a \"b c\" d"), "Move a to b c d.");
        assert_eq!(expand("Move $1 to $2.", "a"), "Move a to .");
        assert_eq!(expand("$2 before $1", "'x y' z"), "z before x y");
        assert_eq!(expand("It costs $0 or $HOME", ""), "It costs $0 or $HOME");
    }

    #[test]
    fn arguments_without_a_gap_follow_the_template() {
        assert_eq!(expand("Review.", "the last commit"), "Review.\n\nthe last commit");
        assert_eq!(expand("Review.", " "), "Review.");
    }

    #[test]
    fn a_gap_within_an_argument_is_not_filled() {
        assert_eq!(expand("Say $1 and $2", "$2 $ARGUMENTS"), "Say $2 and $ARGUMENTS");
    }

    // Finding: report 30-b19 (anthropics/claude-code#78759): nothing kept a price from being a gap.
    #[test]
    fn a_backslash_keeps_a_gap_as_text() {
        assert_eq!(expand(r"\$1.20 for $1; \$ARGUMENTS", "a b"), "$1.20 for a b; $ARGUMENTS");
        assert_eq!(expand(r"awk '{print \$2}'", "x"), "awk '{print $2}'\n\nx");
        assert_eq!(expand(r"\$HOME and C:\a", ""), r"\$HOME and C:\a");
    }

    #[test]
    fn quotes_that_do_not_end_are_text() {
        assert_eq!(words("it's \"so é"), ["it's", "\"so", "é"]);
        assert_eq!(words("\"\" x"), ["", "x"]);
    }

    #[test]
    fn a_prompt_has_a_bound() {
        let template = "$ARGUMENTS".repeat(2_000);
        let command = CommandDefinition {
            name: "x".into(),
            description: String::new(),
            agent: None,
            model: None,
            subtask: false,
            template,
            layer: Layer::Project,
        };
        assert_eq!(command.expand(&"x".repeat(1_000)), Err(ExpansionTooLong));
        assert_eq!(command.hints(), ["$ARGUMENTS"]);
    }
}
