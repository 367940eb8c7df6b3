//! Says what is wrong with a server's certificate, and what helps.

/// The beginning of each sentence about a certificate.
pub(crate) const UNTRUSTED: &str = "the server's certificate is not trusted";

/// The words with which TLS introduces what is wrong with a certificate.
const REFUSED: &str = "invalid peer certificate: ";

/// Returns a sentence about the certificate that ended a connection, from the error of a connection with all its causes.
/// `None` if no certificate ended it.
#[must_use]
pub fn certificate_fault(error: &str) -> Option<String> {
    let (_, fault) = error.split_once(REFUSED)?;
    let has = |word: &str| fault.to_ascii_lowercase().contains(&word.to_ascii_lowercase());
    let why = if has("UnknownIssuer") {
        "its issuer is unknown here; add the issuer's certificate, a file in PEM: for a service with --egress-ca \
         (OPENCODE_CLOUD_EGRESS_CA), for a command with SSL_CERT_FILE"
    } else if has("CaUsedAsEndEntity") {
        "it is the certificate of an authority, which cannot be a server's too; give the server one that is signed by an \
         authority, or self-signed with CA:FALSE, and add the issuer's with --egress-ca or SSL_CERT_FILE"
    } else if has("not valid for name") || has("NotValidForName") {
        "it is for another name; use a base URL with a name that the certificate has"
    } else if has("not valid yet") || has("NotValidYet") {
        "it is not valid yet; check the clocks of the server and of this machine"
    } else if has("expired") {
        "it has expired; renew it at the server, or check the clock of this machine"
    } else if has("revoked") {
        "it was revoked; renew it at the server"
    } else {
        return Some(format!("{UNTRUSTED}: {fault}"));
    };
    Some(format!("{UNTRUSTED}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LlmError, TransportError};
    use llm_protocol::{Delivery, ErrorReason};

    // Finding reports 28: the advice was to check the base URL, the network and that the server runs.
    #[test]
    fn a_certificate_is_named_instead_of_the_network() {
        let cases = [
            ("UnknownIssuer", "its issuer is unknown here"),
            ("Other(OtherError(CaUsedAsEndEntity))", "certificate of an authority"),
            (
                "certificate expired: verification time 9 (UNIX), but certificate is not valid after 5",
                "has expired",
            ),
            ("certificate not valid yet: verification time 9 (UNIX)", "not valid yet"),
            (
                "certificate not valid for name \"a\"; certificate is only valid for DnsName(\"b\")",
                "another name",
            ),
            ("Revoked", "was revoked"),
            ("BadSignature", "BadSignature"),
        ];
        for (fault, words) in cases {
            let text = format!("error sending request: client error (Connect): {REFUSED}{fault}");
            let message = certificate_fault(&text).expect("a fault");
            let error = LlmError::from(TransportError { delivery: Delivery::NotSent, message });
            let told = error.to_string();
            assert!(told.starts_with(UNTRUSTED) && told.contains(words), "{told}");
            assert!(!told.contains("check the base URL, the network"), "{told}");
            assert!(!error.is_retryable(), "it stays so: {told}");
            assert_eq!(error.reason, ErrorReason::Transport { delivery: Delivery::NotSent });
            assert_eq!(error.event().message, told);
        }
        assert_eq!(certificate_fault("error sending request: connection refused"), None);
    }
}
