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
    let layers = Layers { permissions, agent: "build", session: &[], can_ask: true, needs: READ };
    layers.judge("shell", &serde_json::json!({ "command": command }).to_string(), "/w")
}

#[test]
fn a_project_makes_stricter_and_widens_only_where_it_may() {
    let ask = r#"{"permission": {"bash": "ask"}}"#;
    assert!(matches!(under(ask, r#"{"permission": {"bash": "allow"}}"#, "ls"), Judged::Ask(_)));
    assert!(matches!(under("", r#"{"permission": {"bash": "deny"}}"#, "ls"), Judged::Refuse(_)));
    assert!(matches!(under(ask, r#"{"permission": {"bash": "deny"}}"#, "ls"), Judged::Refuse(_)));
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
    for allowed in
        ["git", " git log -p ", "git\tlog", "git add . && git commit -m 'a; b'", "git log | git x"]
    {
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
        // It is known only when it runs.
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
    let allowed_again = [rule("bash", "git push*", DENY), rule("bash", "git push origin *", ALLOW)];
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
    let one_host = [rule("webfetch", "*", DENY), rule("webfetch", "https://a.example/*", ALLOW)];
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
    assert_eq!((need.action.as_str(), need.save.len()), ("shell", 0), "two actions are not saved");
    assert_eq!(need.resources, ["make", "out"]);
}

#[test]
fn a_path_is_meant_however_it_is_written() {
    let rules = [rule("edit", "*.env", DENY), rule("edit", "secret/*", DENY)];
    for path in ["a/.env", ".env", "/w/.env", "x/../.env", "secret/a", "./secret/a", "/w//secret/a"]
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
    assert_eq!((two.resources, two.save), (strings(&["ls", "rm x"]), strings(&["ls *", "rm *"])));
    let but_git = [rule("bash", "*", ASK), rule("bash", "git *", ALLOW)];
    assert_eq!(judged(&but_git, "git log"), Judged::Run);
    assert!(matches!(judged(&but_git, "git log; rm x"), Judged::Ask(_)));
    let Judged::Ask(unread) = judged(&but_git, "eval \"$x\"") else { panic!("nobody is asked") };
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
        let layers = Layers { permissions, agent: "build", session: &all, can_ask, needs: READ };
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
        let Judged::Refuse(why) = judge(false, tool, arguments) else { panic!("{tool}: it runs") };
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
        let layers = Layers { permissions, agent: "build", session, can_ask: true, needs: READ };
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

// Finding: report 30-b3 (anthropics/claude-code#88857).
#[test]
fn a_deny_sees_a_subcommand_behind_options_with_values() {
    let rules = [
        rule("bash", "*", ALLOW),
        rule("bash", "kubectl delete *", DENY),
        rule("bash", "docker push*", DENY),
        rule("bash", "npm publish*", DENY),
        rule("bash", "gh pr merge*", DENY),
    ];
    for evasion in [
        "kubectl -n prod delete pod x",
        "kubectl --namespace prod -v 3 delete pod x",
        "docker --context prod push img",
        "docker --context=prod push img",
        "npm --prefix pkg publish",
        "gh -R o/r pr merge 1",
        "gh pr --repo o/r merge 1",
    ] {
        assert!(!runs(&rules, evasion), "{evasion}");
    }
    assert!(!runs(&rules, &format!("kubectl {}delete pod x", "-v 3 ".repeat(100))), "too many");
    for fine in ["kubectl -n prod get pods", "docker --context prod ps", "gh -R o/r pr view 1"] {
        assert!(runs(&rules, fine), "{fine}");
    }
    let files = "f ".repeat(100);
    assert!(runs(&[rule("bash", "git push*", DENY)], &format!("git add {files}")));
}

// Finding: report 30-b4 (woojubb/robota#2350).
#[test]
fn a_star_in_a_host_stands_for_nothing_else() {
    let runs = |rules: &[ToolRule], url: &str| {
        let arguments = serde_json::json!({ "url": url }).to_string();
        layers(rules, false).judge("webfetch", &arguments, "/w") == Judged::Run
    };
    for pattern in ["https://*.example.com/*", "*.example.com/*", "HTTPS://*.Example.com/*"] {
        let allows = [rule("webfetch", "*", DENY), rule("webfetch", pattern, ALLOW)];
        assert!(runs(&allows, "https://a.example.com/x"), "{pattern}");
        for other in [
            "https://evil.tld/?a=.example.com/x",
            "https://evil.tld#.example.com/x",
            "https://evil.tld/.example.com/x",
            "https://evil.tld\\@a.example.com/x",
        ] {
            assert!(!runs(&allows, other), "{pattern} {other}");
        }
    }
    let prefix = [rule("webfetch", "*", DENY), rule("webfetch", "https://a.example*", ALLOW)];
    assert!(runs(&prefix, "https://a.example/x") && runs(&prefix, "https://a.example"));
    assert!(!runs(&prefix, "https://a.example@evil.tld/x"));
    let denies = [rule("webfetch", "*", ALLOW), rule("webfetch", "https://evil.example/*", DENY)];
    for url in [
        "https://evil.example/x",
        "HTTPS://EVIL.example/x",
        "https://u@evil.example/x",
        "https://evil.example:443/x",
        "https://evil.example./x",
        "http://evil.example/x",
    ] {
        assert!(!runs(&denies, url), "{url}");
    }
    assert!(runs(&denies, "https://other.example/x"));
    let narrow = [rule("webfetch", "https://*", DENY), rule("webfetch", "https://a.tld/*", ALLOW)];
    assert!(runs(&narrow, "https://a.tld") && runs(&narrow, "https://a.tld/#x"));
}

// Finding: report 30-b6 (anthropics/claude-code#67244).
#[test]
fn a_rule_about_a_domain_denies_its_pages() {
    let text = r#"{"permission": {"WebFetch(domain:evil.example)": "deny",
        "WebFetch(domain:*.bad.example)": "deny"}}"#;
    let (path, text) = ("opencode.json".to_owned(), text.to_owned());
    let project = ProjectSettings::parse(&[SettingsFile { path, text, more: false }]);
    let permissions = &effective(&OrganisationSettings::default(), &project).permissions;
    let layers = Layers { permissions, agent: "build", session: &[], can_ask: true, needs: READ };
    for (url, is_run) in [
        ("https://evil.example/x", false),
        ("http://evil.example:8080", false),
        ("https://a.bad.example/", false),
        ("https://good.example/?u=evil.example", true),
    ] {
        let arguments = serde_json::json!({ "url": url }).to_string();
        let judged = layers.judge("webfetch", &arguments, "/w");
        assert_eq!(judged == Judged::Run, is_run, "{url}: {judged:?}");
    }
}

// Finding: report 30-b7 (anomalyco/opencode#13872).
#[test]
fn two_stars_and_a_slash_also_deny_without_a_folder() {
    for (pattern, path) in [
        ("secrets/**/*", "secrets/a"),
        ("secrets/**/*", "secrets/b/a"),
        ("a/**/b/**/c", "a/x/b/c"),
        ("a/**/b/**/c", "a/b/x/c"),
        ("**/x/**/y", "x/y"),
    ] {
        assert!(!changes(&[rule("edit", pattern, DENY)], "write", path), "{pattern} {path}");
    }
    let denies = [rule("edit", "src/**/env", DENY)];
    assert!(changes(&denies, "write", "src/myenv") && !changes(&denies, "write", "src/env"));
    let allows = [rule("edit", "*", DENY), rule("edit", "src/**/*", ALLOW)];
    assert!(!changes(&allows, "write", "src/a.ts"), "an allow means what it meant");
}

// Finding: report 30-b11 (anomalyco/opencode#50649).
#[test]
fn leave_for_good_is_only_about_what_was_asked() {
    let rules = [rule("bash", "*", ASK), rule("bash", "git status*", ALLOW)];
    let save = |command: &str| match judged(&rules, command) {
        Judged::Ask(need) => need.save,
        Judged::Run | Judged::Refuse(_) => panic!("nobody is asked: {command}"),
    };
    assert_eq!(save("npm test && git status"), ["npm test *"]);
    assert_eq!(save("npm test && ls"), ["npm test *", "ls *"]);
    let both = save("npm test && git status && /usr/bin/git status");
    assert_eq!(both, ["npm test *", "/usr/bin/git status *"]);
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

// The public report pinchy#729: tools find a file by any spelling of its letters, so that a rule is about all of them.
#[test]
fn a_rule_is_about_every_spelling_of_its_letters() {
    let (apart, joined) = ("re\u{301}sume\u{301}.txt", "r\u{e9}sum\u{e9}.txt");
    for (pattern, text) in [(apart, joined), (joined, apart), (apart, apart), (joined, joined)] {
        assert!(is_like(pattern, text), "{pattern} {text}");
        let (pattern, text) = (format!("cat *{pattern}"), format!("cat a/{text}"));
        assert!(!runs(&[rule("*", "*", ALLOW), rule("bash", &pattern, DENY)], &text), "{text}");
        let unknown = format!("cat {}{text}", domain::UNKNOWN_TEXT);
        assert!(guise::may_match(&pattern, &unknown), "{unknown}");
    }
    assert!(is_like("caf?", "cafe\u{301}"), "one letter");
    assert!(!is_like("resume.txt", joined));
}
