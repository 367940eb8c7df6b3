//! The address that identifies a provider.

use std::fmt;

use url::Url;

const MAX_BYTES: usize = 512;
/// Microsoft's hosts that sign for every tenant.
const ENTRA: [&str; 4] = [
    "login.microsoftonline.com",
    "login.microsoftonline.us",
    "login.partner.microsoftonline.cn",
    "sts.windows.net",
];
/// The names of all tenants, or of all private accounts, in place of one tenant; the last one is the id of `consumers`.
const MANY_TENANTS: [&str; 4] =
    ["common", "organizations", "consumers", "9188040d-6c67-4c5b-b112-36a304b66dad"];

/// A provider's issuer, word for word as its tokens name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Issuer {
    text: String,
    url: Url,
}

/// The reason why a text is no issuer of a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssuerRefused {
    /// It is no address.
    #[error(
        "`{0}` is no issuer: give the address that the provider calls its issuer, such as https://id.example.com"
    )]
    NoAddress(String),
    /// It names no single tenant.
    #[error(
        "`{0}` signs in people of every Microsoft tenant: give the issuer of your own tenant, \
         https://login.microsoftonline.com/TENANT-ID/v2.0"
    )]
    ManyTenants(String),
}

impl Issuer {
    /// Reads an issuer as a person enters it. A discovery address is taken for its issuer.
    ///
    /// # Errors
    /// It is no plain address, or it stands for the tenants of everybody.
    pub fn parse(text: &str) -> Result<Self, IssuerRefused> {
        let text = text.trim();
        let text = text.strip_suffix("/.well-known/openid-configuration").unwrap_or(text);
        let refused = || IssuerRefused::NoAddress(text.chars().take(100).collect());
        let url = Url::parse(text).map_err(|_| refused())?;
        let is_plain = matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
            && text.len() <= MAX_BYTES;
        if !is_plain {
            return Err(refused());
        }
        let tenant = url.path_segments().and_then(|mut segments| segments.next());
        let tenant = tenant.unwrap_or_default().to_ascii_lowercase();
        let is_entra = is_entra(&url);
        if is_entra && (tenant.is_empty() || MANY_TENANTS.contains(&tenant.as_str())) {
            return Err(IssuerRefused::ManyTenants(text.to_owned()));
        }
        Ok(Self { text: text.to_owned(), url })
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the address.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns whether it is one tenant of Microsoft Entra, whose claim `oid` identifies a person in all of its
    /// applications, while `sub` differs by application.
    #[must_use]
    pub fn is_entra(&self) -> bool {
        is_entra(&self.url)
    }

    /// Returns whether it signs in everybody who has an account there, so that only an e-mail domain says who belongs
    /// to an organisation.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.url.host_str() == Some("accounts.google.com")
    }
}

fn is_entra(url: &Url) -> bool {
    url.host_str().is_some_and(|host| ENTRA.contains(&host))
}

impl fmt::Display for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_kept_word_for_word() {
        for text in
            ["https://id.example.com", "https://id.example.com/", "https://id.example.com/realms/x"]
        {
            assert_eq!(Issuer::parse(text).expect("an issuer").as_str(), text);
        }
        let by_discovery =
            Issuer::parse(" https://id.example.com/realms/x/.well-known/openid-configuration ");
        assert_eq!(by_discovery.expect("an issuer").as_str(), "https://id.example.com/realms/x");
    }

    #[test]
    fn an_issuer_of_all_tenants_is_refused() {
        for tenant in [
            "common",
            "organizations",
            "consumers",
            "COMMON",
            "9188040d-6c67-4c5b-b112-36a304b66dad",
            "",
        ] {
            for host in ENTRA {
                let refused = Issuer::parse(&format!("https://{host}/{tenant}/v2.0"));
                let refused = if tenant.is_empty() {
                    Issuer::parse(&format!("https://{host}/"))
                } else {
                    refused
                };
                assert!(matches!(refused, Err(IssuerRefused::ManyTenants(_))), "{host} {tenant}");
            }
        }
        let own = "https://login.microsoftonline.com/0f5b1b2e-0000-4000-8000-000000000000/v2.0";
        assert!(Issuer::parse(own).expect("a tenant").is_entra());
    }

    #[test]
    fn a_text_that_is_no_plain_address_is_refused() {
        for bad in [
            "",
            "id.example.com",
            "ftp://x",
            "https://u:p@x",
            "https://x/?a=b",
            "https://x/#f",
            "data:,x",
        ] {
            assert!(matches!(Issuer::parse(bad), Err(IssuerRefused::NoAddress(_))), "{bad}");
        }
    }
}
