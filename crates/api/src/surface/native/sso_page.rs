//! The page at the end of a test that began at a command line: claims, and what would happen. It needs no login, runs no
//! script and asks nobody.

use std::fmt::Write as _;

use crate::act::sso::Report;

/// The colours and sizes are the console's.
const STYLE: &str = "
:root { color-scheme: light dark; --back: light-dark(#f9f9fb, #17181d); --card: light-dark(#fff, #1e2026);
  --soft: light-dark(#f1f1f5, #282a31); --line: light-dark(#e3e3e8, #31333b); --text: light-dark(#1c1d24, #ececf0);
  --dim: light-dark(#5f616c, #a6a8b2); --good: light-dark(#146c3f, #6ad49b); --good-soft: light-dark(#e3f6ea, #17382a);
  --bad: light-dark(#b3261e, #ff8a80); --bad-soft: light-dark(#fdeceb, #462523); }
* { box-sizing: border-box; margin: 0; }
body { padding: 48px 16px; font: 14px/1.5 'Inter Variable', ui-sans-serif, system-ui, sans-serif; color: var(--text);
  background: var(--back); }
main { display: grid; gap: 16px; width: min(720px, 100%); margin: 0 auto; }
h1 { font-size: 20px; line-height: 1.3; letter-spacing: -0.018em; text-wrap: balance; }
h2 { font-size: 15px; letter-spacing: -0.012em; }
section { display: grid; gap: 12px; padding: 20px; background: var(--card); border: 1px solid var(--line);
  border-radius: 12px; }
p, dd, td { overflow-wrap: anywhere; }
.mark { justify-self: start; padding: 2px 10px; font-size: 12px; font-weight: 600; border-radius: 99px;
  color: var(--bad); background: var(--bad-soft); }
.good { color: var(--good); background: var(--good-soft); }
.dim { color: var(--dim); }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 6px 24px; font-size: 13px; }
dt { color: var(--dim); }
dd { margin: 0; }
code { padding: 1px 4px; font: 0.93em/1.5 'JetBrains Mono Variable', ui-monospace, monospace; background: var(--soft);
  border-radius: 4px; }
.claims { gap: 0; padding: 4px 0; background: var(--soft); border-radius: 8px; font: 12px/1.5 ui-monospace, monospace; }
.claims dt, .claims dd { padding: 5px 12px; }
@media (max-width: 520px) {
  body { padding: 24px 16px; }
  dl { grid-template-columns: minmax(0, 1fr); gap: 0 0; }
  dd { margin-bottom: 8px; }
  .claims dt { padding-bottom: 0; } .claims dd { padding-top: 0; }
}
";

/// Writes the page. `nonce` is the one of its content security policy.
pub(super) fn page(connection: &str, report: &Report, nonce: &str) -> String {
    let name = escaped(connection);
    let (title, mark) = match report.is_good {
        true => (format!("{name} works"), r#"<span class="mark good">Test succeeded</span>"#),
        false => (format!("{name} does not work yet"), r#"<span class="mark">Test failed</span>"#),
    };
    let heading = if report.is_good { "A real sign-in" } else { "The reason" };
    let mut page = format!(
        r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · OpenCode Cloud</title>
<style nonce="{nonce}">{STYLE}</style>
<main>
{mark}
<h1>{title}</h1>
<p class="dim">Nobody was logged in, and nobody has joined.</p>
<section><h2>{heading}</h2><p>{}</p></section>
"#,
        sentence(&report.message)
    );
    if report.is_good {
        page.push_str(&facts(report));
    }
    page.push_str("<p class=\"dim\">You can close this page.</p>\n</main>\n</html>\n");
    page
}

fn facts(report: &Report) -> String {
    let shown = |value: &Option<String>| value.as_deref().map_or("none".to_owned(), escaped);
    let mut facts = format!(
        "<section><h2>The person</h2><dl><dt>Subject</dt><dd>{}</dd><dt>Name</dt><dd>{}</dd><dt>E-mail</dt><dd>{}</dd>\
         <dt>Signed by</dt><dd>{}</dd><dt>Provider's clock</dt><dd>{}</dd></dl></section>\n\
         <section><h2>All claims</h2><dl class=\"claims\">",
        shown(&report.subject),
        shown(&report.name),
        shown(&report.email),
        shown(&report.algorithm),
        clock(report.clock_ms.unwrap_or_default())
    );
    for (name, value) in &report.claims {
        let value = value.as_str().map_or_else(|| escaped(&value.to_string()), escaped);
        // Writing to a text does not fail.
        let _ = write!(facts, "<dt>{}</dt><dd>{value}</dd>", escaped(name));
    }
    facts.push_str("</dl></section>\n");
    facts
}

/// Says how far the provider's clock is from ours.
fn clock(ahead_ms: i64) -> String {
    match ahead_ms.div_euclid(1_000) {
        -1..=1 => "as ours".to_owned(),
        seconds @ 2.. => format!("{seconds} s ahead of ours"),
        seconds => format!("{} s behind ours", -seconds),
    }
}

/// Writes a message as a sentence; what stands between backticks is code.
fn sentence(message: &str) -> String {
    let mut text = String::new();
    for (at, part) in message.split('`').enumerate() {
        let part = escaped(part);
        if at % 2 == 1 {
            let _ = write!(text, "<code>{part}</code>");
        } else if at == 0 {
            let mut letters = part.chars();
            text.extend(letters.next().into_iter().flat_map(char::to_uppercase));
            text.push_str(letters.as_str());
        } else {
            text.push_str(&part);
        }
    }
    if !message.ends_with(['.', '!', '?']) {
        text.push('.');
    }
    text
}

/// Writes a text so that it is only text in a page.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_cannot_become_a_part_of_the_page() {
        let evil = "<script>alert(1)</script>\"'&";
        let report = Report {
            is_good: true,
            message: format!("the group `{evil}` has this role"),
            subject: Some(evil.to_owned()),
            clock_ms: Some(-2_500),
            claims: json!({ evil: evil, "list": [evil] }).as_object().expect("claims").clone(),
            ..Report::default()
        };
        let page = page(evil, &report, "n-1");
        assert!(!page.contains("<script") && !page.contains("\"'&\""), "{page}");
        assert_eq!(page.matches("&lt;script&gt;alert(1)").count(), 7, "{page}");
        assert!(page.contains("3 s behind ours") && page.contains("The group <code>"), "{page}");
    }
}
