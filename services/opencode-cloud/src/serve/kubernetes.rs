//! The one request that we make to the API of Kubernetes: create a Secret, unless it is there.
//!
//! Not an update and not a read, so that the pod's account needs no other right, and so that a second installation, or a
//! tool that renders the chart again, can never replace a secret that is in use.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use reqwest::{Certificate, Client, StatusCode};
use serde_json::{Value, json};

use super::ServeError;

/// How long the API may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The API of Kubernetes, as a pod sees it.
#[derive(Debug, Clone, Args)]
pub struct ApiArgs {
    /// Host of the API; Kubernetes sets it in every pod
    #[arg(long, hide = true, env = "KUBERNETES_SERVICE_HOST")]
    pub api_host: Option<String>,
    /// Port of the API
    #[arg(long, hide = true, default_value_t = 443, env = "KUBERNETES_SERVICE_PORT")]
    pub api_port: u16,
    /// Folder of the pod's account: its token, namespace and the API's certificate
    #[arg(long, hide = true, default_value = "/var/run/secrets/kubernetes.io/serviceaccount")]
    pub api_account: PathBuf,
}

/// How a Secret came to be there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// Just now.
    Created,
    /// It was there, whatever it holds.
    Kept,
}

impl ApiArgs {
    /// Creates the Secret in the pod's own namespace, unless one of this name exists.
    ///
    /// # Errors
    /// When this is no pod, or the API refuses.
    pub(crate) async fn create_secret(
        &self,
        name: &str,
        values: &BTreeMap<String, String>,
    ) -> Result<Made, ServeError> {
        let Some(host) = &self.api_host else {
            return Err(ServeError::Usage(
                "--kubernetes works in a pod only: there is no KUBERNETES_SERVICE_HOST here; use --dir".to_owned(),
            ));
        };
        let read = |file: &str| {
            let path = self.api_account.join(file);
            std::fs::read_to_string(&path).map_err(|error| {
                ServeError::Stopped(format!(
                    "the pod's account has no {} ({error}); set automountServiceAccountToken for this pod",
                    path.display()
                ))
            })
        };
        let (token, namespace) = (read("token")?, read("namespace")?);
        let failed = |error: &reqwest::Error| ServeError::stopped("the API of Kubernetes", error);
        let trusted = Certificate::from_pem_bundle(read("ca.crt")?.as_bytes());
        let client = Client::builder()
            .no_proxy()
            .timeout(PATIENCE)
            .tls_certs_only(trusted.map_err(|error| failed(&error))?)
            .build()
            .map_err(|error| failed(&error))?;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let port = self.api_port;
        let namespace = namespace.trim();
        let url = format!("https://{host}:{port}/api/v1/namespaces/{namespace}/secrets");
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": { "name": name, "labels": { "app.kubernetes.io/managed-by": "opencode-cloud" } },
            "stringData": values,
        });
        let asked = client.post(url).bearer_auth(token.trim()).json(&secret).send().await;
        let answer = asked.map_err(|error| failed(&error))?;
        match answer.status() {
            StatusCode::CREATED | StatusCode::OK => Ok(Made::Created),
            StatusCode::CONFLICT => Ok(Made::Kept),
            status => {
                let body: Value = answer.json().await.unwrap_or_default();
                let why = body["message"].as_str().unwrap_or("it gives no reason");
                Err(ServeError::Stopped(format!(
                    "the API of Kubernetes refused to create the Secret {name} ({status}): {why}"
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests;
