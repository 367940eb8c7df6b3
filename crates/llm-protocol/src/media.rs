//! Media in the forms that protocols want.

use std::borrow::Cow;

/// Returns whether the data is a URL for the provider to fetch, rather than base64.
pub(crate) fn is_url(data: &str) -> bool {
    data.starts_with("https://") || data.starts_with("http://")
}

/// Returns a `data:` URL with the data, or the URL that the data already is.
pub(crate) fn data_url<'a>(mime: &str, data: &'a str) -> Cow<'a, str> {
    if is_url(data) { Cow::Borrowed(data) } else { format!("data:{mime};base64,{data}").into() }
}

/// The text that the model reads in place of media that cannot be sent.
pub(crate) fn not_shown(mime: &str) -> String {
    format!("[{mime} is not shown: this model cannot take it here]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_becomes_a_url_and_a_url_stays() {
        assert_eq!(data_url("image/png", "AA=="), "data:image/png;base64,AA==");
        assert_eq!(data_url("image/png", "https://h/a.png"), "https://h/a.png");
    }
}
