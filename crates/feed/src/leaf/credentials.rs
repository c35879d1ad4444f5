//! Authentication at a hub: a user's JWT is forwarded unchanged, and the hub's nonce is signed with the seed
//! from the same file.

use std::{path::Path, time::SystemTime};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use nkeys::KeyPair;
use wire::nats::credentials::{expires, parts};

use super::remote::Login;

/// Largest credentials file; a longer file is refused.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Fields of CONNECT for authentication with an nkey.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SignedConnect {
    pub(crate) jwt: Option<String>,
    pub(crate) nkey: Option<String>,
    pub(crate) sig: Option<String>,
}

/// Reads the credentials file and signs the nonce; blocks the thread. Error texts contain nothing from the
/// file.
pub(crate) fn sign(login: &Login, nonce: &str, now: SystemTime) -> Result<SignedConnect, String> {
    let path = match login {
        Login::None => return Ok(SignedConnect::default()),
        Login::Seed(seed) => return signed(None, seed.text(), nonce).map_err(str::to_owned),
        Login::Credentials(path) | Login::Nkey(path) => path,
    };
    let wrong = |what: &str| format!("{}: {what}", path.display());
    let text = read(path).map_err(|what| wrong(&what))?;
    let (jwt, seed) = match login {
        Login::Credentials(_) => {
            let mut parts = parts(&text);
            match (parts.next(), parts.next()) {
                (Some(jwt), Some(seed)) => (Some(jwt), seed),
                _ => {
                    return Err(wrong(
                        "no credentials: a user's JWT and its seed are needed, each between lines of dashes",
                    ));
                }
            }
        }
        _ => (None, text.trim()),
    };
    if let Some(at) = jwt.and_then(expires).filter(|at| *at <= now) {
        let at = humantime::format_rfc3339_seconds(at);
        return Err(wrong(&format!("the user's JWT expired at {at}: a new one is needed")));
    }
    signed(jwt, seed, nonce).map_err(wrong)
}

fn signed(jwt: Option<&str>, seed: &str, nonce: &str) -> Result<SignedConnect, &'static str> {
    let pair = KeyPair::from_seed(seed).map_err(|_| "no nkey seed in it (SU…)")?;
    let sig = pair.sign(nonce.as_bytes()).map_err(|_| "the seed cannot sign")?;
    Ok(SignedConnect {
        nkey: jwt.is_none().then(|| pair.public_key()),
        jwt: jwt.map(str::to_owned),
        sig: Some(URL_SAFE_NO_PAD.encode(sig)),
    })
}

fn read(path: &Path) -> Result<String, String> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::leaf::UserSeed;

    fn file(directory: &tempfile::TempDir, name: &str, text: &str) -> std::path::PathBuf {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    #[test]
    fn each_credentials_file_kind_signs_the_nonce() {
        let directory = tempfile::tempdir().expect("a directory");
        let pair = KeyPair::new_user();
        let seed = pair.seed().expect("it is ours");
        let claims = URL_SAFE_NO_PAD.encode(br#"{"exp": 2000000000, "sub": "U"}"#);
        let jwt = format!("e30.{claims}.c2ln");
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\nA warning.\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        let credentials = Login::Credentials(file(&directory, "a.creds", &text));
        let nkey = Login::Nkey(file(&directory, "a.nk", &format!("{seed}\n")));
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let verify = |signed: &SignedConnect| {
            let sig = URL_SAFE_NO_PAD.decode(signed.sig.as_deref().expect("signed")).expect("base64");
            pair.verify(b"nonce", &sig).expect("by this key");
        };
        let signed = sign(&credentials, "nonce", at(1_999_999_999)).expect("sound");
        assert_eq!((signed.jwt.as_deref(), signed.nkey.as_deref()), (Some(&*jwt), None));
        verify(&signed);
        let signed = sign(&nkey, "nonce", at(0)).expect("sound");
        assert_eq!((signed.jwt.as_deref(), signed.nkey.clone()), (None, Some(pair.public_key())));
        verify(&signed);
        let written = Login::Seed(UserSeed::new(&seed).expect("a user's"));
        assert_eq!(sign(&written, "nonce", at(0)), Ok(signed));
        assert!(!format!("{written:?}").contains(&seed), "no secret is shown");
        let of_account = KeyPair::new_account().seed().expect("it is ours");
        assert!(UserSeed::new(&of_account).is_none() && UserSeed::new("SU").is_none());
        assert_eq!(sign(&Login::None, "nonce", at(0)), Ok(SignedConnect::default()));

        let wrong = sign(&credentials, "nonce", at(2_000_000_000)).expect_err("it has expired");
        assert!(
            wrong.ends_with("the user's JWT expired at 2033-05-18T03:33:20Z: a new one is needed"),
            "{wrong}"
        );
        for (text, words) in [
            ("", "each between lines of dashes"),
            ("-----BEGIN X-----\na\n-----END X-----\n", "each between lines of dashes"),
            ("-----BEGIN X-----\na\n---END---\n---BEGIN---\nSUB\n---END---", "no nkey seed"),
        ] {
            let wrong = sign(&Login::Credentials(file(&directory, "b", text)), "n", at(0)).expect_err(text);
            assert!(wrong.contains(words) && wrong.contains("/b: "), "{wrong}");
        }
        let wrong = sign(&Login::Nkey(file(&directory, "c", "SUX")), "n", at(0)).expect_err("no nkey seed");
        assert!(wrong.contains("no nkey seed") && !wrong.contains("SUX"), "{wrong}");
        let wrong = sign(&Login::Nkey(directory.path().join("none")), "n", at(0)).expect_err("no file");
        assert!(wrong.contains("cannot be read"), "{wrong}");
    }
}
