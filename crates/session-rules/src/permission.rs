//! Judges a tool call by its session's rules.
//!
//! ```text
//! call ─▶ needs ─▶ things ─▶ for each group of rules, the last that matches ─▶ the strictest of all ─▶ run, ask or refuse
//! ```
//!
//! The rules are a person's wish about what the model does. They are no wall around a program: `shell` can read what
//! `read` may not. The sandbox is the wall.

mod guise;
mod page;
mod read_scope;

use domain::{Need, RuleAction, ToolRule, rule_names};
use settings::{Fault, Layer, Permissions};
use unicode_normalization::UnicodeNormalization as _;

pub use self::read_scope::ReadScope;
use crate::tools::ReadNeeds;

/// The longest text of a call that a pattern is compared with, in bytes. Nothing longer is allowed by a pattern.
const MAX_TEXT: usize = 32 * 1024;
/// The tool whose needs are those of a script: its commands, and the files that it reads and writes.
const SHELL: &str = "shell";
/// The tool that itself asks a person.
const QUESTION: &str = "question";
/// The tool that shows files.
const READ: &str = "read";
/// The tool that fetches pages.
const PAGES: &str = "webfetch";
/// The most `**/` of a pattern that are tried with a folder and without one.
const MAX_GAPS: usize = 6;
/// The most commands of a call of which each is judged by itself, to tell what leave for good has to cover.
const MAX_SINGLE: usize = 64;
/// Actions that calls of several tools need, besides the tool's own.
const OUTSIDE: &str = "external_directory";
/// The action of a call that repeats those before it.
const CIRCLE: &str = "doom_loop";
const OF_SCRIPTS: [&str; 2] = ["edit", "read"];
/// The tool that shows lines of files: those that a call names, it reads.
const GREP: &str = "grep";

/// The rules about the calls of an agent in a session.
///
/// Of the built-in rules and the session's the last that matches decides. The organisation's rules and the project's can only make
/// that stricter. A project's rule that [widens](settings::LayeredRule::widens) lets a call run that would be asked about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layers<'a> {
    /// Those of the settings.
    pub(crate) permissions: &'a Permissions,
    /// The agent of the turn.
    pub(crate) agent: &'a str,
    /// Those of the session.
    pub(crate) session: &'a [ToolRule],
    /// Whether somebody can be asked. Otherwise *ask* means *deny*.
    pub(crate) can_ask: bool,
    /// Reads the needs of a call.
    pub(crate) needs: ReadNeeds,
}

/// The rules of some layers about one action, of which the last that matches decides.
struct Own<'a> {
    rules: Vec<&'a ToolRule>,
    /// Whose they are, in words for the model.
    whose: &'static str,
    can_ask: bool,
}

/// The decision of the rules about a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// It may run.
    Run,
    /// Somebody must be asked first, about this. A call that must be asked about in several regards is asked about once.
    Ask(Need),
    /// It may not run, for this reason: words for the model.
    Refuse(String),
}

impl<'a> Layers<'a> {
    fn of(self, layers: &[Layer], action: &str) -> Vec<&'a ToolRule> {
        let rules = self.permissions.of_agent(self.agent);
        let own = rules.filter(|rule| layers.contains(&rule.layer)).map(|rule| &rule.rule);
        own.filter(|rule| is_about(rule, action)).collect()
    }

    /// Returns the groups of rules about an action, the strictest of which decides.
    fn groups(self, action: &str) -> [Own<'a>; 3] {
        let mut session = self.of(&[Layer::BuiltIn], action);
        session.extend(self.session.iter().filter(|rule| is_about(rule, action)));
        let own = |rules, whose| Own { rules, whose, can_ask: self.can_ask };
        [
            own(session, "session"),
            own(self.of(&[Layer::Organisation], action), "organisation"),
            own(self.of(&[Layer::Project], action), "project"),
        ]
    }

    /// Returns whether they refuse every call of a tool, so that it need not be offered.
    pub(crate) fn is_shut(self, tool: &str) -> bool {
        self.groups(tool).iter().any(Own::is_shut)
    }

    /// Judges a call. `directory` is the session's.
    pub(crate) fn judge(self, tool: &str, arguments: &str, directory: &str) -> Judged {
        let fault = self.permissions.faults().first();
        if !self.may_matter(tool) && fault.is_none() {
            return Judged::Run;
        }
        let mut needs = (self.needs.0)(tool, arguments, directory);
        if needs.is_empty() {
            needs.push(Need::whole(tool));
        }
        let judged = needs.iter().map(|need| self.judge_need(tool, need));
        let judged = judged.reduce(Judged::and).unwrap_or(Judged::Run);
        match fault.filter(|_| tool != QUESTION) {
            Some(fault) => self.judge_beside(fault, tool, &needs, judged),
            None => judged,
        }
    }

    /// Judges a call while rules may be missing, because a settings file has a mistake: no call runs without an answer of
    /// its own. What people have allowed for good does not count either, since a missing rule may have denied it.
    fn judge_beside(self, fault: &Fault, tool: &str, needs: &[Need], judged: Judged) -> Judged {
        let need = match judged {
            Judged::Refuse(_) => return judged,
            Judged::Ask(need) => need,
            Judged::Run if self.can_ask => {
                let asked = needs.iter().map(asked).reduce(joined);
                asked.unwrap_or_else(|| Need::whole(tool))
            }
            Judged::Run => {
                let Fault { source, message } = fault;
                return Judged::Refuse(format!(
                    "the project's settings have a mistake ({source}: {message}), so that rules of it may be missing: \
                     until the file is mended, calls of {tool} need a person's permission, and nobody can be asked here. \
                     Tell the user to mend {source}"
                ));
            }
        };
        Judged::Ask(Need { save: Vec::new(), ..need })
    }

    /// Returns whether a rule may ask about calls of a tool, or deny them. Most tools have none, and their calls are not read.
    fn may_matter(self, tool: &str) -> bool {
        let more = match tool {
            SHELL => OF_SCRIPTS.as_slice(),
            GREP => &[READ],
            _ => &[],
        };
        let actions = || [tool, OUTSIDE].into_iter().chain(more.iter().copied());
        let settings = self.permissions.of_agent(self.agent).map(|rule| &rule.rule);
        let strict = |rule: &&ToolRule| rule.action != RuleAction::Allow;
        let mut rules = settings.chain(self.session).filter(strict);
        rules.any(|rule| actions().any(|action| is_about(rule, action)))
    }

    /// Judges a call once more that is the same as those before it.
    pub(crate) fn judge_circle(self, tool: &str, judged: Judged) -> Judged {
        let names = || vec![tool.to_owned()];
        let need = Need {
            action: CIRCLE.to_owned(),
            resources: names(),
            save: names(),
            ..Need::whole(tool)
        };
        judged.and(self.judge_need(tool, &need))
    }

    /// Returns whether the patterns about a tool that searches keep a file out of its results, given by its names. A rule about all
    /// calls has judged the call, and is about no result.
    fn hides_result(self, tool: &str, names: &[&str]) -> bool {
        self.groups(tool).iter().any(|own| {
            let is_meant = |rule: &ToolRule| names.iter().any(|name| has(rule, tool, name));
            let last = own.rules.iter().rfind(|rule| !is_whole(rule) && is_meant(rule));
            last.is_some_and(|rule| rule.action == RuleAction::Deny)
        })
    }

    fn judge_need(self, tool: &str, need: &Need) -> Judged {
        let judged = self.groups(&need.action).map(|own| own.judge(tool, need));
        let strictest = judged.into_iter().reduce(Judged::stricter).unwrap_or(Judged::Run);
        match strictest {
            Judged::Ask(_) if self.is_widened(tool, need) => Judged::Run,
            Judged::Ask(asked) => Judged::Ask(self.leave_out_allowed(tool, need, asked)),
            judged @ (Judged::Run | Judged::Refuse(_)) => judged,
        }
    }

    /// Leaves out the patterns of commands that may run without an answer: leave for good is about the others.
    fn leave_out_allowed(self, tool: &str, need: &Need, asked: Need) -> Need {
        let texts = &need.resources;
        if need.action != SHELL || asked.save.len() < 2 || texts.len() > MAX_SINGLE {
            return asked;
        }
        let is_allowed = |text: &&String| {
            let alone = Need { resources: vec![(*text).clone()], save: Vec::new(), ..need.clone() };
            self.judge_need(tool, &alone) == Judged::Run
        };
        let (allowed, others): (Vec<&String>, Vec<&String>) = texts.iter().partition(is_allowed);
        let is_of =
            |pattern: &str, texts: &[&String]| texts.iter().any(|text| covers(pattern, text));
        let mut save = asked.save.clone();
        save.retain(|pattern| is_of(pattern, &others) || !is_of(pattern, &allowed));
        // A command whose pattern is none of those that stay would run unasked.
        let is_safe = !save.is_empty()
            && others.iter().all(|text| save.iter().any(|pattern| covers(pattern, text)));
        if is_safe { Need { save, ..asked } } else { asked }
    }

    /// Returns whether the project's last rule about a need allows it, and may.
    fn is_widened(self, tool: &str, need: &Need) -> bool {
        let ask = ToolRule {
            permission: "*".to_owned(),
            pattern: "*".to_owned(),
            action: RuleAction::Ask,
        };
        let project = self.permissions.of_agent(self.agent).filter(|rule| {
            rule.layer == Layer::Project && (rule.widens || rule.rule.action != RuleAction::Allow)
        });
        let project = project.map(|rule| &rule.rule).filter(|rule| is_about(rule, &need.action));
        let rules = std::iter::once(&ask).chain(project).collect();
        Own { rules, whose: "project", can_ask: true }.judge(tool, need) == Judged::Run
    }
}

impl Judged {
    /// Returns the stricter of two decisions about one need.
    fn stricter(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Refuse(_), _) | (Self::Ask(_), Self::Ask(_) | Self::Run) => self,
            (Self::Ask(_) | Self::Run, Self::Refuse(_)) | (Self::Run, _) => other,
        }
    }

    /// Returns the decision about two needs of a call. One ask is about both, and what it saves must cover both.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Ask(first), Self::Ask(second)) => Self::Ask(joined(first, second)),
            (first, second) => first.stricter(second),
        }
    }
}

/// Joins two needs. Leave for both can be saved only if it is for one action, and each can be.
fn joined(mut first: Need, second: Need) -> Need {
    let is_saved =
        first.action == second.action && !first.save.is_empty() && !second.save.is_empty();
    first.save.extend(second.save);
    first.save.dedup();
    if !is_saved {
        first.save.clear();
    }
    first.resources.extend(second.resources);
    first.is_opaque |= second.is_opaque;
    first.guises.extend(second.guises);
    first
}

impl Own<'_> {
    fn is_shut(&self) -> bool {
        self.rules.last().is_some_and(|rule| {
            is_whole(rule)
                && match rule.action {
                    RuleAction::Allow => false,
                    RuleAction::Ask => !self.can_ask,
                    RuleAction::Deny => true,
                }
        })
    }

    /// Judges each thing of a need, and returns the strictest decision.
    fn judge(&self, tool: &str, need: &Need) -> Judged {
        if need.resources.is_empty() {
            return self.judge_thing(tool, need, &[]);
        }
        let judged = need.things().map(|names| self.judge_thing(tool, need, names));
        let judged = judged.reduce(Judged::stricter).unwrap_or(Judged::Run);
        // A rule about all calls has judged the things themselves. Before the last one no other rule counts.
        let whole = self.rules.iter().rposition(|rule| is_whole(rule));
        let rules = &self.rules[whole.map_or(0, |at| at + 1)..];
        if rules.iter().all(|rule| rule.action == RuleAction::Allow) {
            return judged;
        }
        let guises = need.guises.iter().map(|guise| self.judge_guise(rules, tool, need, guise));
        guises.fold(judged, Judged::stricter)
    }

    /// Judges a text that may be in a need besides its things. It allows nothing.
    fn judge_guise(&self, rules: &[&ToolRule], tool: &str, need: &Need, guise: &str) -> Judged {
        for (at, rule) in rules.iter().enumerate().rev() {
            if has(rule, &need.action, guise) {
                return self.by(rule, tool, need);
            }
            if rule.action != RuleAction::Allow && guise::may_match(&rule.pattern, guise) {
                return self.unread(&rules[at..], tool, need);
            }
        }
        Judged::Run
    }

    fn judge_thing(&self, tool: &str, need: &Need, names: &[String]) -> Judged {
        let matches = |rule: &ToolRule| {
            let is_like = |name: &String| match rule.action {
                // A pattern says nothing about a part that nobody could read.
                RuleAction::Allow if need.is_opaque => *name == rule.pattern,
                RuleAction::Allow | RuleAction::Deny | RuleAction::Ask => {
                    has(rule, &need.action, name)
                }
            };
            is_whole(rule) || names.iter().any(is_like)
        };
        let at = self.rules.iter().rposition(|rule| matches(rule));
        let rule = at.map(|at| self.rules[at]);
        if rule.is_some_and(|rule| rule.action != RuleAction::Allow) || !need.is_opaque {
            return rule.map_or(Judged::Run, |rule| self.by(rule, tool, need));
        }
        self.unread(&self.rules[at.map_or(0, |at| at + 1)..], tool, need)
    }

    /// Judges a thing that would run but for `later` rules, which may be about a part of it that nobody could read.
    fn unread(&self, later: &[&ToolRule], tool: &str, need: &Need) -> Judged {
        let has = |action| later.iter().any(|rule| rule.action == action);
        if has(RuleAction::Deny) || (has(RuleAction::Ask) && !self.can_ask) {
            return Judged::Refuse(format!(
                "the {}'s rules judge calls of {tool} by patterns, and a part of this one cannot be read before it runs: \
                 write plain commands, without `eval`, `sh -c` or a variable in the place of a program or of an argument that a \
                 rule is about",
                self.whose
            ));
        }
        if has(RuleAction::Ask) { Judged::Ask(asked(need)) } else { Judged::Run }
    }

    fn by(&self, rule: &ToolRule, tool: &str, need: &Need) -> Judged {
        let ToolRule { permission, pattern, action } = rule;
        let why = match action {
            RuleAction::Allow => return Judged::Run,
            RuleAction::Ask if self.can_ask => return Judged::Ask(asked(need)),
            RuleAction::Deny => "do without this call, or tell the user that it is needed",
            RuleAction::Ask => {
                "it wants a person to be asked, and nobody can be asked here: do without this call, or tell the user that it is needed"
            }
        };
        Judged::Refuse(format!(
            "a rule of the {} refuses this call of {tool} (`{permission}` `{pattern}`: {action}); {why}",
            self.whose
        ))
    }
}

/// Returns a need as people are asked about it: each thing by its shortest name, which for a path is that from the directory.
fn asked(need: &Need) -> Need {
    let short = |names: &[String]| names.iter().min_by_key(|name| name.len()).cloned();
    let resources = need.things().filter_map(short).collect();
    Need { resources, guises: Vec::new(), ..need.clone() }
}

fn is_whole(rule: &ToolRule) -> bool {
    rule.pattern == "*"
}

fn is_about(rule: &ToolRule, action: &str) -> bool {
    let own = std::iter::once(&action);
    // Other products write `Bash`.
    let is_named =
        |name: &&str| is_like(&rule.permission, name) || rule.permission.eq_ignore_ascii_case(name);
    own.chain(rule_names(action)).any(is_named)
}

/// Returns whether a rule is about a text of a need of this action.
fn has(rule: &ToolRule, action: &str, text: &str) -> bool {
    if text.len() > MAX_TEXT {
        return rule.action != RuleAction::Allow;
    }
    if action == PAGES {
        return page::is_about_page(rule, text);
    }
    covers(&rule.pattern, text)
        || (rule.action != RuleAction::Allow && is_like_without_folders(&rule.pattern, text))
}

/// Returns whether a pattern matches a text.
fn covers(pattern: &str, text: &str) -> bool {
    // `git *` means `git` too.
    let bare = pattern.strip_suffix(" *").is_some_and(|bare| is_like(bare, text));
    bare || is_like(pattern, text)
}

/// Returns whether a text matches a pattern of which `**/` stands for no folder, as in other programs. Nothing is allowed by this.
fn is_like_without_folders(pattern: &str, text: &str) -> bool {
    let (first, rest) = match pattern.strip_prefix("**/") {
        Some(rest) => (vec!["", "**/"], rest),
        None => (vec![""], pattern),
    };
    let parts: Vec<&str> = rest.split("/**/").collect();
    let gaps = parts.len() - 1;
    if gaps == 0 && first.len() == 1 {
        return false;
    }
    // Beyond that it may match more.
    let (gaps, wide) = if gaps > MAX_GAPS { (0, "*") } else { (gaps, "") };
    (0..1_u32 << gaps).any(|kept| {
        let mut tail = String::new();
        for (at, part) in parts.iter().enumerate() {
            let is_kept = at > 0 && at <= gaps && kept & (1 << (at - 1)) != 0;
            let gap = if is_kept { "/**/" } else { "/" };
            tail += if at == 0 { "" } else { gap };
            tail += if at == 0 { "" } else { wide };
            tail += part;
        }
        first.iter().any(|first| is_like(&format!("{first}{tail}"), text))
    })
}

/// Compares a text with a pattern in which `*` stands for any text and `?` for one character. A letter is the same in each of its
/// spellings: macOS writes `é` as two code points, and tools find a file by either.
fn is_like(pattern: &str, text: &str) -> bool {
    if pattern.is_ascii() && text.is_ascii() {
        return is_like_each(pattern.as_bytes(), text.as_bytes(), b'*', b'?');
    }
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.nfc().collect(), text.nfc().collect());
    is_like_each(&pattern, &text, '*', '?')
}

fn is_like_each<C: PartialEq + Copy>(pattern: &[C], text: &[C], any: C, one: C) -> bool {
    let (mut at, mut seen) = (0, 0);
    // Where the last star stands, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    while seen < text.len() {
        match (pattern.get(at), star) {
            (Some(wanted), _) if *wanted == any => {
                star = Some((at, seen));
                at += 1;
            }
            (Some(wanted), _) if *wanted == one || *wanted == text[seen] => {
                at += 1;
                seen += 1;
            }
            (_, Some((place, taken))) => {
                star = Some((place, taken + 1));
                at = place + 1;
                seen = taken + 1;
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|left| *left == any)
}

#[cfg(test)]
mod newcomer;

#[cfg(test)]
mod tests;
