//! The texts of an address that rules are compared with. Looks at the text only.

use url::Url;

/// Returns the names of a page in their normal form, and the other texts of addresses that lead there: as it was given,
/// without its fragment, and by `https`, to which the tool goes on.
pub(super) fn list_forms(given: &str) -> (Vec<String>, Vec<String>) {
    let Ok(parsed) = Url::parse(given) else { return (vec![given.to_owned()], Vec::new()) };
    let mut url = parsed.clone();
    // The tool refuses an address with a name or a password: no rule takes them for a part of the host.
    let _has_no_name = url.set_username("");
    let _has_no_password = url.set_password(None);
    let names = list_spellings(&url);
    let mut pages = vec![url.clone()];
    let mut secure = url;
    if secure.scheme() == "http" && secure.set_scheme("https").is_ok() {
        pages.push(secure);
    }
    let mut guises = vec![given.to_owned(), parsed.to_string()];
    for mut page in pages {
        page.set_fragment(None);
        guises.push(page.to_string());
        let host = page.host_str().unwrap_or_default().to_owned();
        // A host with a dot at its end is the same.
        if page.set_host(Some(host.trim_end_matches('.'))).is_ok() {
            guises.push(page.to_string());
        }
    }
    guises.sort_unstable();
    guises.dedup();
    guises.retain(|guise| !names.contains(guise));
    (names, guises)
}

/// Returns an address, and the same without the slash that stands for the first page of a host.
fn list_spellings(url: &Url) -> Vec<String> {
    let text = url.to_string();
    let is_first = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let bare = is_first.then(|| text.trim_end_matches('/').to_owned());
    std::iter::once(text).chain(bare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding: report 30-b4 (woojubb/robota#2350).
    #[test]
    fn an_address_has_its_normal_form_and_all_others() {
        for (given, name) in [
            ("HTTPS://EVIL.example/x", "https://evil.example/x"),
            ("https://u@evil.example/x", "https://evil.example/x"),
            ("https://evil.example:443/x", "https://evil.example/x"),
            ("https://evil.tld\\@.a.example/x", "https://evil.tld/@.a.example/x"),
            ("no address", "no address"),
        ] {
            assert_eq!(list_forms(given).0, [name], "{given}");
        }
        let (names, guises) = list_forms("http://a.example");
        assert_eq!(names, ["http://a.example/", "http://a.example"]);
        assert_eq!(guises, ["https://a.example/"]);
        assert!(list_forms("https://a.example./x#y").1.contains(&"https://a.example/x".to_owned()));
    }
}
