//! Media in the forms that protocols want.

use std::borrow::Cow;

/// Whether the provider is to fetch it; else the data is base64.
pub(crate) fn is_url(data: &str) -> bool {
    data.starts_with("https://") || data.starts_with("http://")
}

/// A URL that holds the data, or the one that it is.
pub(crate) fn data_url<'a>(mime: &str, data: &'a str) -> Cow<'a, str> {
    if is_url(data) { Cow::Borrowed(data) } else { format!("data:{mime};base64,{data}").into() }
}

/// What the model reads instead of media that cannot be sent in their place.
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
