//! Judges a tool call by its session's rules.
//!
//! ```text
//! call ─▶ needs ─▶ things ─▶ for each group of rules, the last that matches ─▶ the strictest of all ─▶ run, ask or refuse
//! ```
//!
//! The rules are a person's wish about what the model does. They are no wall around a program: `shell` can read what
//! `read` may not. The sandbox is the wall.

mod guise;
mod read_scope;

use domain::{Need, RuleAction, ToolRule, rule_names};
use settings::{Fault, Layer, Permissions};

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
            Some(fault) => self.judge_beside(fault, tool, needs, judged),
            None => judged,
        }
    }

    /// Judges a call while rules may be missing, because a settings file has a mistake: no call runs without an answer of
    /// its own. What people have allowed for good does not count either, since a missing rule may have denied it.
    fn judge_beside(self, fault: &Fault, tool: &str, needs: Vec<Need>, judged: Judged) -> Judged {
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

    fn judge_need(self, tool: &str, need: &Need) -> Judged {
        let judged = self.groups(&need.action).map(|own| own.judge(tool, need));
        let strictest = judged.into_iter().reduce(Judged::stricter).unwrap_or(Judged::Run);
        match strictest {
            Judged::Ask(_) if self.is_widened(tool, need) => Judged::Run,
            judged @ (Judged::Ask(_) | Judged::Run | Judged::Refuse(_)) => judged,
        }
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
            if has(rule, guise) {
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
                RuleAction::Allow | RuleAction::Deny | RuleAction::Ask => has(rule, name),
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
    own.chain(rule_names(action)).any(|name| is_like(&rule.permission, name))
}

fn has(rule: &ToolRule, text: &str) -> bool {
    if text.len() > MAX_TEXT {
        return rule.action != RuleAction::Allow;
    }
    // `git *` means `git` too.
    let bare = rule.pattern.strip_suffix(" *").is_some_and(|bare| is_like(bare, text));
    bare || is_like(&rule.pattern, text)
}

/// Compares a text with a pattern in which `*` stands for any text and `?` for one character.
fn is_like(pattern: &str, text: &str) -> bool {
    if pattern.is_ascii() && text.is_ascii() {
        return is_like_each(pattern.as_bytes(), text.as_bytes(), b'*', b'?');
    }
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
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
mod tests {
    use settings::{OrganisationSettings, ProjectSettings, SettingsFile, effective};

    use super::*;

    fn rule(permission: &str, pattern: &str, action: RuleAction) -> ToolRule {
        ToolRule { permission: permission.into(), pattern: pattern.into(), action }
    }

    const ALLOW: RuleAction = RuleAction::Allow;
    const DENY: RuleAction = RuleAction::Deny;

    const READ: ReadNeeds = ReadNeeds(tools::needs);

    /// No settings.
    static NONE: std::sync::LazyLock<Permissions> = std::sync::LazyLock::new(Permissions::default);

    fn layers(session: &[ToolRule], can_ask: bool) -> Layers<'_> {
        Layers { permissions: &NONE, agent: "build", session, can_ask, needs: READ }
    }

    /// Judges by the settings of an organisation and a project.
    fn under(organisation: &str, project: &str, command: &str) -> Judged {
        let organisation = OrganisationSettings::parse(organisation);
        let (path, text) = ("opencode.json".to_owned(), project.to_owned());
        let project = ProjectSettings::parse(&[SettingsFile { path, text, more: false }]);
        let permissions = &effective(&organisation, &project).permissions;
        let layers =
            Layers { permissions, agent: "build", session: &[], can_ask: true, needs: READ };
        layers.judge("shell", &serde_json::json!({ "command": command }).to_string(), "/w")
    }

    #[test]
    fn a_project_makes_stricter_and_widens_only_where_it_may() {
        let ask = r#"{"permission": {"bash": "ask"}}"#;
        assert!(matches!(under(ask, r#"{"permission": {"bash": "allow"}}"#, "ls"), Judged::Ask(_)));
        assert!(matches!(
            under("", r#"{"permission": {"bash": "deny"}}"#, "ls"),
            Judged::Refuse(_)
        ));
        assert!(matches!(
            under(ask, r#"{"permission": {"bash": "deny"}}"#, "ls"),
            Judged::Refuse(_)
        ));
        assert_eq!(under("", r#"{"permission": {"bash": "allow"}}"#, "ls"), Judged::Run);
        let carved = r#"{"permission": {"bash": {"*": "deny", "git *": "allow"}}}"#;
        assert_eq!(under("", carved, "git log"), Judged::Run);
        assert!(matches!(under(ask, carved, "git log"), Judged::Ask(_)));
        assert!(matches!(under("", carved, "git log; rm x"), Judged::Refuse(_)));
    }

    fn judged(rules: &[ToolRule], command: &str) -> Judged {
        let arguments = serde_json::json!({ "command": command }).to_string();
        layers(rules, true).judge("shell", &arguments, "/w")
    }

    fn runs(rules: &[ToolRule], command: &str) -> bool {
        let arguments = serde_json::json!({ "command": command }).to_string();
        layers(rules, false).judge("shell", &arguments, "/w") == Judged::Run
    }

    fn changes(rules: &[ToolRule], tool: &str, path: &str) -> bool {
        let arguments = serde_json::json!({ "path": path }).to_string();
        layers(rules, false).judge(tool, &arguments, "/w") == Judged::Run
    }

    fn is_shut(rules: &[ToolRule], tool: &str) -> bool {
        layers(rules, false).is_shut(tool)
    }

    #[test]
    fn the_last_rule_that_matches_decides_and_none_allows() {
        assert!(runs(&[], "ls"));
        assert!(!runs(&[rule("*", "*", ALLOW), rule("bash", "*", DENY)], "ls"));
        assert!(runs(&[rule("bash", "*", DENY), rule("*", "*", ALLOW)], "ls; rm x"));
        assert!(!runs(&[rule("shell", "*", RuleAction::Ask)], "ls"), "nobody can be asked");
        assert!(runs(&[rule("question", "*", DENY)], "ls"), "another tool");
    }

    #[test]
    fn tools_are_meant_by_the_names_that_clients_have_for_them() {
        for name in ["edit", "write", "apply_patch", "e*"] {
            for tool in ["edit", "write"] {
                assert!(is_shut(&[rule(name, "*", DENY)], tool), "{name} {tool}");
            }
        }
        assert!(is_shut(&[rule("list", "*", DENY)], "glob"));
        assert!(!is_shut(&[rule("bash", "rm *", DENY)], "shell"), "some of its calls may run");
        assert!(!is_shut(&[rule("bash", "*", DENY), rule("bash", "git *", ALLOW)], "shell"));
    }

    #[test]
    fn a_pattern_on_commands_judges_each_command_of_a_script() {
        let only_git = [rule("bash", "*", DENY), rule("bash", "git *", ALLOW)];
        for allowed in [
            "git",
            " git log -p ",
            "git\tlog",
            "git add . && git commit -m 'a; b'",
            "git log | git x",
        ] {
            assert!(runs(&only_git, allowed), "{allowed}");
        }
        for evasion in [
            "git log; rm -rf .",
            "git log && curl x",
            "git log | sh",
            "git `rm x`",
            "git $(rm x)",
            "git log\nrm x",
            "gitx",
            "eval \"git $x\"",
            "$GIT log",
            "sh -c 'rm x'",
            "git log <<E; rm x\nE",
        ] {
            assert!(!runs(&only_git, evasion), "{evasion}");
        }
        let no_rm = [rule("bash", "rm *", DENY)];
        assert!(runs(&no_rm, "ls") && runs(&no_rm, "ls; git log"));
        for evasion in [
            "rm x",
            "rm\tx",
            "ls; rm x",
            "env A=1 rm x",
            "echo x | xargs rm",
            "bash -c \"$x\"",
            "$x",
            "r\"m\" x",
        ] {
            assert!(!runs(&no_rm, evasion), "{evasion}");
        }
        assert!(!runs(&only_git, &format!("git {}", "x".repeat(MAX_TEXT))), "too long to compare");
    }

    #[test]
    fn a_deny_sees_a_program_by_whatever_way_it_is_started() {
        let no_push = [rule("bash", "*", ALLOW), rule("bash", "git push*", DENY)];
        let no_push_alone = [rule("bash", "git push*", DENY)];
        for evasion in [
            // Its path, and options before the subcommand.
            "/usr/bin/git push",
            "./node_modules/.bin/git push origin",
            "sudo /usr/bin/git push",
            "'/usr/bin/git' push",
            "git -C . push",
            "git --no-pager -c a.b=c push",
            // What is known only when it runs.
            "x=push; git $x",
            "git $(echo push)",
            "git `echo push` origin",
            "git p${x}h",
            "git \"$x\"",
            "git $'push'",
            "git pus[h]",
            "git pu?h",
            "git p*",
            "git {push,origin}",
            "f() { git \"$@\"; }; f push",
            "echo push | xargs git",
            "echo push | xargs -I% git %",
            "echo git | xargs -I{} {} push",
            "find . -name push -exec git {} \\;",
            "echo git push | xargs env",
            "echo push | xargs taskset -c 0 git",
            // Programs that start others.
            "taskset -c 0 git push",
            "prlimit --nofile=100 git push",
            "setarch x86_64 -R /usr/bin/git push",
            "stdbuf -oL git push",
            "chrt -i 0 git push",
            "ionice -c2 -n7 git push",
            "runuser -u x -- git push",
            "busybox env git push",
            "busybox sh -c 'git push'",
            "some-new-starter --option 3 git push",
            "taskset -c 0 some-new-starter git push",
            "x=push; taskset -c 0 git $x",
            "x=git; taskset -c 0 $x push",
            "uv run git push",
            "ssh host 'cd x && git push'",
            "git bisect run git push",
            "docker exec c git push",
        ] {
            assert!(!runs(&no_push, evasion), "{evasion}");
            assert!(!runs(&no_push_alone, evasion), "{evasion}");
        }
        for fine in [
            "git status",
            "/usr/bin/git log",
            "git log $x",
            "git commit -m \"$message\"",
            "git commit -m 'git push it'",
            "git add *.rs",
            "echo git push",
            "grep -rn 'git push' .",
            "which git",
            "taskset -c 0 make",
            "pytest \"$file\"",
            "cargo test $name",
            "ls | xargs wc -l",
            "find . -name '*.rs' -exec wc -l {} +",
        ] {
            assert!(runs(&no_push, fine), "{fine}");
        }
        let only_git = [rule("bash", "*", DENY), rule("bash", "git *", ALLOW)];
        assert!(runs(&only_git, "git log $x") && !runs(&only_git, "/usr/bin/git log"));
        let allowed_again =
            [rule("bash", "git push*", DENY), rule("bash", "git push origin *", ALLOW)];
        assert!(runs(&allowed_again, "git push origin $x") && !runs(&allowed_again, "git push $x"));
        let asks = [rule("bash", "git push*", ASK)];
        for unsure in ["git $x", "taskset -c 0 git push", "/usr/bin/git push"] {
            assert!(matches!(judged(&asks, unsure), Judged::Ask(_)), "{unsure}");
        }
        let no_rm = [rule("bash", "rm -rf*", DENY)];
        for fine in ["rm *.o", "rm a.{o,d}", "git rm x", "ls -l *"] {
            assert!(runs(&no_rm, fine), "{fine}");
        }
        assert!(!runs(&no_rm, "rm $x") && !runs(&no_rm, "rm {-rf,x}"));
    }

    #[test]
    fn a_script_needs_leave_for_the_files_that_it_names() {
        let rules = [rule("edit", "*.env", DENY), rule("read", "*.env", DENY)];
        assert!(runs(&rules, "git log > x") && !runs(&rules, "git log > a/.env"));
        assert!(!runs(&rules, "sort < .env") && !runs(&rules, "sort > $x"));
    }

    #[test]
    fn patches_pages_and_tools_without_needs_are_judged() {
        let patch = |path: &str| format!("*** Begin Patch\n*** Delete File: {path}\n*** End Patch");
        let runs = |rules: &[ToolRule], tool: &str, arguments: serde_json::Value| {
            layers(rules, false).judge(tool, &arguments.to_string(), "/w") == Judged::Run
        };
        let no_secrets = [rule("edit", "*.env", DENY)];
        let patched =
            |path| runs(&no_secrets, "apply_patch", serde_json::json!({"patch": patch(path)}));
        assert!(patched("a.rs") && !patched("a/.env") && !patched("/w/.env"));
        let one_host =
            [rule("webfetch", "*", DENY), rule("webfetch", "https://a.example/*", ALLOW)];
        let fetched = |url: &str| runs(&one_host, "webfetch", serde_json::json!({"url": url}));
        assert!(fetched("https://a.example/x") && !fetched("https://b.example/x"));
        assert!(!runs(&[rule("question", "*", DENY)], "question", serde_json::json!({})));
        assert!(runs(&[rule("question", "a", DENY)], "question", serde_json::json!({})));
    }

    // Attack 16 of asks: of two needs one is answered. A call has one ask, so there is no half of an answer.
    #[test]
    fn a_call_is_asked_about_once() {
        let rules = [rule("edit", "*", ASK), rule("bash", "*", ASK)];
        let Judged::Ask(need) = judged(&rules, "make > out") else { panic!("nobody is asked") };
        assert_eq!(
            (need.action.as_str(), need.save.len()),
            ("shell", 0),
            "two actions are not saved"
        );
        assert_eq!(need.resources, ["make", "out"]);
    }

    #[test]
    fn a_path_is_meant_however_it_is_written() {
        let rules = [rule("edit", "*.env", DENY), rule("edit", "secret/*", DENY)];
        for path in
            ["a/.env", ".env", "/w/.env", "x/../.env", "secret/a", "./secret/a", "/w//secret/a"]
        {
            assert!(!changes(&rules, "write", path) && !changes(&rules, "edit", path), "{path}");
        }
        assert!(changes(&rules, "write", "a.txt") && changes(&rules, "read", ".env"));
        let named = r#"{"filePath":"secret/a"}"#;
        let judged = layers(&rules, false).judge("edit", named, "/w");
        assert_ne!(judged, Judged::Run, "as models name it too");
        assert!(!changes(&[rule("edit", "/w/secret/*", DENY)], "edit", "secret/a"));
    }

    #[test]
    fn a_refusal_names_its_rule_and_says_what_to_do() {
        let judged = judged(&[rule("bash", "*", DENY)], "ls");
        let expected = "a rule of the session refuses this call of shell (`bash` `*`: deny); do without this call, or \
                        tell the user that it is needed";
        assert_eq!(judged, Judged::Refuse(expected.into()));
    }

    const ASK: RuleAction = RuleAction::Ask;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn who_can_be_asked_is_asked_about_the_command_itself() {
        let need = |command: &str, save: &[&str]| {
            Judged::Ask(Need {
                action: "shell".into(),
                resources: vec![command.into()],
                save: save.iter().map(|pattern| (*pattern).to_owned()).collect(),
                is_opaque: false,
                guises: Vec::new(),
            })
        };
        let all = [rule("bash", "*", ASK)];
        assert_eq!(judged(&all, "git push origin"), need("git push origin", &["git push *"]));
        assert_eq!(judged(&all, "rm -rf x"), need("rm -rf x", &["rm *"]));
        let Judged::Ask(two) = judged(&all, "ls; rm x") else { panic!("nobody is asked") };
        assert_eq!(
            (two.resources, two.save),
            (strings(&["ls", "rm x"]), strings(&["ls *", "rm *"]))
        );
        let but_git = [rule("bash", "*", ASK), rule("bash", "git *", ALLOW)];
        assert_eq!(judged(&but_git, "git log"), Judged::Run);
        assert!(matches!(judged(&but_git, "git log; rm x"), Judged::Ask(_)));
        let Judged::Ask(unread) = judged(&but_git, "eval \"$x\"") else {
            panic!("nobody is asked")
        };
        assert!(unread.is_opaque && unread.save.is_empty(), "leave for it is never saved");
        let no_rm = [rule("bash", "*", ASK), rule("bash", "rm *", DENY)];
        assert!(matches!(judged(&no_rm, "ls; rm x"), Judged::Refuse(_)), "a part may be denied");
        assert!(!layers(&all, true).is_shut("shell"), "its calls may run after an answer");
    }

    #[test]
    fn beside_a_mistake_in_the_settings_every_call_asks() {
        let text = "{\"permission\": {\n\"bash\": {\"rm *\": \"deny\", \"git push*\": \"aks\"}}}";
        let (path, text) = ("opencode.json".to_owned(), text.to_owned());
        let project = ProjectSettings::parse(&[SettingsFile { path, text, more: false }]);
        let permissions = &effective(&OrganisationSettings::default(), &project).permissions;
        let all = [rule("*", "*", ALLOW)];
        let judge = |can_ask: bool, tool: &str, arguments: serde_json::Value| {
            let layers =
                Layers { permissions, agent: "build", session: &all, can_ask, needs: READ };
            layers.judge(tool, &arguments.to_string(), "/w")
        };
        for (tool, arguments) in [
            ("shell", serde_json::json!({"command": "git push origin"})),
            ("shell", serde_json::json!({"command": "ls"})),
            ("read", serde_json::json!({"path": "a"})),
            ("write", serde_json::json!({"path": "a", "content": ""})),
            ("glob", serde_json::json!({"pattern": "*"})),
            ("todowrite", serde_json::json!({})),
            ("some_plugin", serde_json::json!({})),
        ] {
            let Judged::Ask(need) = judge(true, tool, arguments.clone()) else {
                panic!("{tool}: nobody is asked")
            };
            assert!(need.save.is_empty(), "{tool}: no leave for good covers it");
            let Judged::Refuse(why) = judge(false, tool, arguments) else {
                panic!("{tool}: it runs")
            };
            assert!(why.contains("opencode.json:2"), "{why}");
        }
        let denied = judge(true, "shell", serde_json::json!({"command": "rm x"}));
        assert!(matches!(denied, Judged::Refuse(_)), "what can be read counts");
        assert_eq!(judge(true, "question", serde_json::json!({})), Judged::Run);
    }

    #[test]
    fn a_sessions_rule_comes_after_the_built_in_ones() {
        let settings = effective(&OrganisationSettings::default(), &ProjectSettings::default());
        let judge = |session: &[ToolRule]| {
            let permissions = &settings.permissions;
            let layers =
                Layers { permissions, agent: "build", session, can_ask: true, needs: READ };
            layers.judge("read", r#"{"path":"/w/a/.env"}"#, "/w")
        };
        let (action, resources) = ("read".to_owned(), vec!["a/.env".to_owned()]);
        assert_eq!(
            judge(&[]),
            Judged::Ask(Need {
                action,
                resources,
                save: vec!["a/.env".into()],
                is_opaque: false,
                guises: Vec::new(),
            })
        );
        assert_eq!(judge(&[rule("read", "*", ALLOW)]), Judged::Run);
    }

    #[test]
    fn stars_and_question_marks_match_as_in_a_shell() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("", "a", false),
            ("**", "a/b", true),
        ] {
            assert_eq!(is_like(pattern, text), expected, "{pattern} {text}");
        }
    }
}
