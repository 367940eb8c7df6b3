//! Judges a tool call by its session's rules.
//!
//! The rules are a person's wish about what the model does. They are no wall around a program: `shell` can read what
//! `read` may not. The sandbox is the wall.

use domain::{RuleAction, ToolRule, rule_names};
use serde_json::Value;
use settings::{Layer, Permissions};

/// The longest text of a call that a pattern is compared with, in bytes. Nothing longer is allowed by a pattern.
const MAX_TEXT: usize = 32 * 1024;
/// Signs that a text is more than one simple command. A pattern with `*` says nothing about the commands behind them. A tab
/// is among them, because a pattern has spaces between words.
const OPERATORS: [&str; 11] = [";", "&", "|", "<", ">", "\n", "\r", "\t", "`", "(", ")"];
/// Arguments that name what a call is about, by what tools and models call them.
const SUBJECTS: [&str; 6] = ["command", "path", "filePath", "file_path", "pattern", "name"];
/// Programs whose first argument says what they do.
const COMMANDERS: [&str; 16] = [
    "apt",
    "apt-get",
    "bun",
    "cargo",
    "deno",
    "docker",
    "gh",
    "git",
    "go",
    "helm",
    "kubectl",
    "npm",
    "pip",
    "pnpm",
    "systemctl",
    "yarn",
];
/// The tools whose path is about where they look, and their pattern about what for.
const SEARCHES: [&str; 2] = ["glob", "grep"];

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
}

/// The rules of some layers about one tool, of which the last that matches decides.
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
    /// Somebody must be asked first.
    Ask(Need),
    /// It may not run, for this reason: words for the model.
    Refuse(String),
}

/// Something that a call wants leave for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Need {
    /// The permission's name.
    pub(crate) action: String,
    /// The texts that it is about.
    pub(crate) resources: Vec<String>,
    /// The patterns that would cover it if they were saved; empty if nothing would.
    pub(crate) save: Vec<String>,
}

impl<'a> Layers<'a> {
    fn of(self, layers: &[Layer], tool: &str) -> Vec<&'a ToolRule> {
        let rules = self.permissions.of_agent(self.agent);
        let own = rules.filter(|rule| layers.contains(&rule.layer)).map(|rule| &rule.rule);
        own.filter(|rule| is_about(rule, tool)).collect()
    }

    /// Returns the groups of rules about a tool, the strictest of which decides.
    fn groups(self, tool: &str) -> [Own<'a>; 3] {
        let mut session = self.of(&[Layer::BuiltIn], tool);
        session.extend(self.session.iter().filter(|rule| is_about(rule, tool)));
        let own = |rules, whose| Own { rules, whose, can_ask: self.can_ask };
        [
            own(session, "session"),
            own(self.of(&[Layer::Organisation], tool), "organisation"),
            own(self.of(&[Layer::Project], tool), "project"),
        ]
    }

    /// Returns whether they refuse every call of a tool, so that it need not be offered.
    pub(crate) fn is_shut(self, tool: &str) -> bool {
        self.groups(tool).iter().any(Own::is_shut)
    }

    /// Judges a call. `directory` is the session's.
    pub(crate) fn judge(self, tool: &str, arguments: &str, directory: &str) -> Judged {
        let texts = subjects(tool, arguments, directory);
        let judged = self.groups(tool).map(|own| own.judge(tool, &texts));
        let strictest = judged.into_iter().reduce(Judged::stricter).unwrap_or(Judged::Run);
        match strictest {
            Judged::Ask(_) if self.is_widened(tool, &texts) => Judged::Run,
            judged @ (Judged::Ask(_) | Judged::Run | Judged::Refuse(_)) => judged,
        }
    }

    /// Returns whether the project's last rule about a call allows it, and may.
    fn is_widened(self, tool: &str, texts: &[String]) -> bool {
        let ask = ToolRule {
            permission: "*".to_owned(),
            pattern: "*".to_owned(),
            action: RuleAction::Ask,
        };
        let project = self.permissions.of_agent(self.agent).filter(|rule| {
            rule.layer == Layer::Project && (rule.widens || rule.rule.action != RuleAction::Allow)
        });
        let project = project.map(|rule| &rule.rule).filter(|rule| is_about(rule, tool));
        let rules = std::iter::once(&ask).chain(project).collect();
        Own { rules, whose: "project", can_ask: true }.judge(tool, texts) == Judged::Run
    }
}

impl Judged {
    /// Returns the stricter of two decisions.
    fn stricter(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Refuse(_), _) | (Self::Ask(_), Self::Ask(_) | Self::Run) => self,
            (Self::Ask(_) | Self::Run, Self::Refuse(_)) | (Self::Run, _) => other,
        }
    }
}

impl Own<'_> {
    fn is_shut(&self) -> bool {
        self.rules.last().is_some_and(|rule| {
            rule.pattern == "*"
                && match rule.action {
                    RuleAction::Allow => false,
                    RuleAction::Ask => !self.can_ask,
                    RuleAction::Deny => true,
                }
        })
    }

    fn judge(&self, tool: &str, texts: &[String]) -> Judged {
        if tool == "shell" {
            return match texts.first() {
                Some(command) => self.of_command(command),
                None => Judged::Run,
            };
        }
        let matches =
            |rule: &&&ToolRule| rule.pattern == "*" || texts.iter().any(|text| has(rule, text));
        let Some(rule) = self.rules.iter().rfind(matches) else { return Judged::Run };
        self.by(rule, tool, || Need {
            action: action(tool),
            // The shortest form: below the directory, if it is there.
            resources: texts.get(1).or(texts.first()).cloned().into_iter().collect(),
            save: vec!["*".to_owned()],
        })
    }

    fn of_command(&self, command: &str) -> Judged {
        let last = |matches: &dyn Fn(&ToolRule) -> bool| {
            self.rules.iter().rev().copied().find(|rule| matches(rule))
        };
        let is_whole = |rule: &ToolRule| rule.pattern == "*";
        let is_simple = command.len() <= MAX_TEXT
            && !OPERATORS.iter().any(|operator| command.contains(operator));
        let need = || Need {
            action: action("shell"),
            resources: vec![command.to_owned()],
            save: if is_simple { saved_as(command) } else { Vec::new() },
        };
        let rule = if self.rules.iter().all(|rule| is_whole(rule)) {
            last(&is_whole)
        } else if is_simple {
            last(&|rule| has(rule, command))
        } else {
            let exact = last(&|rule| rule.pattern == command);
            let denies = self.rules.iter().any(|rule| rule.action == RuleAction::Deny);
            if exact.is_none() && self.can_ask && !denies {
                return Judged::Ask(need());
            }
            if exact.is_none() {
                return Judged::Refuse(format!(
                    "the {}'s rules judge commands by patterns, and this one has several commands, a redirection or a \
                     substitution: run one simple command at a time",
                    self.whose
                ));
            }
            exact
        };
        rule.map_or(Judged::Run, |rule| self.by(rule, "shell", need))
    }

    fn by(&self, rule: &ToolRule, tool: &str, need: impl FnOnce() -> Need) -> Judged {
        let ToolRule { permission, pattern, action } = rule;
        let why = match action {
            RuleAction::Allow => return Judged::Run,
            RuleAction::Ask if self.can_ask => return Judged::Ask(need()),
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

/// Returns the name of a tool's permission: changing a file is one, whichever tool does it.
fn action(tool: &str) -> String {
    rule_names(tool).first().copied().unwrap_or(tool).to_owned()
}

/// Returns the pattern that covers commands like this simple one: its program, and what the program is to do if its first
/// argument says that.
fn saved_as(command: &str) -> Vec<String> {
    let mut words = command.split_whitespace();
    let Some(program) = words.next() else { return Vec::new() };
    let verb = words.next().filter(|word| COMMANDERS.contains(&program) && !word.starts_with('-'));
    vec![match verb {
        Some(verb) => format!("{program} {verb} *"),
        None => format!("{program} *"),
    }]
}

fn is_about(rule: &ToolRule, tool: &str) -> bool {
    let own = std::iter::once(&tool);
    own.chain(rule_names(tool)).any(|name| is_like(&rule.permission, name))
}

fn has(rule: &ToolRule, text: &str) -> bool {
    if text.len() > MAX_TEXT {
        return rule.action != RuleAction::Allow;
    }
    // `git *` means `git` too.
    let bare = rule.pattern.strip_suffix(" *").is_some_and(|bare| is_like(bare, text));
    bare || is_like(&rule.pattern, text)
}

/// Returns the texts that patterns are compared with: a path as it was given, in full, and from the directory.
fn subjects(tool: &str, arguments: &str, directory: &str) -> Vec<String> {
    let Ok(Value::Object(given)) = serde_json::from_str(arguments) else { return Vec::new() };
    let is_search = SEARCHES.contains(&tool);
    let named = SUBJECTS.iter().filter(|name| (**name == "pattern") == is_search);
    let texts = named.filter_map(|name| given.get(*name)).filter_map(Value::as_str);
    if is_search || tool == "shell" || tool == "skill" {
        return texts.map(|text| text.trim().to_owned()).collect();
    }
    texts.flat_map(|path| forms(path.trim(), directory)).collect()
}

fn forms(path: &str, directory: &str) -> Vec<String> {
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{directory}/{path}") };
    let mut steps: Vec<&str> = Vec::new();
    for step in whole.split('/') {
        match step {
            "" | "." => {}
            ".." => {
                steps.pop();
            }
            step => steps.push(step),
        }
    }
    let whole = format!("/{}", steps.join("/"));
    let below = whole.strip_prefix(directory.trim_end_matches('/'));
    let short = below.and_then(|rest| rest.strip_prefix('/')).map(str::to_owned);
    [Some(path.to_owned()), short, Some(whole)].into_iter().flatten().collect()
}

/// Compares a text with a pattern in which `*` stands for any text and `?` for one character.
fn is_like(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut seen) = (0, 0);
    // Where the last star stands, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    while seen < text.len() {
        match (pattern.get(at), star) {
            (Some('*'), _) => {
                star = Some((at, seen));
                at += 1;
            }
            (Some(wanted), _) if *wanted == '?' || *wanted == text[seen] => {
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
    pattern[at..].iter().all(|left| *left == '*')
}

#[cfg(test)]
mod tests {
    use settings::{OrganisationSettings, ProjectSettings, SettingsFile, effective};

    use super::*;

    fn rule(permission: &str, pattern: &str, action: RuleAction) -> ToolRule {
        ToolRule { permission: permission.into(), pattern: pattern.into(), action }
    }

    const ALLOW: RuleAction = RuleAction::Allow;
    const DENY: RuleAction = RuleAction::Deny;

    /// No settings.
    static NONE: std::sync::LazyLock<Permissions> = std::sync::LazyLock::new(Permissions::default);

    fn layers(session: &[ToolRule], can_ask: bool) -> Layers<'_> {
        Layers { permissions: &NONE, agent: "build", session, can_ask }
    }

    /// Judges by the settings of an organisation and a project.
    fn under(organisation: &str, project: &str, command: &str) -> Judged {
        let organisation = OrganisationSettings::parse(organisation);
        let (path, text) = ("opencode.json".to_owned(), project.to_owned());
        let project = ProjectSettings::parse(&[SettingsFile { path, text, more: false }]);
        let permissions = &effective(&organisation, &project).permissions;
        let layers = Layers { permissions, agent: "build", session: &[], can_ask: true };
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
    fn a_pattern_on_commands_judges_one_simple_command() {
        let only_git = [rule("bash", "*", DENY), rule("bash", "git *", ALLOW)];
        assert!(runs(&only_git, "git") && runs(&only_git, " git log -p "));
        for evasion in [
            "git log; rm -rf .",
            "git log && curl x",
            "git log | sh",
            "git log > /etc/x",
            "git `rm x`",
            "git $(rm x)",
            "git log\nrm x",
            "git\tlog",
            "gitx",
        ] {
            assert!(!runs(&only_git, evasion), "{evasion}");
        }
        let no_rm = [rule("bash", "rm *", DENY)];
        assert!(runs(&no_rm, "ls") && !runs(&no_rm, "rm x") && !runs(&no_rm, "ls; rm x"));
        assert!(!runs(&no_rm, "rm\tx"), "a tab is no way around a pattern");
        let exact = [rule("bash", "*", DENY), rule("bash", "make a && make b", ALLOW)];
        assert!(runs(&exact, "make a && make b") && !runs(&exact, "make a && make c"));
        assert!(!runs(&only_git, &format!("git {}", "x".repeat(MAX_TEXT))), "too long to compare");
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

    #[test]
    fn who_can_be_asked_is_asked_about_the_command_itself() {
        let need = |command: &str, save: &[&str]| {
            Judged::Ask(Need {
                action: "shell".into(),
                resources: vec![command.into()],
                save: save.iter().map(|pattern| (*pattern).to_owned()).collect(),
            })
        };
        let all = [rule("bash", "*", ASK)];
        assert_eq!(judged(&all, "git push origin"), need("git push origin", &["git push *"]));
        assert_eq!(judged(&all, "rm -rf x"), need("rm -rf x", &["rm *"]));
        assert_eq!(judged(&all, "ls; rm x"), need("ls; rm x", &[]), "nothing covers several");
        let but_git = [rule("bash", "*", ASK), rule("bash", "git *", ALLOW)];
        assert_eq!(judged(&but_git, "git log"), Judged::Run);
        assert_eq!(judged(&but_git, "git log; rm x"), need("git log; rm x", &[]));
        let no_rm = [rule("bash", "*", ASK), rule("bash", "rm *", DENY)];
        assert!(matches!(judged(&no_rm, "ls; rm x"), Judged::Refuse(_)), "a part may be denied");
        assert!(!layers(&all, true).is_shut("shell"), "its calls may run after an answer");
    }

    #[test]
    fn a_sessions_rule_comes_after_the_built_in_ones() {
        let settings = effective(&OrganisationSettings::default(), &ProjectSettings::default());
        let judge = |session: &[ToolRule]| {
            let permissions = &settings.permissions;
            let layers = Layers { permissions, agent: "build", session, can_ask: true };
            layers.judge("read", r#"{"path":"/w/a/.env"}"#, "/w")
        };
        let (action, resources) = ("read".to_owned(), vec!["a/.env".to_owned()]);
        assert_eq!(judge(&[]), Judged::Ask(Need { action, resources, save: vec!["*".into()] }));
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
