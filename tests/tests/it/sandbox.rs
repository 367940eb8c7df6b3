//! Commands of sessions in the sandbox of this machine: real projects that are mended without a network, and a network that
//! is opened as far as a flag says.

#![allow(clippy::print_stderr, reason = "a run says what it skipped, and why")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use journeys::{KEY, Up, World, events_of, oracle};
use serde_json::{Value, json};
use simulated_model::{Script, ScriptedCall};

/// Has a model that is asked for `name` make these calls, one a round, and returns how each was settled.
async fn session(
    world: &World,
    up: &Up,
    place: &Path,
    name: &str,
    calls: &[(&str, Value)],
) -> Result<Vec<Value>> {
    for (round, (tool, arguments)) in (0..).zip(calls) {
        let call =
            ScriptedCall { name: (*tool).to_owned(), arguments: arguments.clone(), id: None };
        let (matches, tool_calls) = (name.to_owned(), vec![call]);
        let script = Script { matches, round: Some(round), tool_calls, ..Script::default() };
        world.model().script(script)?;
    }
    let (matches, text) = (name.to_owned(), Some("done".to_owned()));
    let round = u32::try_from(calls.len()).ok();
    world.model().script(Script { matches, round, text, ..Script::default() })?;
    let session = up.api().session(place).await?;
    ensure!(up.api().prompt(&session, name, 150).await? == "completed", "{name}");
    let settled: Vec<Value> =
        events_of(&up.api().log(&session).await?, "tool.settled").into_iter().cloned().collect();
    ensure!(settled.len() == calls.len(), "{name}: {settled:?}");
    Ok(settled)
}

fn shell(command: &str) -> (&'static str, Value) {
    ("shell", json!({ "command": command, "timeout_ms": 120_000 }))
}

fn output(settled: &Value) -> &str {
    settled["output"].as_str().unwrap_or_default()
}

/// Whether a program of this machine runs.
fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    found.is_ok_and(|found| found.status.success())
}

/// A project with a fault, and the way to mend it.
struct Project {
    name: &'static str,
    program: &'static str,
    files: &'static [(&'static str, &'static str)],
    faulty: &'static str,
    fault: (&'static str, &'static str),
    test: &'static str,
    /// The words of the test once it passes.
    passes: &'static str,
}

const PROJECTS: [Project; 4] = [
    Project {
        name: "rust",
        program: "cargo",
        files: &[
            ("Cargo.toml", "[package]\nname = \"sums\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
            (
                "src/lib.rs",
                "/// The sum of all.\npub fn sum(all: &[u64]) -> u64 {\n    all.iter().skip(1).sum()\n}\n",
            ),
            (
                "tests/sums.rs",
                "#[test]\nfn the_first_one_counts() {\n    assert_eq!(sums::sum(&[1, 2, 3]), 6);\n}\n",
            ),
        ],
        faulty: "src/lib.rs",
        fault: ("iter().skip(1).sum()", "iter().sum()"),
        test: "cargo test --offline",
        passes: "test the_first_one_counts ... ok",
    },
    Project {
        name: "node",
        program: "node",
        files: &[
            ("package.json", "{\"name\": \"sums\", \"type\": \"module\"}\n"),
            ("sums.js", "export const sum = (all) => all.slice(1).reduce((a, b) => a + b, 0);\n"),
            (
                "sums.test.js",
                "import test from 'node:test';\nimport assert from 'node:assert';\nimport { sum } from './sums.js';\n\
                 test('the first one counts', () => assert.equal(sum([1, 2, 3]), 6));\n",
            ),
        ],
        faulty: "sums.js",
        fault: ("all.slice(1)", "all"),
        test: "node --test",
        passes: "pass 1",
    },
    Project {
        name: "python",
        program: "python3",
        files: &[
            ("sums.py", "def total(all):\n    return sum(all[1:])\n"),
            (
                "test_sums.py",
                "import unittest\nfrom sums import total\n\n\nclass Sums(unittest.TestCase):\n    \
                 def test_first(self):\n        self.assertEqual(total([1, 2, 3]), 6)\n",
            ),
        ],
        faulty: "sums.py",
        fault: ("all[1:]", "all"),
        test: "python3 -m unittest",
        passes: "OK",
    },
    Project {
        name: "git",
        program: "git",
        files: &[("sums.sh", "echo $(($1 - $2))\n")],
        faulty: "sums.sh",
        fault: ("$1 - $2", "$1 + $2"),
        // Its history, from the index to a branch, without a change of the configuration.
        test: "set -e; [ \"$(sh sums.sh 1 2)\" = 3 ]; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b \
               GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; git switch -q -c mended; git add -A; git commit -qm mend; \
               git diff --stat HEAD~1; git log --oneline | wc -l; git status --short | wc -l",
        passes: "1 file changed, 1 insertion(+), 1 deletion(-)\n2\n0",
    },
];

/// A checkout of a person: the project in its first commit.
fn check_out(project: &Project, place: &Path) -> Result<()> {
    for (path, text) in project.files {
        let path = place.join(path);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        fs::write(path, text)?;
    }
    if !is_there("git") {
        return Ok(());
    }
    for words in [
        &["init", "-q", "-b", "main"][..],
        &["add", "-A"],
        &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"],
    ] {
        let ended = Command::new("git").args(words).current_dir(place).output()?;
        ensure!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
    Ok(())
}

#[tokio::test]
async fn a_fault_is_mended_in_a_sandbox_without_a_network() -> Result<()> {
    let world = World::new().await?;
    let up = world.up().await?;
    let told = up.process().stderr();
    let tier = told.lines().find(|line| line.contains("sandbox: ")).unwrap_or_default().to_owned();
    ensure!(!tier.is_empty() && !tier.contains("NONE"), "there is a sandbox: {told}");
    let data = world.data();
    for project in &PROJECTS {
        if !is_there(project.program) {
            eprintln!("SKIPPED, {}: this machine has no {}", project.name, project.program);
            continue;
        }
        let place = world.workspace(project.name)?;
        check_out(project, &place)?;
        let path = project.faulty;
        let (old, new) = project.fault;
        let shut = format!(
            "(exec 3<>/dev/tcp/1.1.1.1/443) 2>/dev/null && echo OPEN; cat {}/secrets.key && echo SECRET; echo looked",
            data.display()
        );
        let settled = session(
            &world,
            &up,
            &place,
            &format!("mend the {} project", project.name),
            &[
                shell(project.test),
                ("read", json!({ "path": path })),
                ("edit", json!({ "path": path, "old": old, "new": new })),
                shell(project.test),
                shell(&shut),
            ],
        )
        .await?;
        let [before, read, edited, after, shut] = &settled[..] else { unreachable!() };
        let name = project.name;
        ensure!(!output(before).ends_with("(exit code 0)"), "{name}: {}", output(before));
        ensure!(output(read).contains(old), "{name}: {}", output(read));
        ensure!(edited["outcome"] == "completed", "{name}: {edited}");
        let text = output(after);
        ensure!(text.contains(project.passes), "{name}, {tier}: {text}");
        ensure!(text.contains("(exit code 0)"), "{name}: {text}");
        let text = output(shut);
        ensure!(text.contains("looked") && !text.contains("OPEN"), "{name}: {text}");
        ensure!(!text.contains("SECRET"), "{name}: {text}");
        ensure!(fs::read_to_string(place.join(path))?.contains(new), "{name}");
    }
    oracle(up.api(), world.model()).await?;
    up.stop(&world).await
}

/// A registry of packages: TLS with a certificate of its own, and the index of one package.
struct Registry {
    process: Child,
    port: u16,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

const SERVER: &str = r#"
import http.server, ssl, sys
server = http.server.ThreadingHTTPServer(("127.0.0.2", 0), http.server.SimpleHTTPRequestHandler)
if len(sys.argv) > 1:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("../tls/cert.pem", "../tls/key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

const PACKAGE: &str = r#"
import os, zipfile
os.makedirs("simple/demo")
name = "demo-1.0-py3-none-any.whl"
with zipfile.ZipFile("simple/demo/" + name, "w") as wheel:
    wheel.writestr("demo.py", "print('installed')\n")
    wheel.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    wheel.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("demo-1.0.dist-info/RECORD", "demo.py,,\n")
with open("simple/demo/index.html", "w") as index:
    index.write(f'<a href="{name}">{name}</a>')
"#;

impl Registry {
    fn start(place: &Path, tls: bool) -> Result<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", SERVER]).current_dir(place).stdin(Stdio::null());
        let command = if tls { command.arg("tls") } else { &mut command };
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("its output")?).read_line(&mut line)?;
        let port = line.trim().parse().context("a port")?;
        Ok(Self { process, port })
    }
}

fn run(directory: &Path, program: &str, words: &[&str]) -> Result<()> {
    let ended = Command::new(program).args(words).current_dir(directory).output()?;
    ensure!(ended.status.success(), "{program}: {}", String::from_utf8_lossy(&ended.stderr));
    Ok(())
}

#[tokio::test]
async fn a_network_of_packages_leads_to_registries_and_nowhere_else() -> Result<()> {
    for program in ["openssl", "python3", "curl"] {
        if Command::new(program).arg("version").output().is_err() {
            eprintln!("SKIPPED: this machine has no {program}");
            return Ok(());
        }
    }
    let world = World::new().await?;
    let (files, tls) = (world.workspace("registry")?, world.workspace("tls")?);
    run(&files, "python3", &["-c", PACKAGE])?;
    let words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=registry -addext subjectAltName=IP:127.0.0.2 \
                 -keyout key.pem -out cert.pem";
    run(&tls, "openssl", &words.split_whitespace().collect::<Vec<_>>())?;
    let (secure, plain) = (Registry::start(&files, true)?, Registry::start(&files, false)?);
    // A registry inside, which the operator lists and allows, and another server inside, which is allowed but not listed.
    let other = Registry::start(&files, false)?;
    let listed = format!("default,127.0.0.2:{},127.0.0.2:{}", secure.port, plain.port);
    let flags = [
        "--port=0".to_owned(),
        "--network=packages".to_owned(),
        format!("--network-hosts={listed}"),
        "--egress-allow=127.0.0.2".to_owned(),
        format!("--egress-ca={}", tls.join("cert.pem").display()),
    ];
    let words: Vec<_> = ["up".to_owned()].into_iter().chain(world.flags()).chain(flags).collect();
    let log = ("OPENCODE_CLOUD_LOG".to_owned(), "warn,opencode_cloud=info".to_owned());
    let up = Up::launch(&world, &words, &[log], Some(KEY)).await?;
    let told = up.process().stderr();
    if !told.contains("; network: packages") {
        let line = told.lines().find(|line| line.contains("sandbox: ")).unwrap_or_default();
        crate::tiers::skip(
            &["A", "B"],
            &format!("this machine's sandbox opens no network: {line}"),
        )?;
        ensure!(line.contains("has no way to open packages"), "it says so: {told}");
        drop((secure, plain, other));
        return up.stop(&world).await;
    }
    let place = world.workspace("project")?;
    let registries = [secure, plain, other];
    let [secure, plain, other] = registries.each_ref().map(|registry| registry.port);
    let calls = [
        shell(&format!("curl -sS https://127.0.0.2:{secure}/simple/demo/")),
        shell(&format!("curl -sS http://127.0.0.2:{plain}/simple/demo/")),
        shell(&format!(
            "/usr/bin/python3 -m pip install -q --no-deps --target lib --disable-pip-version-check --index-url \
             https://127.0.0.2:{secure}/simple demo && PYTHONPATH=lib /usr/bin/python3 -m demo"
        )),
        shell("curl -sS https://example.com/"),
        shell(&format!("curl -sS http://127.0.0.2:{other}/")),
        shell(&format!("curl -sS --noproxy '*' http://127.0.0.2:{plain}/simple/demo/")),
        shell(&format!("curl -sS --noproxy '*' {}/readyz", up.api().url())),
    ];
    let settled = session(&world, &up, &place, "install what is missing", &calls).await?;
    let texts: Vec<_> = settled.iter().map(output).collect();
    for index in [0, 1] {
        ensure!(texts[index].contains("demo-1.0-py3-none-any.whl"), "{}", texts[index]);
    }
    if texts[2].contains("No module named pip") {
        eprintln!("SKIPPED, pip: /usr/bin/python3 of this machine has none");
    } else {
        ensure!(texts[2].starts_with("installed\n"), "{}", texts[2]);
    }
    let refused = "network: example.com:443 was refused; this workspace's network is `packages`";
    ensure!(texts[3].contains(&format!("({refused})")), "{}", texts[3]);
    ensure!(texts[4].contains(&format!("(network: 127.0.0.2:{other} was refused")), "{}", texts[4]);
    for index in [5, 6] {
        ensure!(!texts[index].contains("(exit code 0)"), "{}", texts[index]);
    }
    let log = up.process().stderr();
    let line = |host: &str, verdict: &str| {
        let is_it = |line: &&str| line.contains("network of a command") && line.contains(host);
        log.lines().filter(is_it).any(|line| line.contains(verdict))
    };
    ensure!(line("127.0.0.2", "passed") && line("example.com", "refused"), "{log}");
    drop(registries);
    up.stop(&world).await
}
