//! A notification as a signed POST.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use ring::hmac;

use super::{Failure, PATIENCE};
use crate::domain::notification::Notification;

/// Posts it. The body is signed as Stripe signs its webhooks: `t=UNIX,v1=HEX`, where HEX is HMAC-SHA-256 under the
/// secret of `UNIX.BODY`.
pub(super) async fn post(
    address: &str,
    secret: Option<&str>,
    notification: &Notification,
    now: Timestamp,
) -> Result<(), Failure> {
    let body = serde_json::to_vec(notification).unwrap_or_default();
    // Making one takes milliseconds.
    let client = tokio::task::spawn_blocking(client).await;
    let client =
        client.map_err(|error| again(error.to_string()))?.map_err(|error| again(error.to_string()))?;
    let mut request =
        client.post(address).header(CONTENT_TYPE, "application/json").header("Longhaul-Id", &notification.id);
    if let Some(secret) = secret {
        request = request.header("Longhaul-Signature", signature(secret, now.as_second(), &body));
    }
    let answer = request.body(body).send().await.map_err(|error| judge_error(error.without_url()))?;
    judge(&answer, now)
}

fn client() -> reqwest::Result<Client> {
    crate::http::install_tls();
    let name = concat!("longhaul/", env!("CARGO_PKG_VERSION"));
    // Whoever answers with another address is set up wrongly: a secret must not follow it.
    Client::builder().timeout(PATIENCE).redirect(Policy::none()).user_agent(name).build()
}

fn signature(secret: &str, seconds: i64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mut context = hmac::Context::with_key(&key);
    context.update(format!("{seconds}.").as_bytes());
    context.update(body);
    let hex: String = context.sign().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={seconds},v1={hex}")
}

/// Only an answer, or no connection at all, says for certain that it has not arrived.
fn judge_error(error: reqwest::Error) -> Failure {
    let why = why(&error);
    if error.is_builder() {
        Failure::Final(why)
    } else if error.is_connect() {
        again(why)
    } else {
        Failure::Unknown(format!("no answer: {why}"))
    }
}

fn judge(answer: &Response, now: Timestamp) -> Result<(), Failure> {
    let status = answer.status();
    let why = format!("the receiver answers {status}");
    match status {
        _ if status.is_success() => Ok(()),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            Err(Failure::Again(retry_after(answer, now), why))
        }
        _ if status.is_server_error() => Err(Failure::Again(retry_after(answer, now), why)),
        _ => Err(Failure::Final(why)),
    }
}

/// Seconds, or a date.
fn retry_after(answer: &Response, now: Timestamp) -> Option<Duration> {
    let text = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Duration::try_from(date.duration_since(now)).ok()
}

fn again(why: String) -> Failure {
    Failure::Again(None, why)
}

/// The error with its causes.
fn why(error: &reqwest::Error) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        words += &format!(": {error}");
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_hmac_sha256_of_time_and_body() {
        // printf '1700000000.{"id":"x"}' | openssl dgst -sha256 -hmac whsec
        assert_eq!(
            signature("whsec", 1_700_000_000, br#"{"id":"x"}"#),
            "t=1700000000,v1=53c863f98a429b819c35087cf6e3f9bcad57da8addfbf41135fafcb6ba9ab225"
        );
    }
}
