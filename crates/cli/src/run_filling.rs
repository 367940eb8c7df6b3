//! The lines that `run --repo` and `run --here` say while the service makes the workspace.

use std::collections::BTreeSet;

use client::RepositoryView;

/// The lines that were said.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    said: BTreeSet<String>,
    /// The reason why it is tried again.
    reason: Option<String>,
    /// Whether the last that was seen is that reason, not another try.
    is_failed: bool,
    tries: u32,
}

/// A line about a workspace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Something new.
    Step(String),
    /// The same reason once more, with the number of tries that it has ended.
    Again {
        /// The whole line.
        line: String,
        /// The tries so far.
        tries: u32,
    },
}

/// Bytes between two lines of a fetch.
const STEP: i64 = 10_000_000;

impl Filling {
    /// Returns a line if it says something new. A try that goes like the one before says only how often it was tried.
    pub(crate) fn line(&mut self, repository: &RepositoryView) -> Option<Told> {
        let line = text(repository)?;
        let is_failure = repository.fault.is_some();
        if !is_failure {
            self.is_failed = false;
            return self.said.insert(line.clone()).then_some(Told::Step(line));
        }
        if std::mem::replace(&mut self.is_failed, true) {
            return None;
        }
        if self.reason.as_ref() != Some(&line) {
            self.tries = 1;
            self.reason = Some(line.clone());
            return Some(Told::Step(line));
        }
        self.tries += 1;
        let tries = self.tries;
        Some(Told::Again { line: format!("{line} ({tries} tries so far)"), tries })
    }
}

/// Returns the option with which a service trusts the issuer of a certificate, if a reason is about one. To wait does not
/// help then.
fn advise_on(message: &str) -> &'static str {
    let message = message.to_lowercase();
    let is_about_one =
        ["certificate", "unknownissuer", "unknown issuer", "self-signed", "self signed"];
    if is_about_one.iter().any(|words| message.contains(words)) {
        "; the service does not trust this certificate, and waiting will not change that: start it with --egress-ca FILE, \
         the certificate of its issuer in PEM (Ctrl-C ends this run)"
    } else {
        ""
    }
}

fn text(repository: &RepositoryView) -> Option<String> {
    let RepositoryView { url, commit, branch, state, stage, bytes, fault } = repository;
    if let Some(client::FaultView { code, message }) = fault {
        // A try that is repeated is no failure yet; the last one is the outcome, which is told too.
        return (code == "later").then(|| format!("waiting: {message}{}", advise_on(message)));
    }
    let short = |commit: &String| commit.chars().take(12).collect::<String>();
    let at = commit.as_ref().map(|commit| format!(" at {}", short(commit))).unwrap_or_default();
    match (state.as_str(), stage.as_deref()) {
        ("filling", Some("fetching")) if *bytes >= STEP => {
            Some(format!("fetching {url}{at}: {} MB", bytes / STEP * 10))
        }
        ("filling", Some(stage)) => Some(format!("{stage} {url}{at}")),
        ("filled", _) => {
            let name = branch.as_deref().and_then(|name| name.strip_prefix("refs/heads/"));
            let on = name.map(|name| format!(", on branch {name}")).unwrap_or_default();
            Some(format!("checked out {url}{at}{on}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use client::FaultView;

    use super::*;

    #[test]
    fn each_step_of_a_clone_is_said_once() {
        let mut view = RepositoryView {
            url: "https://h.org/r".into(),
            commit: None,
            branch: Some("refs/heads/main".into()),
            state: "filling".into(),
            stage: Some("resolving".into()),
            bytes: 0,
            fault: None,
        };
        let mut filling = Filling::default();
        let step = |line: &str| Some(Told::Step(line.to_owned()));
        assert_eq!(filling.line(&view), step("resolving https://h.org/r"));
        assert_eq!(filling.line(&view), None);
        (view.commit, view.stage, view.bytes) =
            (Some("a".repeat(40)), Some("fetching".into()), 25_000_000);
        assert_eq!(filling.line(&view), step("fetching https://h.org/r at aaaaaaaaaaaa: 20 MB"));
        view.bytes += 1;
        assert_eq!(filling.line(&view), None);
        (view.state, view.stage) = ("filled".into(), None);
        assert_eq!(
            filling.line(&view),
            step("checked out https://h.org/r at aaaaaaaaaaaa, on branch main")
        );
        view.fault = Some(FaultView { code: "later".into(), message: "no answer".into() });
        assert_eq!(filling.line(&view), step("waiting: no answer"));
        view.fault = Some(FaultView { code: "denied".into(), message: "private".into() });
        assert_eq!(filling.line(&view), None, "the outcome says it");
    }

    // Finding trial-3 23: the same two lines came again for each try, for more than a minute, without a number.
    #[test]
    fn tries_that_fail_alike_are_counted_in_one_line() {
        let mut view = RepositoryView {
            url: "https://h.org/r".into(),
            commit: None,
            branch: None,
            state: "filling".into(),
            stage: None,
            bytes: 0,
            fault: None,
        };
        let mut filling = Filling::default();
        let mut told = Vec::new();
        for _ in 0..3 {
            (view.stage, view.fault) = (Some("resolving".into()), None);
            told.extend(filling.line(&view));
            let message = "resolving https://h.org/r: h.org cannot be reached".to_owned();
            view.fault = Some(FaultView { code: "later".into(), message });
            told.extend(filling.line(&view));
            told.extend(filling.line(&view)); // it is asked for more often than it is tried
        }
        let reason = "waiting: resolving https://h.org/r: h.org cannot be reached";
        let again = |tries| Told::Again { line: format!("{reason} ({tries} tries so far)"), tries };
        let first = ["resolving https://h.org/r", reason].map(|line| Told::Step(line.to_owned()));
        let [step, failure] = first;
        assert_eq!(told, [step, failure, again(2), again(3)]);
        view.fault = Some(FaultView { code: "later".into(), message: "another reason".into() });
        filling.is_failed = false;
        assert_eq!(filling.line(&view), Some(Told::Step("waiting: another reason".into())));
        for said in ["invalid peer certificate: UnknownIssuer", "a self-signed certificate"] {
            filling.is_failed = false;
            view.fault = Some(FaultView { code: "later".into(), message: said.into() });
            let line = format!("{:?}", filling.line(&view));
            assert!(line.contains("--egress-ca FILE"), "{line}");
        }
    }
}
