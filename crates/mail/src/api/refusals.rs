//! Refusals that several APIs have in common.

use crate::web::serve::fault::Fault;

/// Refuses to release mail, which Mailpit and MailHog can do.
pub(super) async fn not_released() -> Fault {
    Fault::NotDone("mail is never sent on")
}

/// Refuses a value that would span more than one line of a mail's head, as a client that sets `Subject` must
/// not be able to inject further fields (RFC 5322, 2.2).
pub(super) fn one_line(name: &str, value: &str) -> Result<(), Fault> {
    match value.chars().find(|c| c.is_control() && *c != '\t') {
        None => Ok(()),
        Some('\r' | '\n') => Err(Fault::Bad(format!("line break in `{name}`; a single line is needed"))),
        Some(_) => Err(Fault::Bad(format!("control character in `{name}`; leave it out"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_line_without_control_characters() {
        assert_eq!(one_line("Subject", "a\tgr\u{fc}\u{df}e"), Ok(()));
        for (value, fault) in [
            ("a\r\nBcc: b", "line break in `Subject`; a single line is needed"),
            ("a\0b", "control character in `Subject`; leave it out"),
        ] {
            assert_eq!(one_line("Subject", value), Err(Fault::Bad(fault.to_owned())));
        }
    }
}
