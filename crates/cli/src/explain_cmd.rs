//! `opencode-cloud explain`: a request to a model, rebuilt from rows.

use std::fmt::Write as _;

use client::{Client, ClientOptions, ExplainView, RequestId, parsed};

use crate::CliError;
use crate::output::Screen;
use crate::render::printable;

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// A turn (meaning its last attempt) or an attempt
    #[arg(value_name = "TURN|ATTEMPT")]
    pub id: RequestId,
    /// Write exactly the body that was sent; fails when it cannot be proved by its hash
    #[arg(long, conflicts_with = "json")]
    pub body: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The service.
    #[command(flatten)]
    pub client: ClientOptions,
}

/// Runs the subcommand and returns its exit code: 1 if the body cannot be rebuilt byte for byte.
///
/// # Errors
/// [`CliError`].
pub(crate) async fn execute(args: ExplainArgs, screen: &mut Screen) -> Result<u8, CliError> {
    let client = Client::new(&args.client)?;
    if args.body {
        let body = client.explain_body(&args.id).await?;
        screen.out.write(&body)?;
        return Ok(0);
    }
    let answer = client.explain_json(&args.id).await?;
    let view: ExplainView = parsed(&answer, "explain")?;
    if args.json {
        screen.out.line(&answer.to_string())?;
    } else {
        screen.out.prose(&explained(&view))?;
    }
    Ok(if view.matches { 0 } else { 1 })
}

fn explained(view: &ExplainView) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let value = printable::line(value, 1_000);
        writeln!(text, "{name:<12} {value}").expect("writing to a string cannot fail");
    };
    let outcome = view.outcome.as_deref().unwrap_or("no outcome yet");
    line("session", view.session.as_str());
    line("turn", view.turn.as_str());
    line("attempt", &format!("{} (try {}, {outcome})", view.attempt, view.ordinal));
    if let Some(model) = &view.model {
        let variant = view.variant.as_ref().map_or(String::new(), |name| format!(" ({name})"));
        line("model", &format!("{model}{variant}"));
    }
    line("epoch", &view.epoch.to_string());
    line("history", &format!("events 1 to {}", view.through));
    line("encoder", &format!("wire version {}", view.wire_version));
    line("sent", &format!("sha256 {}", view.body_hash));
    let rebuilt = view.rebuilt_hash.as_ref().map(|hash| format!("sha256 {hash}"));
    line("rebuilt", rebuilt.as_deref().unwrap_or("not possible"));
    let verdict = match (view.matches, &view.problem) {
        (true, _) => "match: these are the bytes that were sent".to_owned(),
        (false, Some(problem)) => format!("does not match: {problem}"),
        (false, None) => "does not match".to_owned(),
    };
    line("verdict", &verdict);
    if let Some(price) = &view.price {
        let cost = price.cost.map_or("not counted yet".to_owned(), |cost| format!("{cost:.6} USD"));
        let (estimate, version) = (price.estimate, &price.version);
        line("cost", &format!("{cost}; at most {estimate:.6} USD expected, by {version}"));
    }
    for (name, hash) in &view.components {
        line("component", &format!("{name:<16} {hash}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(matches: bool) -> ExplainView {
        let answer = json!({
            "attempt": "att_1", "turn": "trn_1", "session": "ses_1", "ordinal": 2, "outcome": "completed",
            "bodyHash": "aa", "rebuiltHash": if matches { "aa" } else { "bb" }, "match": matches,
            "wireVersion": 1, "epoch": 1, "through": 7, "components": {"agent": "cc", "tools": "dd"},
            "model": "p/m", "variant": "high",
            "price": {"version": "models.dev:ab", "estimate": 0.5, "cost": 0.25},
        });
        parsed(&answer, "explain").expect("a view")
    }

    #[test]
    fn it_says_whether_the_rebuilt_body_is_the_one_that_was_sent() {
        let text = explained(&view(true));
        assert!(text.contains("attempt      att_1 (try 2, completed)\n"), "{text}");
        assert!(text.contains("verdict      match"), "{text}");
        assert!(text.contains("component    agent cc\n"), "{text}");
        assert!(text.contains("model        p/m (high)\n"), "{text}");
        let cost = "cost         0.250000 USD; at most 0.500000 USD expected, by models.dev:ab\n";
        assert!(text.contains(cost), "{text}");
        assert!(explained(&view(false)).contains("verdict      does not match\n"));
        let unbuilt = ExplainView {
            rebuilt_hash: None,
            problem: Some("encoder changed".into()),
            ..view(false)
        };
        let text = explained(&unbuilt);
        assert!(text.contains("rebuilt      not possible\n"), "{text}");
        assert!(text.contains("does not match: encoder changed\n"), "{text}");
    }
}
