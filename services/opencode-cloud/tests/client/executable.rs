//! The contract for scripts, kept by the executable itself: exit codes, last lines, quiet pipes.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::service::{KEY, Service, Step};
use crate::{admitted, created, ended, promoted, turn, whole};

fn command(url: &str, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_opencode-cloud"));
    command
        .args(words)
        .env("OPENCODE_CLOUD_URL", url)
        .env("OPENCODE_CLOUD_KEY", KEY)
        .env("OPENCODE_CLOUD_PROFILE", "/nowhere/profile.toml")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn output(child: Child) -> Output {
    let ended = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output()).await;
    ended.expect("it ends").expect("it can be waited for")
}

async fn cli(url: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let output = output(command(url, words).spawn().expect("it starts")).await;
    told(&output)
}

fn told(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn run_prints_the_answer_and_exits_with_0() {
    let service = Service::start(vec![whole()]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().to_str().expect("UTF-8");
    let words = ["run", "hello", "--directory", directory, "--model", "big", "--agent", "plan"];
    let (code, out, err) = cli(&service.url, &words).await;
    assert_eq!((code, out.as_str()), (Some(0), "hello you\n"), "{err}");
    assert!(
        err.contains("session ses_1") && err.contains("simulated: not a language model"),
        "{err}"
    );
    let seen = service.seen();
    assert_eq!(
        (&seen.prompts[0]["model"], &seen.prompts[0]["agent"]),
        (&"sim/big".into(), &"plan".into())
    );
    assert_eq!(seen.created[0]["agent"], "plan");
}

#[tokio::test]
async fn a_session_goes_on_in_its_own_directory_or_not_at_all() {
    let service = Service::start(vec![whole()]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().to_str().expect("UTF-8");
    let words = ["run", "hello", "--session", "ses_1", "--directory", other];
    let (code, out, err) = cli(&service.url, &words).await;
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    let fix = format!("opencode-cloud session move ses_1 --directory {other}");
    assert!(err.contains("works in /srv; leave --directory out") && err.contains(&fix), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    assert_eq!(service.seen().prompts, [] as [Value; 0], "nothing was asked of it");
    let words = ["run", "hello", "--session", "ses_1", "--directory", "/srv/"];
    let (code, out, err) = cli(&service.url, &words).await;
    assert_eq!((code, out.as_str()), (Some(0), "hello you\n"), "{err}");
    assert_eq!(service.seen().prompts[0].get("agent"), None);
}

// Finding ops B3: the first command after an installation on this machine was refused.
#[tokio::test]
async fn run_works_where_the_service_says_that_it_can() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path().canonicalize().expect("a folder");
    let here = here.to_str().expect("UTF-8").to_owned();
    let given = ["--directory", "/workspace"];
    let named = Some("/workspace".to_owned());
    for (has_paths, words, project, directory) in [
        (Some(true), &[][..], Some(here.clone()), Some(here.clone())),
        (Some(true), &given, named.clone(), named.clone()),
        (Some(false), &[], None, None),
        (Some(false), &given, named.clone(), named),
        (None, &[], Some(here.clone()), Some(here)),
    ] {
        let service = Service::start(vec![whole()]).await;
        service.say_of_paths(has_paths);
        let mut run = command(&service.url, &[&["run", "hello"][..], words].concat());
        run.current_dir(folder.path());
        let (code, out, err) = told(&output(run.spawn().expect("it starts")).await);
        assert_eq!((code, out.as_str()), (Some(0), "hello you\n"), "{words:?}: {err}");
        let is_elsewhere = err.contains("an empty workspace of the service, not in this directory");
        assert_eq!(is_elsewhere, directory.is_none(), "{err}");
        let seen = service.seen();
        assert_eq!(seen.projects[0]["directory"].as_str(), project.as_deref(), "{words:?}");
        // Finding ops S4: all sessions of a plain `run` shared one workspace.
        let own = format!("/workspace/{}", seen.created[0]["id"].as_str().expect("an id"));
        let directory = directory.unwrap_or(own);
        assert_eq!(seen.created[0]["directory"], directory.as_str(), "{words:?}");
    }
}

#[tokio::test]
async fn run_continues_the_last_session_of_its_directory() {
    let service = Service::start(vec![whole()]).await;
    let (code, out, err) = cli(&service.url, &["run", "-c", "hello", "--directory", "/srv/"]).await;
    assert_eq!((code, out.as_str()), (Some(0), "hello you\n"), "{err}");
    assert_eq!(service.seen().created, [] as [Value; 0], "no new session");
    assert!(err.contains(" run --session ses_1 \"…\""), "it says how to continue: {err}");
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().to_str().expect("UTF-8");
    let (code, _, err) = cli(&service.url, &["run", "-c", "hello", "--directory", other]).await;
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("there is no session in") && err.contains("leave -c out"), "{err}");
}

#[tokio::test]
async fn an_unknown_model_ends_with_the_way_to_another() {
    let error = json!({"code": "model.unknown", "message": "there is no provider `foo`"});
    let failed = Step::Event(4, "drain.ended", json!({"outcome": "failed", "error": error}));
    let steps = vec![created(), Step::Prompt, admitted(2), promoted(3), failed];
    let service = Service::start(vec![steps]).await;
    let words = ["run", "-c", "hello", "--directory", "/srv", "--model", "foo/bar"];
    let (code, _, err) = cli(&service.url, &words).await;
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("there is no provider `foo` (model.unknown)"), "{err}");
    assert!(err.contains("list the models: ") && err.contains(" models\n"), "{err}");
    assert!(err.contains(" run --session ses_1 --model PROVIDER/MODEL \"…\""), "{err}");
}

// Heldout-3: `--variant` that the model does not have ended the run with 409.
#[tokio::test]
async fn a_variant_that_a_model_lacks_is_left_out() {
    let said = [("high", "high", ""), ("huge", "", "sim/simulated has no variant `huge`")];
    for (asked, sent, warning) in said {
        let service = Service::start(vec![whole()]).await;
        let words =
            ["run", "hello", "--session", "ses_1", "--model", "simulated", "--variant", asked];
        let (code, out, err) = cli(&service.url, &words).await;
        assert_eq!((code, out.as_str()), (Some(0), "hello you\n"), "{err}");
        assert!(err.contains(warning), "{err}");
        let variant = service.seen().prompts[0]["variant"].as_str().unwrap_or_default().to_owned();
        assert_eq!(variant, sent, "{asked}");
    }
}

// Finding trial-3 24: a session in one's own directory, and a directory that is no repository.
#[tokio::test]
async fn a_pull_without_a_clone_says_where_the_work_is() {
    let service = Service::start(vec![]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let mut pull = command(&service.url, &["session", "pull", "ses_1"]);
    pull.current_dir(folder.path());
    let (code, _, err) = told(&output(pull.spawn().expect("it starts")).await);
    assert!(code == Some(2) && err.contains("worked in your own files, in /srv"), "{err}");
}

// Finding trial-3 22: ids of 30 characters everywhere.
#[tokio::test]
async fn a_session_is_named_by_the_start_of_its_id_or_not() {
    let service = Service::start(vec![whole()]).await;
    for (words, is_found) in [
        (&["session", "show", "ses_long"][..], true),
        (&["session", "show", "ses_1"], true),
        (&["session", "show", "ses_2"], false),
    ] {
        let (code, out, err) = cli(&service.url, words).await;
        assert_eq!(code == Some(0) && out.contains("A title"), is_found, "{words:?}: {out} {err}");
        assert!(is_found || err.starts_with("error: session ses_2 was not found"), "{err}");
    }
    let (code, _, err) = cli(&service.url, &["session", "diff", "ses"]).await;
    assert_eq!(code, Some(2), "no beginning of an id: {err}");
    let (code, out, err) = cli(&service.url, &["run", "hello", "--session", "ses_long"]).await;
    assert_eq!((code, out.as_str()), (Some(0), "hello you\n"), "{err}");
    // Nothing was done in the directory of this test.
    let (code, _, err) = cli(&service.url, &["session", "diff"]).await;
    assert!(code == Some(2) && err.contains("there is no session in"), "{err}");
    let mut diff = command(&service.url, &["session", "diff"]);
    diff.current_dir("/srv");
    let (code, out, err) = told(&output(diff.spawn().expect("it starts")).await);
    assert!(code == Some(0) && out.contains("+++ b/a.txt"), "{out} {err}");
}

// Finding trial 16: a failed run left a session in which nothing had happened.
#[tokio::test]
async fn a_refused_run_leaves_no_session_behind() {
    let service = Service::refusing(&[409], vec![vec![created()]]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().to_str().expect("UTF-8");
    let (code, _, err) = cli(&service.url, &["run", "hello", "--directory", directory]).await;
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("session ses_1 was removed: nothing had run in it"), "{err}");
    let calls = service.seen().calls.clone();
    assert!(calls.contains(&"DELETE /platform/session/ses_1".to_owned()), "{calls:?}");
    // An existing session stays.
    let service = Service::refusing(&[409], vec![vec![created()]]).await;
    let (_, _, err) = cli(&service.url, &["run", "hello", "--session", "ses_1"]).await;
    assert!(!err.contains("was removed"), "{err}");
}

#[tokio::test]
async fn a_clone_that_fails_removes_its_session_and_says_why() {
    let why = "resolving https://h.org/o/r: h.org cannot be reached";
    let error = json!({"code": "workspace.fill_failed", "message": why});
    let failed = Step::Event(3, "drain.ended", json!({"outcome": "failed", "error": error}));
    let service = Service::start(vec![vec![created(), Step::Prompt, admitted(2), failed]]).await;
    let words = ["run", "hello", "--repo", "https://h.org/o/r"];
    let (code, _, err) = cli(&service.url, &words).await;
    assert_eq!(code, Some(1), "{err}");
    let end = format!("{why}\nsession ses_1 was removed: nothing had run in it\n");
    assert!(err.ends_with(&end), "{err}");
    assert!(!err.contains("it stays in session") && !err.contains("tried again"), "{err}");
    // Of a session that was there before, the prompt waits.
    let failed = ended(3, "failed");
    let service = Service::start(vec![vec![created(), Step::Prompt, admitted(2), failed]]).await;
    let (_, _, err) = cli(&service.url, &["run", "hello", "--session", "ses_1"]).await;
    assert!(err.contains("it stays in session ses_1 and joins its next work"), "{err}");
}

// Finding trial 6: only the prompt was retried, so a database that had just come back failed a run.
#[tokio::test]
async fn the_first_calls_of_a_run_are_repeated_with_the_same_id() {
    let service = Service::stumbling(vec![whole()]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().to_str().expect("UTF-8");
    let (code, out, err) = cli(&service.url, &["run", "hello", "--directory", directory]).await;
    assert_eq!((code, out.as_str()), (Some(0), "hello you\n"), "{err}");
    let created = service.seen().created.clone();
    assert!(created[0]["id"].as_str().is_some_and(|id| id.starts_with("ses_")), "{created:?}");
}

#[tokio::test]
async fn run_json_prints_each_item_on_a_line_and_the_outcome_last() {
    let service = Service::start(vec![whole()]).await;
    let (code, out, _) = cli(&service.url, &["run", "hello", "--json", "--session", "ses_1"]).await;
    assert_eq!(code, Some(0));
    let lines: Vec<Value> =
        out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let kinds: Vec<&str> = lines.iter().filter_map(|line| line.get("type")?.as_str()).collect();
    assert_eq!(
        kinds,
        [
            "session.created",
            "prompt.admitted",
            "prompt.promoted",
            "turn.started",
            "delta",
            "turn.replied",
            "drain.ended"
        ]
    );
    let last = out.lines().last().expect("a line");
    assert_eq!(last, r#"{"session":"ses_1","turns":["trn_1"],"outcome":"completed"}"#);
}

#[tokio::test]
async fn the_exit_code_and_the_last_line_tell_of_a_failure() {
    let failing = vec![created(), Step::Prompt, admitted(2), promoted(3), ended(4, "failed")];
    let service = Service::start(vec![failing]).await;
    let (code, out, _) = cli(&service.url, &["run", "hello", "--json", "--session", "ses_1"]).await;
    assert_eq!(code, Some(1));
    let last: Value = serde_json::from_str(out.lines().last().expect("a line")).expect("JSON");
    assert_eq!(last, json!({"session": "ses_1", "turns": [], "outcome": "failed"}));
    let refusing = Service::refusing(&[409], vec![vec![created()]]).await;
    let (code, out, err) =
        cli(&refusing.url, &["run", "hello", "--json", "--session", "ses_1"]).await;
    assert_eq!(code, Some(1));
    assert!(out.ends_with("\"outcome\":\"failed\"}\n"), "{out}");
    assert!(err.contains("error: the service answered 409"), "{err}");
}

async fn interrupt(child: &Child) {
    let pid = child.id().expect("it runs").to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().await.expect("kill runs");
    assert!(sent.success());
}

#[tokio::test]
async fn ctrl_c_interrupts_the_session_and_exits_with_130() {
    let steps = vec![
        created(),
        Step::Prompt,
        admitted(2),
        promoted(3),
        turn(4, "trn_1"),
        Step::Abort,
        ended(5, "interrupted"),
    ];
    let service = Service::start(vec![steps]).await;
    let words = ["run", "hello", "--json", "--session", "ses_1"];
    let child = command(&service.url, &words).spawn().expect("it starts");
    service.prompted().await; // from here on it listens for the signal
    interrupt(&child).await;
    let (code, out, err) = told(&output(child).await);
    assert_eq!(code, Some(130), "{err}");
    assert!(
        out.ends_with(
            "{\"session\":\"ses_1\",\"turns\":[\"trn_1\"],\"outcome\":\"interrupted\"}\n"
        )
    );
    assert!(service.seen().calls.contains(&"POST /platform/session/ses_1/abort".to_owned()));
}

#[tokio::test]
async fn a_reader_that_goes_away_makes_no_noise() {
    let mut steps = whole();
    steps.insert(5, Step::Delta(0, "he"));
    let service = Service::start(vec![steps]).await;
    let words = ["run", "hello", "--json", "--session", "ses_1"];
    let mut child = command(&service.url, &words).spawn().expect("it starts");
    drop(child.stdout.take());
    let (code, _, err) = told(&output(child).await);
    assert_eq!((code, err.as_str()), (Some(0), ""));
}

#[tokio::test]
async fn the_prompt_is_read_from_a_pipe_only_when_it_is_not_an_argument() {
    use tokio::io::AsyncWriteExt;
    let service = Service::start(vec![whole()]).await;
    let mut piped = command(&service.url, &["run", "-", "--session", "ses_1"]);
    let mut child = piped.stdin(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all("héllo\nyou\n".as_bytes()).await.expect("it reads");
    drop(stdin);
    assert_eq!(output(child).await.status.code(), Some(0));
    assert_eq!(service.seen().prompts[0]["parts"][0]["text"], "héllo\nyou");

    let service = Service::start(vec![whole()]).await;
    let mut open = command(&service.url, &["run", "words", "of", "it", "--session", "ses_1"]);
    let mut child = open.stdin(Stdio::piped()).spawn().expect("it starts");
    let _held_open = child.stdin.take();
    assert_eq!(output(child).await.status.code(), Some(0));
    assert_eq!(service.seen().prompts[0]["parts"][0]["text"], "words of it");
}

#[tokio::test]
async fn wrong_uses_exit_with_2_and_say_what_is_right() {
    let (code, _, err) = cli("http://127.0.0.1:1", &["run"]).await;
    assert_eq!((code, err.contains("no prompt")), (Some(2), true), "{err}");
    let service = Service::start(vec![whole()]).await;
    let (code, _, err) = cli(&service.url, &["run", "x", "--directory", "/no/such"]).await;
    assert_eq!((code, err.contains("/no/such")), (Some(2), true), "{err}");
    let (code, _, err) = cli("http://127.0.0.1:1", &["run", "x", "--bogus"]).await;
    assert_eq!((code, err.contains("--bogus")), (Some(2), true), "{err}");
    let (code, _, err) = cli("localhost", &["session", "list"]).await;
    assert_eq!((code, err.contains("--url")), (Some(2), true), "{err}");
    let (code, _, err) = cli("http://127.0.0.1:1", &["rebuild"]).await;
    assert_eq!((code, err.contains("--session ID or --all")), (Some(2), true), "{err}");
}

#[tokio::test]
async fn what_goes_wrong_is_one_line_with_the_fix() {
    let (code, _, err) = cli("http://127.0.0.1:1", &["session", "list"]).await;
    assert_eq!(code, Some(1));
    assert_eq!(
        err,
        "error: cannot reach the service at http://127.0.0.1:1 (Connection refused); start it with \
         `opencode-cloud up`, or name another one with --url\n"
    );
    // Finding trial-3 29: other services that answer were not named.
    let other = Service::start(vec![]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let profile = folder.path().join("profile.toml");
    let known =
        format!("[services.\"{}\"]\nkey = \"k\"\n[services.\"http://127.0.0.1:2\"]\n", other.url);
    std::fs::write(&profile, known).expect("a file");
    let mut list = command("http://127.0.0.1:1", &["session", "list"]);
    list.env("OPENCODE_CLOUD_PROFILE", &profile);
    let (code, _, err) = told(&output(list.spawn().expect("it starts")).await);
    assert_eq!((code, err.lines().count()), (Some(1), 1), "{err}");
    let hint = format!(
        "The service at {url} answers; use it with: opencode-cloud use {url}\n",
        url = other.url
    );
    assert!(err.ends_with(&hint), "{err}");
    let service = Service::start(vec![]).await;
    let (code, _, err) = cli(&service.url, &["session", "list", "--key", "wrong"]).await;
    assert_eq!((code, err.lines().count()), (Some(1), 1), "{err}");
    assert!(err.contains("refused the key that was given"), "{err}");
    let (code, _, err) = cli(&service.url, &["session", "show", "ses_2"]).await;
    assert_eq!(code, Some(1));
    assert!(err.starts_with("error: session ses_2 was not found"), "{err}");
}

#[tokio::test]
async fn a_service_without_tls_is_told_from_one_with_it() {
    let service = Service::start(vec![]).await;
    let url = service.url.replace("http://", "https://");
    let (code, _, err) = cli(&url, &["session", "list"]).await;
    assert_eq!(code, Some(1), "{err}");
    let said = format!("error: the service at {url} speaks http, not https; use {}\n", service.url);
    assert_eq!(err, said);
}

#[tokio::test]
async fn the_other_client_subcommands_answer() {
    let service = Service::start(vec![]).await;
    let url = service.url.as_str();
    let (code, out, _) = cli(url, &["session", "list"]).await;
    assert!(code == Some(0) && out.contains("ses_1") && out.contains("A title"), "{out}");
    let (_, out, _) = cli(url, &["session", "list", "--json"]).await;
    let list: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(list[0]["id"], "ses_1");
    let (code, out, _) = cli(url, &["session", "log", "ses_1"]).await;
    assert_eq!((code, out.contains("drain.ended          completed")), (Some(0), true), "{out}");
    let (_, out, _) = cli(url, &["session", "log", "ses_1", "--json"]).await;
    let event: Value = serde_json::from_str(&out).expect("one line of JSON");
    assert_eq!(event["seq"], 1);
    let (code, out, _) = cli(url, &["abort", "ses_1"]).await;
    assert_eq!((code, out.starts_with("interrupted")), (Some(0), true), "{out}");
    let (code, out, _) = cli(url, &["abort", "ses_1", "--resume"]).await;
    assert_eq!((code, out.as_str()), (Some(0), "interrupted; it continues with what steers it\n"));
    let (code, out, _) = cli(url, &["explain", "trn_1", "--body"]).await;
    assert_eq!((code, out.as_str()), (Some(0), "{\"exact\": \"bytes\" }"));
    let (code, out, err) = cli(url, &["explain", "trn_2", "--body"]).await;
    assert_eq!((code, out.as_str(), err.contains("encoder changed")), (Some(1), "", true), "{err}");
    let (code, out, _) = cli(url, &["rebuild", "--check"]).await;
    assert_eq!((code, out.contains("ses_1: differs")), (Some(1), true), "{out}");
    let (code, out, _) = cli(url, &["check", "--settled"]).await;
    assert_eq!((code, out.as_str()), (Some(0), "no violation found\n"));
}

#[tokio::test]
async fn what_changes_a_session_is_told_in_a_line_and_by_the_exit_code() {
    let service = Service::start(vec![]).await;
    let said = [
        // Finding trial 16: there was no `session delete`.
        (&["delete", "ses_1"][..], 0, "ses_1 is deleted"),
        (&["rename", "ses_1", "Ticket 42"], 0, "the title is now `Ticket 42`"),
        (&["compact", "ses_1", "--delivery", "queue"], 0, "it waits in the inbox"),
        (&["inbox", "ses_1"], 0, "compaction"),
        (&["cancel", "ses_1", "msg_c"], 0, "it no longer waits"),
        (&["deliver", "ses_1", "msg_c", "steer"], 0, "its delivery is now `steer`"),
        (&["resume", "ses_1"], 0, "it continues"),
        (&["wait", "ses_1", "--seconds", "1"], 1, "it is still busy"),
        (&["children", "ses_1"], 0, "A title"),
        (&["usage", "ses_1"], 0, "tree of 2  3 in, 2 out, 0.5000 USD"),
        (&["context", "ses_1"], 0, "plan  {\"a\":1}"),
        (&["context", "ses_1", "plan", "null"], 0, "the model sees it"),
        (&["context", "ses_1", "plan", "--remove"], 0, "no longer applies"),
    ];
    for (words, code, told) in said {
        let words = [&["session"], words].concat();
        let (exit, out, err) = cli(&service.url, &words).await;
        assert!(exit == Some(code) && out.contains(told), "{words:?}: {exit:?} {out} {err}");
    }
    let (_, out, _) = cli(&service.url, &["session", "resume", "ses_1", "--json"]).await;
    assert_eq!(out, "{\"resumed\":true}\n");
    let (code, _, err) =
        cli(&service.url, &["session", "context", "ses_1", "plan", "not JSON"]).await;
    assert!(code == Some(2) && err.contains("the value is not JSON"), "{code:?} {err}");
    let (code, ..) = cli(&service.url, &["session", "context", "ses_1", "plan"]).await;
    assert_eq!(code, Some(2), "a key alone says nothing");
    let unseen = service.seen().calls.iter().filter(|call| call.contains("not JSON")).count();
    assert_eq!(unseen, 0);
}

#[tokio::test]
async fn where_a_session_goes_on_and_what_it_changed_is_told() {
    let service = Service::start(vec![]).await;
    let said = [
        (&["fork", "ses_1", "--id", "ses_9"][..], "ses_9 continues from there, in /srv\n"),
        (&["fork", "ses_1", "--before", "msg_2", "--copy-files"], "in /workspace/own\n"),
        (&["move", "ses_1", "--directory", "/other"], "it waits in the inbox"),
        (&["move", "ses_1", "--carry"], "it waits in the inbox"),
        (&["revert", "ses_1", "msg_2"], "reverted, with 1 file\n  a.txt\n"),
        (&["revert", "ses_1", "msg_2", "--keep-files"], "reverted, with 0 files\n"),
        (&["revert", "ses_1", "--commit"], "the revert is final"),
        (&["unrevert", "ses_1"], "no revert is staged"),
        (&["diff", "ses_1"], "+++ b/a.txt\n1 file, 2 lines added, 0 removed\n"),
        (&["diff", "ses_1", "--message", "msg_2", "--stat"], "added   2  0  a.txt\n"),
    ];
    for (words, told) in said {
        let words = [&["session"], words].concat();
        let (exit, out, err) = cli(&service.url, &words).await;
        assert!(exit == Some(0) && out.contains(told), "{words:?}: {exit:?} {out} {err}");
    }
    let asked = service.seen().calls.clone();
    assert!(asked.contains(&"POST /platform/session/ses_1/revert/commit".to_owned()), "{asked:?}");
    assert!(asked.iter().any(|call| call.ends_with("/diff?messageID=msg_2")), "{asked:?}");
    let (_, out, _) = cli(&service.url, &["session", "diff", "ses_1", "--json"]).await;
    let diff: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(diff["files"][0]["additions"], 2);
    for words in [
        &["revert", "ses_1"][..],
        &["revert", "ses_1", "msg_2", "--commit"],
        &["move", "ses_1"],
        &["move", "ses_1", "--directory", "/a", "--location", "loc_a"],
        &["move", "ses_1", "--directory", "/a", "--carry"],
    ] {
        let words = [&["session"], words].concat();
        let (exit, ..) = cli(&service.url, &words).await;
        assert_eq!(exit, Some(2), "{words:?}");
    }
}

#[tokio::test]
async fn the_simulated_model_serves_until_it_is_told_to_stop() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let mut child = command("", &["simulated-model", "--port", "0"]).spawn().expect("it starts");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("a pipe");
    BufReader::new(stdout).read_line(&mut line).await.expect("a line");
    assert!(
        line.starts_with("simulated model (not a language model) at http://127.0.0.1:"),
        "{line}"
    );
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).expect("a URL");
    let url = url.trim_end_matches(';');
    let answer = reqwest::get(format!("{url}/models")).await.expect("it serves");
    assert!(answer.status().is_success());
    interrupt(&child).await;
    assert_eq!(output(child).await.status.code(), Some(0));
}

#[tokio::test]
async fn the_hidden_supervisor_is_answered_before_anything_else() {
    let (code, out, err) = cli("", &["tool-supervisor"]).await;
    assert_eq!((code, out.as_str(), err.as_str()), (Some(2), "", ""));
    assert!(Path::new(env!("CARGO_BIN_EXE_opencode-cloud")).exists());
}
