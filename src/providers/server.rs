//! The server that a provider's calls go to, and whether it answers.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, NoProxy, Proxy, Url};
use serde::Deserialize;

use super::account::named;
use super::definition::Definition;

/// How long a server may take for its answer, the way there included.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where calls go: `http://` or `https://`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Server(Url);

// === impl Server ===

impl Server {
    /// The server that calls of this provider go to under this environment. None: nobody has said which that is.
    ///
    /// A variable that names one goes first. One that says something else about the server (that another cloud is to
    /// be used) leaves it unknown.
    pub fn of(definition: &Definition, env: &BTreeMap<OsString, OsString>) -> Option<Server> {
        let said = named(definition, env, &definition.env.endpoint);
        if let Some(value) = said.values().next() {
            return said
                .values()
                .find_map(|value| Server::parse(value.to_str()?).ok())
                .filter(|_| !value.is_empty());
        }
        let by_key = !named(definition, env, &definition.env.keys).is_empty();
        let by_login = definition.server_by_login.as_ref().filter(|_| !by_key);
        by_login.or(definition.server.as_ref()).cloned()
    }

    fn parse(written: &str) -> Result<Self, String> {
        let url = Url::parse(written).map_err(|error| format!("`{written}` is no URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(format!("`{written}` is not of the form https://HOST[:PORT]"));
        }
        Ok(Server(url))
    }

    /// It answers, whatever it says: then the network is there, and it is up. Asked without a credential, by the
    /// way that the provider's own calls take (`HTTPS_PROXY`, `NO_PROXY`).
    pub async fn answers(&self, env: &BTreeMap<OsString, OsString>) -> bool {
        let proxy = self.proxy(env);
        // Making one takes milliseconds.
        let made = tokio::task::spawn_blocking(move || client(proxy)).await;
        let Ok(Ok(client)) = made else { return false };
        match client.head(self.0.clone()).send().await {
            Ok(_) => true,
            Err(error) => {
                tracing::debug!(server = %self.0, %error, "no answer");
                false
            }
        }
    }

    fn proxy(&self, env: &BTreeMap<OsString, OsString>) -> Option<Proxy> {
        let variable = |name: &str| {
            let names = [name.to_lowercase(), name.to_uppercase()];
            let mut found = names.iter().filter_map(|name| env.get(OsStr::new(name))?.to_str());
            found.find(|value| !value.is_empty())
        };
        let own = if self.0.scheme() == "https" { "https_proxy" } else { "http_proxy" };
        let address = variable(own).or_else(|| variable("all_proxy"))?;
        let except = variable("no_proxy").and_then(NoProxy::from_string);
        Some(Proxy::all(address).ok()?.no_proxy(except))
    }
}

fn client(proxy: Option<Proxy>) -> reqwest::Result<Client> {
    crate::http::install_tls();
    let builder = Client::builder()
        .timeout(PATIENCE)
        .redirect(Policy::none())
        // Nothing secret is sent and nothing of the answer is used: a certificate of a company's own is an answer, too.
        .danger_accept_invalid_certs(true)
        .no_proxy();
    match proxy {
        Some(proxy) => builder.proxy(proxy),
        None => builder,
    }
    .build()
}

// === impl TryFrom for Server ===

impl TryFrom<String> for Server {
    type Error = String;

    fn try_from(written: String) -> Result<Self, String> {
        Server::parse(&written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::registry::Registry;

    fn server(provider: &str, variables: &[(&str, &str)]) -> Option<String> {
        let registry = Registry::load(&[]).unwrap();
        let env = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Server::of(registry.get(provider).unwrap(), &env).map(|server| server.0.to_string())
    }

    #[test]
    fn each_account_has_its_own_server() {
        assert_eq!(server("claude", &[]).unwrap(), "https://api.anthropic.com/");
        let own = [("ANTHROPIC_BASE_URL", "http://127.0.0.1:8080/v1")];
        assert_eq!(server("claude", &own).unwrap(), "http://127.0.0.1:8080/v1");
        assert_eq!(server("claude", &[("CLAUDE_CODE_USE_BEDROCK", "1")]), None, "somewhere else");
        assert_eq!(server("codex", &[]).unwrap(), "https://chatgpt.com/", "logged in with a plan");
        assert_eq!(server("codex", &[("OPENAI_API_KEY", "x")]).unwrap(), "https://api.openai.com/");
        assert_eq!(server("opencode", &[]), None, "it has many");
        assert_eq!(server("rehearsal", &[]), None);
    }

    #[test]
    fn a_server_is_a_url() {
        assert!(Server::parse("api.example.com").is_err());
        assert!(Server::parse("ftp://example.com").unwrap_err().contains("https://HOST"));
        assert!(Server::parse("https://example.com:8443").is_ok());
    }
}
