//! Reads the key of a request. There are three ways to send it, because stock clients know only the last two.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};

/// The longest credential, in characters. Longer ones are refused unread.
const MAX_CHARS: usize = 4_096;

/// The reason why a request has no usable key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// It has no credential.
    #[error(
        "an API key is needed: `Authorization: Bearer KEY`, or Basic with the key as the password"
    )]
    Missing,
    /// Its credential has another form.
    #[error(
        "the credential cannot be read: send `Authorization: Bearer KEY`, `Authorization: Basic \
         base64(USER:KEY)` or `?auth_token=base64(USER:KEY)`"
    )]
    Malformed,
}

/// The reason why a request's cookies cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CookieError {
    /// Another host or path has planted one beside ours.
    #[error("two login cookies came together, so neither counts; sign in again")]
    Two,
}

/// Returns the value of the cookie with this name.
///
/// # Errors
/// [`CookieError::Two`]: which of them is ours cannot be told.
pub fn read_cookie(headers: &HeaderMap, name: &str) -> Result<Option<String>, CookieError> {
    let pairs = headers.get_all(COOKIE).into_iter().filter_map(|header| header.to_str().ok());
    let pairs = pairs.flat_map(|header| header.split(';'));
    let named = pairs.filter_map(|pair| pair.trim().split_once('='));
    let mut ours = named.filter(|(its, _)| *its == name).map(|(_, value)| value.to_owned());
    let first = ours.next();
    if ours.next().is_some() { Err(CookieError::Two) } else { Ok(first) }
}

/// Returns the key of a request: `Authorization: Bearer KEY`, `Authorization: Basic base64(USER:KEY)`, or
/// `?auth_token=base64(USER:KEY)`. The header wins. `query` is the part of the URL after `?`, still
/// percent-encoded.
///
/// # Errors
/// [`CredentialError`] if there is no key, or it cannot be read.
pub fn read_credential(
    headers: &HeaderMap,
    query: Option<&str>,
) -> Result<String, CredentialError> {
    if let Some(header) = headers.get(AUTHORIZATION) {
        let text = header.to_str().map_err(|_| CredentialError::Malformed)?;
        let (scheme, value) = text.split_once(' ').ok_or(CredentialError::Malformed)?;
        let value = value.trim();
        if value.is_empty() || value.len() > MAX_CHARS {
            return Err(CredentialError::Malformed);
        }
        return if scheme.eq_ignore_ascii_case("bearer") {
            Ok(value.to_owned())
        } else if scheme.eq_ignore_ascii_case("basic") {
            password(value)
        } else {
            Err(CredentialError::Malformed)
        };
    }
    let pairs = query.unwrap_or_default().split('&');
    let token =
        pairs.filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == "auth_token");
    match token {
        Some((_, value)) if value.len() <= MAX_CHARS => password(&percent_decode(value)?),
        Some(_) => Err(CredentialError::Malformed),
        None => Err(CredentialError::Missing),
    }
}

/// Returns the password in `base64(USER:PASSWORD)`, in either alphabet, padded or not.
fn password(encoded: &str) -> Result<String, CredentialError> {
    let bytes = STANDARD
        .decode(encoded)
        .or_else(|_| STANDARD_NO_PAD.decode(encoded))
        .or_else(|_| URL_SAFE.decode(encoded))
        .or_else(|_| URL_SAFE_NO_PAD.decode(encoded))
        .map_err(|_| CredentialError::Malformed)?;
    let text = String::from_utf8(bytes).map_err(|_| CredentialError::Malformed)?;
    match text.split_once(':') {
        Some((_, password)) if !password.is_empty() => Ok(password.to_owned()),
        _ => Err(CredentialError::Malformed),
    }
}

fn percent_decode(text: &str) -> Result<String, CredentialError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(CredentialError::Malformed);
        };
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| CredentialError::Malformed)?);
    }
    String::from_utf8(bytes).map_err(|_| CredentialError::Malformed)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(authorization: Option<&str>, query: Option<&str>) -> Result<String, CredentialError> {
        let mut headers = HeaderMap::new();
        if let Some(text) = authorization {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(text).expect("visible"));
        }
        read_credential(&headers, query)
    }

    #[test]
    fn a_key_comes_as_bearer_as_password_or_in_the_query() {
        let key = Ok("a-key-with:a-colon".to_owned());
        let basic = STANDARD.encode("opencode:a-key-with:a-colon");
        assert_eq!(read(Some("Bearer a-key-with:a-colon"), None), key);
        assert_eq!(read(Some(&format!("basic {basic}")), None), key);
        let query = format!("directory=%2Ftmp&auth_token={}", basic.replace('=', "%3D"));
        assert_eq!(read(None, Some(&query)), key);
        assert_eq!(read(Some("Bearer other"), Some(&query)), Ok("other".to_owned()));
    }

    #[test]
    fn two_cookies_of_one_name_are_none() {
        let read = |cookies: &[&str]| {
            let mut headers = HeaderMap::new();
            for cookie in cookies {
                headers.append(COOKIE, HeaderValue::from_str(cookie).expect("visible"));
            }
            read_cookie(&headers, "__Host-oc")
        };
        assert_eq!(read(&["a=b; __Host-oc=x.y=z"]), Ok(Some("x.y=z".to_owned())));
        assert_eq!(read(&["__Host-ocs=x; __host-oc=y"]), Ok(None));
        assert_eq!(read(&["__Host-oc=x; __Host-oc=y"]), Err(CookieError::Two));
        assert_eq!(read(&["__Host-oc=x", "a=b;__Host-oc=x"]), Err(CookieError::Two));
    }

    #[test]
    fn what_is_no_key_is_told_from_none() {
        assert_eq!(read(None, None), Err(CredentialError::Missing));
        assert_eq!(read(None, Some("auth_tokens=x")), Err(CredentialError::Missing));
        for bad in ["Bearer ", "Basic !!", "Digest x", "Bearer", "Basic b3BlbmNvZGU="] {
            assert_eq!(read(Some(bad), None), Err(CredentialError::Malformed), "{bad}");
        }
        assert_eq!(read(None, Some("auth_token=%4")), Err(CredentialError::Malformed));
        let long = format!("Bearer {}", "x".repeat(MAX_CHARS + 1));
        assert_eq!(read(Some(&long), None), Err(CredentialError::Malformed));
    }
}
