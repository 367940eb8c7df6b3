//! The released `opencode run --attach` at our service, with every option that its help lists. Each works, or the
//! person reads a sentence about it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use journeys::{Api, Ended, Up, World, executable, oracle};
use serde_json::Value;
use simulated_model::Script;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::stock::released_client;

/// Every option of the release. A new release that has others must be tried with those.
const OPTIONS: [&str; 24] = [
    "agent",
    "attach",
    "auto",
    "command",
    "continue",
    "dir",
    "file",
    "fork",
    "format",
    "help",
    "interactive",
    "log-level",
    "model",
    "password",
    "port",
    "print-logs",
    "pure",
    "session",
    "share",
    "thinking",
    "title",
    "username",
    "variant",
    "version",
];
/// How long the client may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

/// A released client with a home of its own.
struct Person {
    program: PathBuf,
    home: PathBuf,
    folder: PathBuf,
    url: String,
    key: String,
}

impl Person {
    /// Runs `opencode run --attach` with these further words and this standard input.
    async fn run(&self, words: &[&str], input: Option<&str>) -> Result<Ended> {
        let args = [&["run", "--attach", &self.url][..], words].concat();
        self.call(&args, Some(&self.key), input).await
    }

    async fn call(&self, args: &[&str], key: Option<&str>, input: Option<&str>) -> Result<Ended> {
        let mut command = Command::new(&self.program);
        command.args(args).env_clear().current_dir(&self.folder).kill_on_drop(true);
        command.env("PATH", "/usr/bin:/bin").env("HOME", &self.home);
        command.envs(key.map(|key| ("OPENCODE_SERVER_PASSWORD", key)));
        for kind in ["CONFIG", "DATA", "STATE", "CACHE"] {
            command.env(format!("XDG_{kind}_HOME"), self.home.join(kind));
        }
        for what in ["AUTOUPDATE", "MODELS_FETCH", "DEFAULT_PLUGINS", "LSP_DOWNLOAD"] {
            command.env(format!("OPENCODE_DISABLE_{what}"), "1");
        }
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
            pipe.write_all(input.as_bytes()).await?;
        }
        let output = timeout(LIMIT, child.wait_with_output()).await;
        let output = output.with_context(|| format!("the client does not end: {args:?}"))??;
        let [out, err] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(Ended { code: output.status.code(), out, err })
    }

    /// Runs to a good end, and returns what the person reads.
    async fn reads(&self, words: &[&str]) -> Result<String> {
        let ended = self.run(words, None).await?;
        ensure!(ended.code == Some(0), "{words:?}: {ended:?}");
        Ok(format!("{}{}", ended.out, ended.err))
    }

    /// Runs, and expects this sentence and a bad end.
    async fn is_refused(&self, words: &[&str], sentence: &str) -> Result<()> {
        let ended = self.run(words, None).await?;
        let said = format!("{}{}", ended.out, ended.err);
        ensure!(ended.code != Some(0) && said.contains(sentence), "{words:?}: {ended:?}");
        Ok(())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> Result<()> {
        Ok(fs::write(self.folder.join(name), content)?)
    }
}

/// Returns the long options that the client's help lists.
fn listed(help: &str) -> BTreeSet<String> {
    let long = |line: &str| {
        let line = line.trim_start();
        let start = line.starts_with('-').then(|| line.find("--")).flatten()?;
        let name = line.get(start + 2..)?.split_whitespace().next()?;
        Some(name.to_owned())
    };
    help.lines().filter_map(long).collect()
}

fn answer(matches: &str, text: &str) -> Script {
    Script { matches: matches.into(), text: Some(text.into()), ..Script::default() }
}

/// A service, its folder, and a person with the released client.
struct Service {
    world: World,
    up: Up,
    place: PathBuf,
    person: Person,
}

impl Service {
    async fn start() -> Result<Self> {
        executable()?; // report a missing executable first
        let program = released_client().await?;
        let world = World::new().await?;
        let place = world.workspace("place")?;
        let up = world.up_with(&["--directory", place.to_str().context("UTF-8")?]).await?;
        let (url, key) = (up.api().url().to_owned(), up.api().key().to_owned());
        let (home, folder) = (world.workspace("home")?, world.workspace("client")?);
        Ok(Self { world, up, place, person: Person { program, home, folder, url, key } })
    }

    async fn end(self) -> Result<()> {
        oracle(self.up.api(), self.world.model()).await?;
        self.up.stop(&self.world).await
    }
}

#[tokio::test]
async fn the_options_of_the_released_run_are_these_and_work() -> Result<()> {
    let service = Service::start().await?;
    let help = service.person.call(&["run", "--help"], None, None).await?;
    let known = OPTIONS.iter().map(|name| (*name).to_owned()).collect();
    let listed = listed(&format!("{}{}", help.out, help.err));
    ensure!(listed == known, "the release has other options: {listed:?}");
    messages(&service.person).await?;
    service.end().await
}

#[tokio::test]
async fn the_released_run_continues_forks_names_and_shares() -> Result<()> {
    let service = Service::start().await?;
    sessions(&service.person, service.up.api()).await?;
    service.end().await
}

#[tokio::test]
async fn the_released_run_chooses_models_agents_keys_and_places() -> Result<()> {
    let service = Service::start().await?;
    choices(&service.person, &service.world, service.up.api()).await?;
    connection(&service.person, &service.place).await?;
    service.end().await
}

#[tokio::test]
async fn the_released_run_attaches_text_files() -> Result<()> {
    let service = Service::start().await?;
    files(&service.person, &service.world).await?;
    service.end().await
}

/// Words, standard input, formats and what only the client does.
async fn messages(person: &Person) -> Result<()> {
    for words in [&["say 2 words"][..], &["say", "2", "words"]] {
        ensure!(person.reads(words).await?.contains("w0 w1"), "{words:?}");
    }
    // A number after `--` ends the release itself.
    let listed = person.reads(&["--", "list", "the", "files"]).await?;
    ensure!(listed.contains("Done"), "{listed}");
    let piped = person.run(&[], Some("say 3 words")).await?;
    ensure!(piped.code == Some(0) && piped.out.contains("w0 w1 w2"), "{piped:?}");
    let both = person.run(&["read this:"], Some("say 3 words")).await?;
    ensure!(both.code == Some(0) && !both.out.trim().is_empty(), "{both:?}");
    person.is_refused(&[], "must provide a message").await?;

    let events = person.run(&["--format", "json", "say 2 words"], None).await?.json_lines()?;
    let text = events.iter().find(|event| event["type"] == "text").context("a text")?;
    ensure!(text["part"]["text"] == "w0 w1", "{text}");
    let default = person.reads(&["--format", "default", "say 2 words"]).await?;
    ensure!(default.contains("w0 w1"), "{default}");
    let version = person.reads(&["--version"]).await?;
    ensure!(version.contains("1."), "{version}");
    for flags in [&["--pure"][..], &["--print-logs", "--log-level", "ERROR"], &["--auto"]] {
        let words = [flags, &["say 2 words"]].concat();
        ensure!(person.reads(&words).await?.contains("w0 w1"), "{flags:?}");
    }
    // Without a terminal, this is a run like any other.
    ensure!(
        person.reads(&["--interactive", "say 2 words"]).await?.contains("w0 w1"),
        "interactive"
    );
    ensure!(person.reads(&["--command", "init"]).await?.contains("simulated model"), "init");
    let sentence = "there is no command `none` in this project";
    person.is_refused(&["--command", "none", "some words"], sentence).await
}

/// Titles, the session before, a certain one, forks and sharing.
async fn sessions(person: &Person, api: &Api) -> Result<()> {
    let newest = async || -> Result<Value> {
        let mut sessions = api.sessions().await?;
        sessions.sort_by_key(|session| session["id"].as_str().map(str::to_owned));
        sessions.into_iter().next().context("a session")
    };
    person.reads(&["--title", "a title of my own", "say 2 words"]).await?;
    let titled = newest().await?;
    ensure!(titled["title"] == "a title of my own", "{titled}");
    let id = titled["id"].as_str().context("an id")?;
    let count = api.sessions().await?.len();
    for words in [&["--continue", "say 3 words"][..], &["--session", id, "say 4 words"]] {
        person.reads(words).await?;
        ensure!(api.sessions().await?.len() == count, "{words:?} made another session");
    }
    let prompts = async |id: &str| {
        let log = api.log(id).await?;
        anyhow::Ok(log.iter().filter(|event| event["type"] == "prompt.promoted").count())
    };
    ensure!(prompts(id).await? == 3, "{:?}", api.log(id).await?);
    for words in
        [&["--continue", "--fork", "say 5 words"][..], &["-s", id, "--fork", "say 5 words"]]
    {
        ensure!(person.reads(words).await?.contains("w4"), "{words:?}");
    }
    ensure!(api.sessions().await?.len() == count + 2, "two forks");
    person.is_refused(&["--session", "ses_none", "say 1 words"], "Session not found").await?;
    person.is_refused(&["--fork", "say 1 words"], "--fork requires").await?;
    let shared = person.reads(&["--share", "say 2 words"]).await?;
    ensure!(shared.contains("w0 w1"), "{shared}");
    ensure!(shared.contains("sessions are not published"), "sharing fails silently: {shared}");
    Ok(())
}

/// Models, variants, agents and thinking.
async fn choices(person: &Person, world: &World, api: &Api) -> Result<()> {
    let config = api.get("/config").await?.ok()?;
    let model = config["model"].as_str().context("a model")?;
    let answered = person.reads(&["--model", model, "say 2 words"]).await?;
    ensure!(answered.contains("w0 w1"), "{answered}");
    person.is_refused(&["-m", "nobody/none", "say 1 words"], "no provider `nobody`").await?;
    person.is_refused(&["--variant", "high", "say 1 words"], "has no variant `high`").await?;
    let plan = person.reads(&["--agent", "plan", "say 2 words"]).await?;
    ensure!(plan.contains("plan · ") && plan.contains("w0 w1"), "{plan}");
    let other = person.reads(&["--agent", "none", "say 2 words"]).await?;
    ensure!(other.contains("agent \"none\" not found") && other.contains("w0 w1"), "{other}");
    let thinks = Script {
        reasoning: Some("first this, then that".into()),
        ..answer("think about it", "thought")
    };
    world.model().script(thinks)?;
    let thought = person.reads(&["--thinking", "think about it"]).await?;
    ensure!(thought.contains("Thinking: first this, then that"), "{thought}");
    let silent = person.reads(&["think about it"]).await?;
    ensure!(silent.contains("thought") && !silent.contains("Thinking"), "{silent}");
    Ok(())
}

/// Keys, directories and the port, which is of a server that the client starts itself.
async fn connection(person: &Person, place: &Path) -> Result<()> {
    let args = ["run", "--attach", &person.url, "--password", &person.key, "say 2 words"];
    let ended = person.call(&args, None, None).await?;
    ensure!(ended.code == Some(0) && ended.out.contains("w0 w1"), "{ended:?}");
    let args = ["run", "--attach", &person.url, "say 2 words"];
    for key in [None, Some("not-a-key")] {
        let ended = person.call(&args, key, None).await?;
        let said = format!("{}{}", ended.out, ended.err);
        ensure!(ended.code != Some(0) && said.contains("Session not found"), "{ended:?}");
    }
    for flags in [["--username", "anybody"], ["--port", "1"]] {
        let words = [&flags[..], &["say 2 words"]].concat();
        ensure!(person.reads(&words).await?.contains("w0 w1"), "{flags:?}");
    }
    let below = place.join("below");
    fs::create_dir_all(&below)?;
    let below = below.to_str().context("UTF-8")?;
    let shown = person.reads(&["--dir", below, "run `pwd`"]).await?;
    ensure!(shown.contains(below), "{shown}");
    // The client has one sentence for every session that it cannot create.
    person.is_refused(&["--dir", "/no/such/place", "say 1 words"], "Session not found").await
}

/// Files: the model reads text, and a person reads why something else was not sent.
async fn files(person: &Person, world: &World) -> Result<()> {
    person.file("note.txt", "the word is kumquat\n")?;
    person.file("data.json", r#"{"fruit":"durian"}"#)?;
    person.file("main.rs", "fn rambutan() {}\n")?;
    for word in ["kumquat", "durian", "rambutan"] {
        world.model().script(answer(word, &format!("I read {word}")))?;
    }
    for (name, word) in [("note.txt", "kumquat"), ("data.json", "durian"), ("main.rs", "rambutan")]
    {
        let read = person.reads(&["look at it", "--file", name]).await?;
        ensure!(read.contains(&format!("I read {word}")), "{name}: {read}");
    }
    world.model().script(answer("durian\"}\n</file>", "I read both"))?;
    let words = ["look at both", "-f", "note.txt", "-f", "data.json"];
    ensure!(person.reads(&words).await?.contains("I read "), "two files");

    person.file("picture.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")?;
    person.file("bytes.bin", [0xff, 0, 0xfe, 1].repeat(64))?;
    person.file("large.txt", "x".repeat(300 * 1024))?;
    let instead = "put the file into the workspace and name its path in the prompt";
    for (name, says) in [
        ("picture.png", "`picture.png` (image/png) is no text"),
        ("bytes.bin", "`bytes.bin`"),
        ("large.txt", "`large.txt` has more than 262144 bytes"),
    ] {
        person.is_refused(&["look at it", "-f", name], says).await?;
        person.is_refused(&["look at it", "-f", name], instead).await?;
    }
    // Larger than any request.
    person.file("huge.txt", "x".repeat(3 * 1024 * 1024))?;
    person.is_refused(&["look at it", "-f", "huge.txt"], "at most").await?;
    person.is_refused(&["look at it", "-f", "none.txt"], "File not found").await?;
    person.is_refused(&["look at it", "-f", "."], "Cannot attach local directory").await
}
