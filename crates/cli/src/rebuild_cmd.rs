//! `opencode-cloud rebuild` and `opencode-cloud check`: compare the projections with the log, and check the
//! invariants.

use client::{
    Client, ClientOptions, RebuildView, SessionView, SessionsQuery, ViolationView, parsed,
};
use domain::SessionId;

use crate::CliError;
use crate::output::{Output, Screen};
use crate::render::printable;
use crate::session_name::find_session;

/// The most sessions that the service lists at once.
const MOST_SESSIONS: u32 = 1_000;

/// Arguments of `rebuild`.
#[derive(Debug, clap::Args)]
pub struct RebuildArgs {
    /// Only compare, and change nothing
    #[arg(long)]
    pub check: bool,
    /// This session
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    pub session: Option<SessionId>,
    /// The organisation's sessions (the newest 1000); what --check does unless --session is given
    #[arg(long)]
    pub all: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Also what must hold only while nothing runs
    #[arg(long)]
    pub settled: bool,
    /// Also whether every blob that a row names is there
    #[arg(long)]
    pub blobs: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// Runs `rebuild` and returns its exit code: 1 if a projection differed from its events.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: RebuildArgs, screen: &mut Screen) -> Result<u8, CliError> {
    if !(args.check || args.all || args.session.is_some()) {
        let usage = "what is to be rebuilt? --session ID or --all; or --check to compare only";
        return Err(CliError::Usage(usage.to_owned()));
    }
    let client = Client::new(&args.client)?;
    let sessions = match args.session {
        Some(session) => vec![find_session(&client, Some(&session)).await?],
        None => newest(&client, &mut screen.err).await?,
    };
    let mut differing = 0_usize;
    let mut events = 0;
    for session in &sessions {
        let view = client.rebuild(session, args.check).await?;
        events += view.events;
        if !view.exact {
            differing += 1;
            screen.out.prose(&differences(&view))?;
        }
    }
    let count = sessions.len();
    let told = match (differing, args.check) {
        (0, true) => format!("{count} sessions, {events} events: every projection is exact"),
        (0, false) => format!("{count} sessions, {events} events: rebuilt, nothing differed"),
        (_, true) => {
            format!("{differing} of {count} sessions differ; `rebuild --all` repairs them")
        }
        (_, false) => format!("{differing} of {count} sessions differed and are repaired"),
    };
    screen.out.say(&told)?;
    Ok(u8::from(differing > 0))
}

/// Runs `check` and returns its exit code: 1 if an invariant is broken.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn check(args: CheckArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let violations = Client::new(&args.client)?.check(args.settled, args.blobs).await?;
    for ViolationView { invariant, session, found } in &violations {
        let line = printable::line(&format!("{invariant} {session}: {found}"), 1_000);
        screen.out.say(&line)?;
    }
    let told = match violations.len() {
        0 => "no violation found".to_owned(),
        1 => "1 violation".to_owned(),
        count => format!("{count} violations"),
    };
    screen.out.say(&told)?;
    Ok(u8::from(!violations.is_empty()))
}

async fn newest(client: &Client, err: &mut Output) -> Result<Vec<SessionId>, CliError> {
    let answer = client
        .sessions_json(&SessionsQuery { archived: true, ..SessionsQuery::newest(MOST_SESSIONS) })
        .await?;
    let sessions: Vec<SessionView> = parsed(&answer, "the list of sessions")?;
    if sessions.len() >= MOST_SESSIONS as usize {
        err.say(&format!(
            "only the newest {MOST_SESSIONS} sessions; name older ones with --session"
        ))?;
    }
    Ok(sessions.into_iter().map(|session| session.id).collect())
}

fn differences(view: &RebuildView) -> String {
    let mut text = format!("{}: differs\n", view.session);
    let sides = [
        ("is there, should not be", &view.missing),
        ("should be there", &view.added),
        ("is not as its events were shown", &view.differing),
    ];
    for (what, rows) in sides {
        for row in rows {
            text.push_str(&format!("  {what}: {}\n", printable::line(row, 300)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_both_sides() {
        let view = RebuildView {
            session: "ses_1".parse().expect("an id"),
            exact: false,
            events: 3,
            missing: vec!["message: (a)".into()],
            added: vec!["message: (b)".into()],
            differing: vec!["msg_1".into()],
        };
        assert_eq!(
            differences(&view),
            "ses_1: differs\n  is there, should not be: message: (a)\n  should be there: message: (b)\n  \
             is not as its events were shown: msg_1\n"
        );
    }
}
