//! Access rules of the admin server.
//!
//! Three rules protect it:
//! - it listens on loopback, or it demands a token ([`Access::for_address`] refuses anything else);
//! - without a token it answers only requests whose `Host` is an IP address or `localhost`: a web page whose name was
//!   rebound to 127.0.0.1 sends its own name;
//! - it refuses what a browser sends on behalf of another site (`Origin`, `Sec-Fetch-Site`), so that no web page can
//!   purge through its visitor's browser. There is no CORS: no answer is readable from elsewhere.

use std::{
    io::Read,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

/// Minimum length of a token; a shorter token can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// Maximum length of a token; a longer line suggests that the path names some other file.
const TOKEN_BYTES_MAX: usize = 1024;
/// Maximum number of tokens in a file.
const TOKENS_MAX: usize = 8;

/// A secret. Its `Debug` form hides the content, and it is never logged.
#[derive(Clone)]
pub(crate) struct Token(Arc<str>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Compares in constant time, so that the time taken does not reveal where a guess goes wrong. The length
    /// is not secret.
    fn is(&self, guess: &str) -> bool {
        self.0.as_bytes().ct_eq(guess.as_bytes()).into()
    }

    /// Returns the token that clients send to purge through the accelerator's own port.
    pub(crate) fn to_purge(&self) -> cache::PurgeToken {
        cache::PurgeToken::new(self.0.as_bytes())
    }

    /// Returns the token as the secret that peer accelerators have in common.
    pub(crate) fn to_peers(&self) -> cache::PeerSecret {
        cache::PeerSecret::new(self.0.as_bytes())
    }

    /// Returns the value of the `Authorization` field that the program's own commands send.
    pub(crate) fn as_bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

/// The tokens of a file, in its order.
#[derive(Debug)]
pub(crate) struct TokenList {
    first: Token,
    others: Vec<Token>,
}

impl TokenList {
    /// Converts the tokens into the secrets of accelerators that share certificates: the first token
    /// encrypts, and any of them decrypts.
    pub(crate) fn to_cluster(&self) -> cluster::Secrets {
        let bytes = |token: &Token| token.0.as_bytes().to_vec();
        cluster::Secrets::new(bytes(&self.first), self.others.iter().map(bytes))
    }
}

/// Reads the token from the file that a setting names: its first and only line.
///
/// # Errors
/// Returns a sentence that says what is wrong; it never shows the file's content.
pub(crate) fn read_token(key: &str, path: &Path) -> Result<Token, String> {
    match read_tokens(key, path)? {
        TokenList { first, others } if others.is_empty() => Ok(first),
        _ => Err(format!("{key} {}: a token is one line, and the file has several", path.display())),
    }
}

/// Reads the tokens from the file that a setting names, one per line.
///
/// # Errors
/// Returns a sentence that says what is wrong; it never shows the file's content.
pub(crate) fn read_tokens(key: &str, path: &Path) -> Result<TokenList, String> {
    let fault = |message: String| format!("{key} {}: {message}", path.display());
    let file = std::fs::File::open(path).map_err(|error| fault(format!("cannot be read: {error}")))?;
    let mut text = String::new();
    file.take((TOKENS_MAX * (TOKEN_BYTES_MAX + 2) + 1) as u64)
        .read_to_string(&mut text)
        .map_err(|error| fault(format!("cannot be read: {error}")))?;
    let mut lines = text.trim_end_matches(['\r', '\n']).split('\n').map(|line| line.trim_end_matches('\r'));
    let token = |line: &str| {
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&line.len()) {
            return Err(fault(format!(
                "a token has {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} characters, this one has {}; create one with `head \
                 -c 24 /dev/urandom | base64`",
                line.len()
            )));
        }
        if !line.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(fault("a token is one line of ASCII letters, digits and punctuation".to_owned()));
        }
        Ok(Token(line.into()))
    };
    let first = token(lines.next().unwrap_or_default())?;
    let others = lines.map(token).collect::<Result<Vec<_>, _>>()?;
    if others.len() >= TOKENS_MAX {
        return Err(fault(format!("too many tokens: at most {TOKENS_MAX}")));
    }
    Ok(TokenList { first, others })
}

/// Conditions that a request must meet. The token is the current one: a reload may change it.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    token: Option<watch::Receiver<Token>>,
}

impl Access {
    /// Returns the rules for a server on `address`.
    ///
    /// # Errors
    /// Returns a sentence if other machines could connect and there is no token.
    pub(crate) fn for_address(
        address: SocketAddr,
        token: Option<watch::Receiver<Token>>,
    ) -> Result<Self, String> {
        if token.is_none() && !address.ip().is_loopback() {
            return Err(format!(
                "{address}: other machines can connect there, so a token is required: set admin-token-file, or listen \
                 on 127.0.0.1"
            ));
        }
        Ok(Self { token })
    }

    fn refusal(&self, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        if text(header::HeaderName::from_static("sec-fetch-site"))
            .is_some_and(|site| !matches!(site, "same-origin" | "none"))
        {
            return Some((StatusCode::FORBIDDEN, "refused: sent by another site's page\n"));
        }
        let host = text(header::HOST).unwrap_or_default();
        if let Some(origin) = text(header::ORIGIN)
            && origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")) != Some(host)
        {
            return Some((StatusCode::FORBIDDEN, "refused: sent by another site's page\n"));
        }
        let Some(token) = &self.token else {
            return (!is_unspoofable(host)).then_some((
                StatusCode::MISDIRECTED_REQUEST,
                "refused: use an IP address or localhost, such as http://127.0.0.1:9180/\n",
            ));
        };
        let guess = text(header::AUTHORIZATION).and_then(|value| value.split_once(' '));
        match guess {
            Some((scheme, guess))
                if scheme.eq_ignore_ascii_case("bearer") && token.borrow().is(guess.trim()) =>
            {
                None
            }
            _ => Some((StatusCode::UNAUTHORIZED, "a token is required: Authorization: Bearer TOKEN\n")),
        }
    }
}

/// Returns whether this `Host` is an IP address or `localhost`, names that an attacker cannot control.
fn is_unspoofable(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        // A colon inside brackets belongs to the address.
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

/// Middleware that refuses a request unless [`Access`] permits it.
pub(super) async fn check(State(access): State<Access>, request: Request, next: Next) -> Response {
    match access.refusal(request.headers()) {
        None => next.run(request).await,
        Some((status @ StatusCode::UNAUTHORIZED, message)) => {
            (status, [(header::WWW_AUTHENTICATE, "Bearer")], message).into_response()
        }
        Some((status, message)) => (status, message).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn status(access: &Access, fields: &[(&'static str, &'static str)]) -> u16 {
        let headers = fields
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), HeaderValue::from_static(value)));
        access.refusal(&headers.collect()).map_or(200, |(status, _)| status.as_u16())
    }

    fn loopback() -> Access {
        Access::for_address(SocketAddr::from(([127, 0, 0, 1], 9180)), None).expect("loopback")
    }

    #[test]
    fn names_that_could_be_rebound_are_refused() {
        for host in [
            "127.0.0.1:9180",
            "127.0.0.1",
            "localhost:9180",
            "LOCALHOST",
            "[::1]:9180",
            "[::1]",
            "10.0.0.1:1",
        ] {
            assert_eq!(status(&loopback(), &[("host", host)]), 200, "{host}");
        }
        for host in
            ["evil.example", "evil.example:9180", "localhost.evil.example", "", "127.0.0.1.evil.example:9180"]
        {
            assert_eq!(status(&loopback(), &[("host", host)]), 421, "{host}");
        }
        assert_eq!(status(&loopback(), &[]), 421);
    }

    #[test]
    fn other_sites_pages_are_refused() {
        let host = ("host", "127.0.0.1:9180");
        assert_eq!(status(&loopback(), &[host, ("origin", "http://127.0.0.1:9180")]), 200);
        assert_eq!(status(&loopback(), &[host, ("sec-fetch-site", "none")]), 200);
        assert_eq!(status(&loopback(), &[host, ("origin", "http://evil.example")]), 403);
        assert_eq!(status(&loopback(), &[host, ("origin", "null")]), 403);
        assert_eq!(status(&loopback(), &[host, ("sec-fetch-site", "cross-site")]), 403);
        assert_eq!(status(&loopback(), &[host, ("sec-fetch-site", "same-site")]), 403);
    }

    #[test]
    fn beyond_loopback_a_token_is_needed() {
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 9180));
        assert!(Access::for_address(everywhere, None).expect_err("no token").contains("admin-token-file"));
        let (_set, token) = watch::channel(Token("0123456789abcdef".into()));
        let access = Access::for_address(everywhere, Some(token)).expect("a token");
        let host = ("host", "any.example");
        assert_eq!(status(&access, &[host, ("authorization", "Bearer 0123456789abcdef")]), 200);
        assert_eq!(status(&access, &[host, ("authorization", "bearer 0123456789abcdef")]), 200);
        for wrong in
            ["Bearer 0123456789abcdeF", "Bearer", "Bearer ", "Basic 0123456789abcdef", "0123456789abcdef"]
        {
            assert_eq!(status(&access, &[host, ("authorization", wrong)]), 401, "{wrong}");
        }
        assert_eq!(status(&access, &[host]), 401);
        assert_eq!(
            status(
                &access,
                &[("host", "a"), ("origin", "http://b"), ("authorization", "Bearer 0123456789abcdef")]
            ),
            403
        );
    }

    #[test]
    fn tokens_in_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        assert!(read_token("admin-token-file", &path).expect_err("absent").contains("cannot be read"));
        for (content, right) in [
            ("0123456789abcdef\n", true),
            ("0123456789abcdef", true),
            ("short\n", false),
            ("", false),
            ("two lines, of length\nenough to be a token", false),
        ] {
            std::fs::write(&path, content).expect("a file");
            assert_eq!(read_token("admin-token-file", &path).is_ok(), right, "{content:?}");
        }
        std::fs::write(&path, "0123456789abcdef\r\nfedcba9876543210\n").expect("a file");
        let TokenList { others, .. } = read_tokens("cluster-secret", &path).expect("two");
        assert!(others.len() == 1 && others[0].is("fedcba9876543210"));
        assert!(read_token("admin-token-file", &path).expect_err("two").contains("the file has several"));
        std::fs::write(&path, "0123456789abcdef\n".repeat(TOKENS_MAX + 1)).expect("a file");
        assert!(read_tokens("cluster-secret", &path).expect_err("many").contains("at most 8"));
        std::fs::write(&path, "two lines, of length\nenough to be a token").expect("a file");
        let token = read_token("admin-token-file", &path).expect_err("wrong");
        assert!(!token.contains("enough"), "the content shows: {token}");
        assert_eq!(format!("{:?}", Token("0123456789abcdef".into())), "Token(…)");
    }
}
