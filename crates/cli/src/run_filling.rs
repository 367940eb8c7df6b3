//! The lines that `run --repo` and `run --here` say while the service makes the workspace.

use client::RepositoryView;

/// The lines that were said.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    last: Option<String>,
}

/// Bytes between two lines of a fetch.
const STEP: i64 = 10_000_000;

impl Filling {
    /// Returns a line if it says something new.
    pub(crate) fn line(&mut self, repository: &RepositoryView) -> Option<String> {
        let line = text(repository)?;
        if self.last.as_ref() == Some(&line) {
            return None;
        }
        self.last = Some(line.clone());
        Some(line)
    }
}

fn text(repository: &RepositoryView) -> Option<String> {
    let RepositoryView { url, commit, branch, state, stage, bytes, fault } = repository;
    if let Some(client::FaultView { code, message }) = fault {
        // A try that is repeated is no failure yet; the last one is the outcome, which is told too.
        return (code == "later").then(|| format!("waiting: {message}"));
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
        assert_eq!(filling.line(&view).as_deref(), Some("resolving https://h.org/r"));
        assert_eq!(filling.line(&view), None);
        (view.commit, view.stage, view.bytes) =
            (Some("a".repeat(40)), Some("fetching".into()), 25_000_000);
        assert_eq!(
            filling.line(&view).as_deref(),
            Some("fetching https://h.org/r at aaaaaaaaaaaa: 20 MB")
        );
        view.bytes += 1;
        assert_eq!(filling.line(&view), None);
        (view.state, view.stage) = ("filled".into(), None);
        let line = filling.line(&view);
        assert_eq!(
            line.as_deref(),
            Some("checked out https://h.org/r at aaaaaaaaaaaa, on branch main")
        );
        view.fault = Some(FaultView { code: "later".into(), message: "no answer".into() });
        assert_eq!(filling.line(&view).as_deref(), Some("waiting: no answer"));
        view.fault = Some(FaultView { code: "denied".into(), message: "private".into() });
        assert_eq!(filling.line(&view), None, "the outcome says it");
    }
}
