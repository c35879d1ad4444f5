//! Operator of a hosted NATS cluster: accounts and users by JWTs that are signed with nkeys.

/// An operator with an account and a user, as hosted clusters have; the user's credentials are in a file.
pub(crate) struct Operator {
    /// Lines of a server's configuration that name this operator.
    pub(crate) lines: String,
}

impl Operator {
    /// Makes an operator; with `is_expired` the user's JWT has expired long ago.
    pub(crate) fn new(
        creds: &std::path::Path,
        is_expired: bool,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let (operator, account, user) =
            (nkeys::KeyPair::new_operator(), nkeys::KeyPair::new_account(), nkeys::KeyPair::new_user());
        let operator_jwt = jwt(&operator, &operator.public_key(), r#""type":"operator","version":2"#, None)?;
        let of_account = |more: &str| {
            format!(
                r#""limits":{{"subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"wildcards":true,"conn":-1,"leaf":-1{more}}},"type":"account","version":2"#
            )
        };
        let jetstream = r#","mem_storage":-1,"disk_storage":-1,"streams":-1,"consumer":-1"#;
        let account_jwt = jwt(&operator, &account.public_key(), &of_account(jetstream), None)?;
        // The system account, by which servers of a cluster talk and which has no JetStream.
        let system = nkeys::KeyPair::new_account();
        let system_jwt = jwt(&operator, &system.public_key(), &of_account(""), None)?;
        let expires = is_expired.then_some(1_000_000_000);
        let of_user = r#""pub":{},"sub":{},"subs":-1,"data":-1,"payload":-1,"type":"user","version":2"#;
        let user_jwt = jwt(&account, &user.public_key(), of_user, expires)?;
        let seed = user.seed()?;
        std::fs::write(
            creds,
            format!(
                "-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n\
                 -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
            ),
        )?;
        let lines = format!(
            "operator: \"{operator_jwt}\"\nsystem_account: {system}\nresolver: MEMORY\n\
             resolver_preload: {{ {account}: \"{account_jwt}\", {system}: \"{system_jwt}\" }}",
            account = account.public_key(),
            system = system.public_key(),
        );
        Ok(Self { lines })
    }
}

/// Makes a NATS JWT, signed with an nkey.
fn jwt(
    by: &nkeys::KeyPair,
    subject: &str,
    claims: &str,
    expires: Option<u64>,
) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let exp = expires.map_or_else(String::new, |at| format!(r#""exp":{at},"#));
    let body = format!(
        r#"{{{exp}"jti":"X","iat":1000,"iss":"{}","name":"x","sub":"{subject}","nats":{{{claims}}}}}"#,
        by.public_key()
    );
    let signed = format!("{}.{}", base64(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#), base64(body.as_bytes()));
    let sig = by.sign(signed.as_bytes())?;
    Ok(format!("{signed}.{}", base64(&sig)))
}

/// Encodes base64url without padding (RFC 4648 §5).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits =
            three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for at in 0..=three.len() {
            text.push(char::from(LETTERS[(bits >> (18 - 6 * at) & 63) as usize]));
        }
    }
    text
}
