//! All that bash runs is among the needs of its script, however odd the script is.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;
use tools::needs;

/// A folder in which bash finds a few programs, and a function that notes its argument.
struct Bash {
    folder: tempfile::TempDir,
}

impl Bash {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(folder.path().join("bin")).expect("a directory");
        std::fs::create_dir(folder.path().join("work")).expect("a directory");
        for program in ["bash", "cat", "env", "xargs", "find", "timeout"] {
            let real = ["/bin", "/usr/bin"].map(|place| PathBuf::from(place).join(program));
            let real = real.into_iter().find(|path| path.exists()).expect("a usual program");
            symlink(real, folder.path().join("bin").join(program)).expect("a link");
        }
        Self { folder }
    }

    /// Returns the numbers that `probe` was called with.
    fn run(&self, script: &str, number: usize) -> BTreeSet<String> {
        // A process in the background of an earlier script writes to that script's own.
        let log = self.folder.path().join(format!("log-{number}"));
        std::fs::write(&log, "").expect("a file");
        let mut bash = Command::new(self.folder.path().join("bin/bash"));
        bash.args(["-c", script]).current_dir(self.folder.path().join("work")).env_clear();
        bash.env("PATH", self.folder.path().join("bin")).env("LOG", &log);
        bash.env("BASH_FUNC_probe%%", "() { builtin echo \"${1:0:1}\" >> \"$LOG\"; }");
        bash.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = bash.spawn().expect("bash runs");
        let until = Instant::now() + Duration::from_secs(2);
        while child.try_wait().expect("a child").is_none() {
            if Instant::now() > until {
                child.kill().expect("it is ours");
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        let log = std::fs::read(log).expect("a file");
        String::from_utf8_lossy(&log).lines().map(str::to_owned).collect()
    }
}

/// Scripts of pieces that change what a shell takes for a command. Nothing in them names a file elsewhere.
fn script() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec![
        "$(",
        ")",
        "$(",
        ")",
        "`",
        "`",
        "\"",
        "\"",
        "'",
        "'",
        "\\",
        "${x:-",
        "}",
        "{ ",
        "; }",
        ";",
        " | ",
        " && ",
        " || ",
        " & ",
        " <<E\n",
        " <<'E'\n",
        " <<-E\n",
        "\nE\n",
        "\nE\n",
        "\n",
        " < ",
        " > ",
        " 2>&1 ",
        " <(",
        "$'",
        "#",
        " # ",
        "\\\n",
        " ",
        "case x in x) ",
        ";; esac\n",
        "if probe 8; then ",
        "; fi\n",
        "for i in a; do ",
        "; done\n",
        "( ",
        " )",
        "$((",
        "))",
        "[[ ",
        " ]]",
        " =~ ",
        "x=",
        "y=(",
        "bash -c ",
        "eval ",
        "env ",
        "env -u a ",
        "xargs ",
        "timeout 1 ",
        "find -exec ",
        " \\; ",
        "echo ",
        "cat ",
        ": ",
        "command ",
        "builtin ",
        "exec ",
        "trap ",
        " EXIT\n",
        "! ",
        "time ",
        "f() { ",
        "\nf\n",
        "{",
        "}",
        "$x",
        "*",
        "\t",
        "E",
        "\nE",
        "\\'",
        "\\\"",
        "\"'\"",
        "'\"'",
        "$",
        "\u{a0}",
        "\r",
        "<<<",
        "|&",
        "&>a ",
        "coproc ",
        "while probe 9; do break",
        "until ",
        "$[1]",
    ]);
    let piece = prop_oneof![
        3 => (1_u8..8).prop_map(|number| format!("probe {number}")),
        6 => odd.prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 1..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn what_bash_runs_is_among_the_needs(scripts in prop::collection::vec(script(), 40)) {
        let bash = Bash::new();
        for (number, script) in scripts.into_iter().enumerate() {
            // The tool takes CR at the ends of lines away before bash reads the script.
            let ran = bash.run(script.replace("\r\n", "\n").trim_end_matches('\r'), number);
            if ran.is_empty() {
                continue;
            }
            let all = needs("shell", &json!({ "command": script }).to_string(), "/w");
            if all.iter().any(|need| need.is_opaque) {
                continue;
            }
            let commands: Vec<&String> = all.iter().filter(|need| need.action == "shell").flat_map(|need| &need.resources).collect();
            for number in ran {
                let wanted = format!("probe {number}").trim_end().to_owned();
                let is_told = commands.iter().any(|command| command.replace(['"', '\''], "").starts_with(&wanted));
                prop_assert!(is_told, "{script:?} ran {wanted}, and needs {commands:?}");
            }
        }
    }
}

/// Each case is forty scripts.
const CASES: u32 = 6;
