//! A newcomer, who has set nothing, meets no dialog in a normal hour; and the few calls that do ask.

use serde_json::{Value, json};

use super::{Judged, Layers};
use crate::tools::ReadNeeds;

fn judged(tool: &str, arguments: &Value) -> Judged {
    let permissions = &settings::Effective::built_in().permissions;
    let needs = ReadNeeds(tools::needs);
    let layers = Layers { permissions, agent: "build", session: &[], can_ask: true, needs };
    layers.judge(tool, &arguments.to_string(), "/home/me/project")
}

/// The calls of an hour of work: look around, build, test, mend, commit.
const COMMANDS: [&str; 34] = [
    "ls -la",
    "git status && git log --oneline -20",
    "git diff HEAD~1 -- src | head -200",
    "cargo build 2>&1 | tail -40",
    "cargo test --workspace -- --nocapture",
    "npm ci && npm run build && npm test",
    "python3 -m pytest -x -q tests/",
    "python3 - <<'EOF'\nimport json\nprint(json.load(open('package.json'))['version'])\nEOF",
    "make -j8 > build.log 2>&1; tail -n 50 build.log",
    "grep -rn 'TODO' src | wc -l",
    "find . -name '*.rs' -newer Cargo.toml | xargs grep -l unsafe",
    "sed -n '1,80p' src/main.rs",
    "rm -rf target/debug/incremental",
    "mkdir -p src/parser && mv parser.rs src/parser/mod.rs",
    "git add -A && git commit -m \"Mend the parser's last line\"",
    "git checkout -b fix/parser && git push -u origin fix/parser",
    "for f in *.txt; do wc -l \"$f\"; done",
    "if [ -f .env.example ]; then cp .env.example /tmp/example; fi",
    "cat .env.example",
    "docker compose ps; docker compose logs --tail 20 web",
    "curl -sS http://127.0.0.1:8080/healthz",
    "env RUST_BACKTRACE=1 ./target/debug/app --help",
    "export DATABASE_URL=postgres://localhost/dev; sqlx migrate run",
    "go test ./... && go vet ./...",
    "node -e 'console.log(process.version)'",
    "tsc --noEmit -p . || true",
    "tar czf /tmp/backup.tgz src",
    "ps aux | grep node | awk '{print $2}'",
    "chmod +x scripts/*.sh && ./scripts/setup.sh",
    "echo \"$(date): done\" >> notes.md",
    "diff <(sort a.txt) <(sort b.txt)",
    "which python3; python3 --version",
    "timeout 60 cargo run --example demo",
    "kill %1 2>/dev/null; wait",
];

#[test]
fn a_newcomer_meets_no_dialog_in_a_normal_hour() {
    for command in COMMANDS {
        let judged = judged("shell", &json!({ "command": command }));
        assert_eq!(judged, Judged::Run, "{command}");
    }
    let patch = "*** Begin Patch\n*** Update File: src/a.rs\n@@\n-x\n+y\n*** End Patch";
    for (tool, arguments) in [
        ("read", json!({"path": "src/main.rs"})),
        ("read", json!({"path": "."})),
        ("read", json!({"path": ".env.example"})),
        ("read", json!({"path": "/tool-output/tool_1"})),
        ("write", json!({"path": "src/new.rs", "content": "x"})),
        ("edit", json!({"path": "README.md", "old": "a", "new": "b"})),
        ("apply_patch", json!({ "patch": patch })),
        ("glob", json!({"pattern": "**/*.ts"})),
        ("grep", json!({"pattern": "fn main", "path": "src"})),
        ("webfetch", json!({"url": "https://docs.example/page"})),
        ("todowrite", json!({"todos": []})),
        ("todoread", json!({})),
        ("skill", json!({"name": "release"})),
        ("question", json!({"questions": []})),
    ] {
        assert_eq!(judged(tool, &arguments), Judged::Run, "{tool} {arguments}");
    }
}

#[test]
fn secrets_alone_are_asked_about() {
    for (tool, arguments) in [
        ("read", json!({"path": ".env"})),
        ("read", json!({"path": "config/.env.production"})),
        ("shell", json!({"command": "sort < .env"})),
    ] {
        assert!(matches!(judged(tool, &arguments), Judged::Ask(_)), "{tool} {arguments}");
    }
}
