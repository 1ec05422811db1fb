//! Checks whether a request that changes something was sent from one of our pages.
//!
//! Three things are required. If the browser says where the request comes from, it must be the same site. It must send
//! the cookie that came with the page, which other sites cannot read, and which is not sent with their requests. And
//! the form must contain the mark of that cookie, which only this process can compute.

use std::hash::{BuildHasher, Hasher, RandomState};

use axum::http::{HeaderMap, header};
use siphasher::sip128::{Hasher128, SipHasher24};

const COOKIE: &str = "stationmaster_form";

/// A secret that only this process knows.
#[derive(Debug)]
pub(super) struct Secret {
    keys: (u64, u64),
    place: String,
}

/// Returns 64 bits that no outsider can guess: the standard library's hash with a random key from the system.
fn random() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(0);
    hasher.finish()
}

impl Secret {
    pub(super) fn new() -> Self {
        Self { keys: (random(), random()), place: format!("{:016x}{:016x}", random(), random()) }
    }

    /// Returns the placeholder for the reader's mark in a rendered page. No text of a task contains this placeholder.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Returns the mark of a cookie.
    pub(super) fn mark(&self, cookie: &str) -> String {
        let mut hasher = SipHasher24::new_with_keys(self.keys.0, self.keys.1);
        hasher.write(cookie.as_bytes());
        let hash = hasher.finish128();
        format!("{:016x}{:016x}", hash.h1, hash.h2)
    }

    /// Returns why the request is refused, or `None` if it comes from one of our pages.
    pub(super) fn refuses(&self, headers: &HeaderMap, mark: Option<&str>) -> Option<&'static str> {
        if !is_same_site(headers) {
            return Some("The request came from another site.");
        }
        let Some(cookie) = cookie(headers) else {
            return Some("The cookie of the form is missing: load the page again, and let it keep a cookie.");
        };
        match mark {
            Some(mark) if is_equal(mark.as_bytes(), self.mark(cookie).as_bytes()) => None,
            _ => Some("The form is of another browser or of an earlier start: load the page again."),
        }
    }
}

/// Returns a new cookie's value, and the header that sets it. Its path is the folder of the page.
pub(super) fn new_cookie() -> (String, String) {
    let value = format!("{:016x}{:016x}", random(), random());
    let header = format!("{COOKIE}={value}; HttpOnly; SameSite=Strict");
    (value, header)
}

/// Returns the value of the cookie that the browser sent.
pub(super) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let sent = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = sent.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, value)| *name == COOKIE && value.len() == 32).map(|(_, value)| value)
}

fn is_same_site(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if let Some(site) = text("sec-fetch-site") {
        return site == "same-origin";
    }
    // A browser that does not send that header sends at least this one, except with requests of its own accord.
    let Some(origin) = text("origin") else { return true };
    let host = origin.split_once("://").map(|(_, host)| host);
    host.is_some() && host == text("host")
}

/// Compares in a time that does not depend on where the two differ.
fn is_equal(left: &[u8], right: &[u8]) -> bool {
    let differs = left.iter().zip(right).fold(0, |differs, (left, right)| differs | (left ^ right));
    left.len() == right.len() && std::hint::black_box(differs) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_our_own_form_from_our_own_site_passes() {
        let secret = Secret::new();
        let (value, header) = new_cookie();
        let cookie = header.split(';').next().unwrap();
        let mark = secret.mark(&value);
        let passes = |more: &[(&'static str, &str)], mark: &str| {
            let headers = headers(&[&[("cookie", cookie), ("host", "a:1")], more].concat());
            secret.refuses(&headers, Some(mark)).is_none()
        };
        assert!(passes(&[], &mark));
        assert!(passes(&[("origin", "http://a:1")], &mark));
        assert!(passes(&[("sec-fetch-site", "same-origin"), ("origin", "https://proxy")], &mark));
        for other in ["http://b:1", "http://a:2", "null", ""] {
            assert!(!passes(&[("origin", other)], &mark), "{other}");
        }
        for other in ["cross-site", "same-site", "none"] {
            assert!(!passes(&[("sec-fetch-site", other)], &mark), "{other}");
        }
        assert!(!passes(&[], ""));
        assert!(!passes(&[], &mark[..31]));
        assert!(!passes(&[], &Secret::new().mark(&value)), "of another process");
        assert!(secret.refuses(&headers(&[("host", "a:1")]), Some(&mark)).is_some(), "without the cookie");
        assert!(secret.refuses(&headers(&[("cookie", cookie)]), None).is_some(), "without the mark");
    }
}
