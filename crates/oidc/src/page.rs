//! The page that a browser comes back to.

use url::Url;

const MAX_BYTES: usize = 1024;

/// Returns the path, query and fragment of one of our own pages, or `None` for every other text. `first` lists the
/// first segments of the console's pages; `""` is the page `/`.
///
/// The text is read as a browser reads it, against an address of ours: backslashes, tabs, `//host` and encoded dots
/// cannot lead elsewhere.
#[must_use]
pub fn own_page(text: &str, first: &[&str]) -> Option<String> {
    if text.len() > MAX_BYTES
        || !text.starts_with('/')
        || text.contains(['\\', '\t', '\n', '\r', '\0'])
    {
        return None;
    }
    let ours = Url::parse("https://ours.invalid/").ok()?;
    let url = ours.join(text).ok()?;
    if url.origin() != ours.origin() || !url.username().is_empty() || url.password().is_some() {
        return None;
    }
    let segment = url.path_segments()?.next().unwrap_or_default().to_owned();
    if url.path().starts_with("//") || !first.contains(&segment.as_str()) {
        return None;
    }
    let mut page = url.path().to_owned();
    if let Some(query) = url.query() {
        page.push('?');
        page.push_str(query);
    }
    if let Some(fragment) = url.fragment() {
        page.push('#');
        page.push_str(fragment);
    }
    Some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: [&str; 2] = ["", "o"];

    // Attack 10.
    #[test]
    fn only_an_own_page_is_returned_to() {
        let page = |text: &str| own_page(text, &PAGES);
        for own in ["/", "/o/org_1/sessions", "/o/org_1/session/ses_1?tab=files#end", "/?a=b"] {
            assert_eq!(page(own).as_deref(), Some(own));
        }
        let long = format!("/o/{}", "x".repeat(2000));
        for foreign in [
            "",
            "o/org",
            "//evil.example",
            "//evil.example/o/x",
            "/\\evil.example",
            "\\\\evil.example",
            "/\t/evil.example",
            "/o/..//evil.example",
            "/o/%2e%2e//evil.example",
            "https://evil.example/o/x",
            "https:evil.example",
            "javascript:alert(1)",
            "/%2fevil.example",
            "/platform/sso",
            "/auth/callback/idp_1",
            "/login?error=x",
            "///evil.example",
            "/o\r\nset-cookie: a=b",
            &long,
        ] {
            assert_eq!(page(foreign), None, "{foreign:?}");
        }
        // A path that leaves the console's pages is judged where it ends.
        assert_eq!(page("/o/../platform/me"), None);
    }
}
