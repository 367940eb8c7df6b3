//! The last lines of `run`.

use std::io;

use crate::output::Screen;
use crate::run::RunReport;

/// The end of a run.
pub(crate) struct RunEnd<'a> {
    pub(crate) report: &'a RunReport,
    pub(crate) is_json: bool,
    /// Whether its session was removed, because nothing had run in it.
    pub(crate) is_removed: bool,
    /// Whether its prompt waits in the session's inbox, since it was not started.
    pub(crate) is_waiting: bool,
    /// Whether it worked in a repository that is not the person's own folder.
    pub(crate) has_repository: bool,
    /// Whether that repository is a copy of the one here.
    pub(crate) is_here: bool,
    /// Whether the session goes on with another model alone.
    pub(crate) needs_model: bool,
}

impl RunEnd<'_> {
    /// Says how to go on: here, with the work at home, or in the browser.
    pub(crate) fn tell(&self, program: &str, screen: &mut Screen) -> io::Result<()> {
        let session = &self.report.session;
        if self.is_waiting {
            screen.err.say(&format!(
                "the prompt was not started; it stays in session {session} and joins its next work"
            ))?;
        }
        if self.is_json {
            let line = serde_json::to_string(self.report).expect("ids and words serialise");
            return screen.out.line(&line);
        }
        if self.needs_model {
            screen.err.say(&format!("list the models: {program} models"))?;
        }
        if self.is_removed {
            screen.err.say(&format!("session {session} was removed: nothing had run in it"))?;
        } else {
            for line in self.lines(program) {
                screen.err.say(&line)?;
            }
        }
        if !self.report.refused.is_empty() {
            let refused = self.report.refused.join("; ");
            screen.err.say(&format!(
                "refused, since nobody could answer here: {refused}. `--ask allow` lets such calls run, `--ask wait` waits"
            ))?;
        }
        Ok(())
    }

    fn lines(&self, program: &str) -> Vec<String> {
        let session = &self.report.session;
        let model = if self.needs_model { " --model PROVIDER/MODEL" } else { "" };
        let mut lines = vec![format!("continue: {program} run --session {session}{model} \"…\"")];
        if self.has_repository {
            let way = if self.is_here { "--apply" } else { "--branch NAME" };
            lines.push(format!("get its work: {program} session pull {session} {way}"));
            lines.push(format!("in the browser: {program} open {session}"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_state::RunOutcome;

    fn make_report() -> RunReport {
        RunReport {
            session: "ses_1".parse().expect("an id"),
            turns: Vec::new(),
            outcome: RunOutcome::Completed,
            refused: Vec::new(),
        }
    }

    fn make_end(report: &RunReport) -> RunEnd<'_> {
        RunEnd {
            report,
            is_json: false,
            is_removed: false,
            is_waiting: false,
            has_repository: false,
            is_here: false,
            needs_model: false,
        }
    }

    // Finding trial-3 21: nothing said how the work of a clone comes home, or where it is in the browser.
    #[test]
    fn a_run_in_a_clone_says_three_ways_on() {
        let report = make_report();
        let lines = |has_repository, is_here| {
            RunEnd { has_repository, is_here, ..make_end(&report) }.lines("oc")
        };
        let continues = "continue: oc run --session ses_1 \"…\"";
        assert_eq!(lines(false, false), [continues]);
        let browser = "in the browser: oc open ses_1";
        let pulls = "get its work: oc session pull ses_1 --branch NAME";
        assert_eq!(lines(true, false), [continues, pulls, browser]);
        let pulls = "get its work: oc session pull ses_1 --apply";
        assert_eq!(lines(true, true), [continues, pulls, browser]);
    }

    // A newcomer's session failed again and again with the command that was to continue it.
    #[test]
    fn an_unknown_model_is_replaced_to_continue() {
        let report = make_report();
        let end = RunEnd { needs_model: true, ..make_end(&report) };
        let continues = "continue: oc run --session ses_1 --model PROVIDER/MODEL \"…\"";
        assert_eq!(end.lines("oc"), [continues]);
    }
}
