//! AWS Signature Version 4, which proves who sends a request and that nobody changed it.
//!
//! Source: <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html>; AWS's own crate does the
//! work.

use std::time::{Duration, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use llm_protocol::ErrorReason;
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};

use crate::error::LlmError;
use crate::secret::{Secret, sensitive};
use crate::transport::WireRequest;

/// An AWS access key and its scope. `Debug` hides its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsAccess {
    /// The key's id: `AKIA…`, or `ASIA…` for temporary credentials.
    pub access_key: String,
    /// The key's secret.
    pub secret_key: Secret,
    /// The session token of temporary credentials.
    pub session_token: Option<Secret>,
    /// The region of the endpoint (`us-east-1`).
    pub region: String,
    /// The service's name in signatures: `bedrock`.
    pub service: String,
}

impl AwsAccess {
    /// Returns the secrets, for redaction.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        std::iter::once(&self.secret_key).chain(&self.session_token)
    }

    /// Signs method, address, body, host, and the headers that proxies leave alone, and adds the signature's
    /// headers. A signature is valid for five minutes around `unix_ms`.
    ///
    /// # Errors
    /// A credential contains characters that a header cannot carry.
    pub(crate) fn sign(&self, request: &mut WireRequest, unix_ms: u64) -> Result<(), LlmError> {
        let token = self.session_token.as_ref().map(|token| token.expose().to_owned());
        let (id, secret) = (self.access_key.as_str(), self.secret_key.expose());
        let identity = Credentials::new(id, secret, token, None, "opencode-cloud").into();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(&self.service)
            .time(UNIX_EPOCH + Duration::from_millis(unix_ms))
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| refused(&error.to_string()))?
            .into();
        let signed = request.headers.iter().filter(|(name, _)| is_signed(name));
        let signed = signed.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let body = SignableBody::Bytes(&request.body);
        let (method, url) = (request.method.as_str(), request.url.as_str());
        let signable = SignableRequest::new(method, url, signed, body)
            .map_err(|error| refused(&error.to_string()))?;
        let output = sign(signable, &params).map_err(|error| refused(&error.to_string()))?;
        let (instructions, _signature) = output.into_parts();
        for (name, value) in instructions.headers() {
            let header = HeaderName::try_from(name).map_err(|_| refused(name))?;
            let value = HeaderValue::try_from(value).map_err(|_| refused(name))?;
            request.headers.insert(header, sensitive(value));
        }
        Ok(())
    }
}

/// Returns whether a header is signed. A proxy may change others. `host` is always signed.
fn is_signed(name: &HeaderName) -> bool {
    name == CONTENT_TYPE || name.as_str().starts_with("x-amz")
}

fn refused(what: &str) -> LlmError {
    let message = format!("the request cannot be signed with these AWS credentials: {what}");
    LlmError::unsent(ErrorReason::Authentication, &message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use reqwest::Method;
    use reqwest::Url;
    use reqwest::header::{AUTHORIZATION, HeaderMap};

    /// 2015-08-30T12:36:00Z, the time of AWS's test suite.
    const THEN_MS: u64 = 1_440_938_160_000;
    const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

    fn signed(method: Method, url: &str, token: Option<&str>, body: &'static str) -> HeaderMap {
        let access = AwsAccess {
            access_key: "AKIDEXAMPLE".to_owned(),
            secret_key: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session_token: token.map(Secret::new),
            region: "us-east-1".to_owned(),
            service: "service".to_owned(),
        };
        assert!(!format!("{access:?}").contains("wJalr"));
        let mut headers = HeaderMap::new();
        headers.insert("accept", HeaderValue::from_static("not signed"));
        if !body.is_empty() {
            let form = HeaderValue::from_static("application/x-www-form-urlencoded");
            headers.insert(CONTENT_TYPE, form);
        }
        let (url, body) = (Url::parse(url).unwrap(), Bytes::from(body));
        let mut request = WireRequest { method, url, headers, body };
        access.sign(&mut request, THEN_MS).unwrap();
        assert!(!format!("{:?}", request.headers).contains("Signature="), "it is not shown");
        request.headers
    }

    fn authorization(headers: &str, signature: &str) -> String {
        format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders={headers}, Signature={signature}"
        )
    }

    /// Test vectors of AWS's Signature Version 4 suite: get-vanilla, get-vanilla-query-order-key-case,
    /// post-sts-header-before and post-x-www-form-urlencoded (in the edition that signs only the type).
    #[test]
    fn signatures_are_those_of_the_test_suite() {
        let root = "https://example.amazonaws.com/";
        let headers = signed(Method::GET, root, None, "");
        let vanilla = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
        assert_eq!(headers[AUTHORIZATION], authorization("host;x-amz-date", vanilla));
        assert_eq!(headers["x-amz-date"], "20150830T123600Z");

        let query = format!("{root}?Param2=value2&Param1=value1");
        let headers = signed(Method::GET, &query, None, "");
        let ordered = "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500";
        assert_eq!(headers[AUTHORIZATION], authorization("host;x-amz-date", ordered));

        let headers = signed(Method::POST, root, Some(TOKEN), "");
        let session = "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead";
        let names = "host;x-amz-date;x-amz-security-token";
        assert_eq!(headers[AUTHORIZATION], authorization(names, session));
        assert_eq!(headers["x-amz-security-token"], TOKEN);

        let headers = signed(Method::POST, root, None, "Param1=value1");
        let form = "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a";
        assert_eq!(headers[AUTHORIZATION], authorization("content-type;host;x-amz-date", form));
    }

    /// Percent-encoded characters of an address are encoded again for the signature, everywhere but in S3.
    #[test]
    fn an_encoded_model_is_encoded_twice() {
        let url = "https://bedrock-runtime.us-east-1.amazonaws.com/model/us.amazon.nova-micro-v1%3A0/converse-stream";
        let headers = signed(Method::POST, url, None, "{}");
        let twice = "b1ef6cb5f4482eaa69bc7d8f52a8f3a3f7f88571b199ba794e29bf982969cb19";
        assert_eq!(headers[AUTHORIZATION], authorization("content-type;host;x-amz-date", twice));
    }
}
