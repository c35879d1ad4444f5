//! The field that authenticates a request to a peer and its answer. It is a hop-by-hop field and comes last.
//!
//! ```text
//!  Nighttrain-Peer: v1;asker=web1;id=…;number=7;epoch=…;sequence=42;mac=…      MAC over the whole head before it, the
//!                                                                              owner's name, and this field
//!  Nighttrain-Peer: v1;how=hit;sequence=42;load=3;epoch=…;mac=…                MAC over the request's MAC and this field
//! ```
//! *What it proves:* the other side has the secret, the request is unchanged, it is for us and for this
//! process (`epoch`), and it has not been received before (`number`). No clock is needed: an epoch is a
//! number that a process chooses when it starts, and sends with each answer. The content and the heads of
//! answers are not authenticated: their safety depends on the network between the two.

use std::{collections::HashMap, fmt::Write as _};

use aws_lc_rs::hmac;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use memchr::memmem;
use subtle::ConstantTimeEq as _;

/// Name of the field.
pub(crate) const FIELD: &str = "Nighttrain-Peer";
const BEGINNING: &[u8] = b"\r\nNighttrain-Peer: ";
const VERSION: &str = "v1;";
const MAC: &str = ";mac=";
const ANEW: &str = ";anew";
/// Maximum number of processes whose request numbers are remembered.
const ASKERS_MAX: usize = 512;
/// Number of request numbers that are remembered per process. A request with an older number is refused as
/// late.
const NUMBERS_KEPT: u64 = 1 << 16;

/// MAC of a request.
pub(crate) type Mac = [u8; 32];

/// Contents of the field in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask<'a> {
    pub(crate) asker: &'a str,
    /// Number of the asking process.
    pub(crate) id: u64,
    /// Number of the request within that process.
    pub(crate) number: u64,
    /// Epoch of the process that the request is for.
    pub(crate) epoch: u64,
    /// Last purge that the asking accelerator has begun.
    pub(crate) sequence: u64,
    /// A stored answer must not be used, because a visitor of the asking accelerator has changed the
    /// resource.
    pub(crate) is_anew: bool,
}

/// Kind of a peer's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Answered from the peer's store.
    Hit,
    /// Answered by the origin: the peer has fetched it, or waited for a fetch.
    Fetched,
    /// Answered by the origin, for the requesting client alone.
    Alone,
    /// Not answered: the peer is busy, has no lease, or has no answer that may be shared, so that the origin
    /// must be asked.
    Declined,
    /// Not answered: the peer has not yet applied the purge that the request names.
    Behind,
    /// Not answered: the peer's process is not the one that the request was signed for.
    Epoch,
}

impl How {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Hit, "hit"),
        (Self::Fetched, "fetched"),
        (Self::Alone, "alone"),
        (Self::Declined, "declined"),
        (Self::Behind, "behind"),
        (Self::Epoch, "epoch"),
    ];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(how, _)| *how == self).map_or("", |(_, word)| word)
    }
}

/// Contents of the field in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerAnswerMark {
    pub(crate) how: How,
    /// Last purge that the peer had applied before its lookup.
    pub(crate) sequence: u64,
    /// Keys that the peer is fetching.
    pub(crate) load: usize,
    /// Epoch of the peer's process.
    pub(crate) epoch: u64,
}

/// Reason why a request is not accepted as a peer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkError {
    /// The request has no valid MAC: the MAC is missing, or was made without the secret or for another
    /// accelerator.
    Forged,
    /// The request was received before.
    Replayed,
    /// The request was signed for another process: an earlier process of this accelerator, or one whose epoch
    /// was unknown.
    Epoch(Mac),
}

/// Key that both sides sign with.
pub(crate) struct SigningInput(hmac::Key);

impl SigningInput {
    pub(crate) fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    fn mac(&self, parts: &[&[u8]]) -> Mac {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            // The length prefixes prevent two different lists of parts from having the same bytes.
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut mac = Mac::default();
        mac.copy_from_slice(context.sign().as_ref());
        mac
    }

    /// Returns the head with its signed field for this peer, and the MAC.
    pub(crate) fn ask(&self, mut head: Vec<u8>, owner: &str, ask: &Ask<'_>) -> (Vec<u8>, Mac) {
        head.truncate(head.len() - b"\r\n".len());
        head.extend_from_slice(format!("Connection: {FIELD}").as_bytes());
        let Ask { asker, id, number, epoch, sequence, is_anew } = ask;
        let mut said =
            format!("{VERSION}asker={asker};id={id:x};number={number};epoch={epoch:x};sequence={sequence}");
        if *is_anew {
            said.push_str(ANEW);
        }
        let mac = self.mac(&[&head, owner.as_bytes(), said.as_bytes()]);
        head.extend_from_slice(BEGINNING);
        head.extend_from_slice(said.as_bytes());
        head.extend_from_slice(MAC.as_bytes());
        head.extend_from_slice(BASE64_URL_SAFE_NO_PAD.encode(mac).as_bytes());
        head.extend_from_slice(b"\r\n\r\n");
        (head, mac)
    }

    /// Reads the signed field of a head that `owner` has received; `None` if no peer has signed it.
    /// [`Numbers`] check that the head is for this process and was not received before.
    pub(crate) fn read_request_mark<'h>(&self, head: &'h [u8], owner: &str) -> Option<(Ask<'h>, Mac)> {
        let at = memmem::rfind(head, BEGINNING)?;
        // The field must be last, so that nothing unsigned follows it.
        let value = head[at + BEGINNING.len()..].strip_suffix(b"\r\n\r\n")?;
        let (said, theirs) = split(str::from_utf8(value).ok()?)?;
        let mac = self.mac(&[&head[..at], owner.as_bytes(), said.as_bytes()]);
        if !bool::from(mac.ct_eq(&theirs)) {
            return None;
        }
        let anew = said.strip_suffix(ANEW);
        let mut words = anew.unwrap_or(said).strip_prefix(VERSION)?.split(';');
        let ask = Ask {
            asker: word(&mut words, "asker")?,
            id: u64::from_str_radix(word(&mut words, "id")?, 16).ok()?,
            number: word(&mut words, "number")?.parse().ok()?,
            epoch: u64::from_str_radix(word(&mut words, "epoch")?, 16).ok()?,
            sequence: word(&mut words, "sequence")?.parse().ok()?,
            is_anew: anew.is_some(),
        };
        words.next().is_none().then_some((ask, mac))
    }

    /// Returns the lines that sign an answer; `of` is the MAC of its request.
    pub(crate) fn tell(&self, told: &PeerAnswerMark, of: &Mac) -> String {
        let PeerAnswerMark { how, sequence, load, epoch } = told;
        let mut lines = format!("Connection: {FIELD}\r\n{FIELD}: ");
        let said = format!("{VERSION}how={};sequence={sequence};load={load};epoch={epoch:x}", how.word());
        let mac = BASE64_URL_SAFE_NO_PAD.encode(self.mac(&[of, said.as_bytes()]));
        // Writing to a string cannot fail.
        let _ = write!(lines, "{said}{MAC}{mac}\r\n");
        lines
    }

    /// Reads the signed field of the answer to a request with this MAC; `None` if the answer is not a peer's.
    pub(crate) fn read_answer_mark(&self, value: &[u8], of: &Mac) -> Option<PeerAnswerMark> {
        let (said, theirs) = split(str::from_utf8(value).ok()?)?;
        if !bool::from(self.mac(&[of, said.as_bytes()]).ct_eq(&theirs)) {
            return None;
        }
        let mut words = said.strip_prefix(VERSION)?.split(';');
        let how = word(&mut words, "how")?;
        let told = PeerAnswerMark {
            how: How::ALL.iter().find(|(_, word)| *word == how)?.0,
            sequence: word(&mut words, "sequence")?.parse().ok()?,
            load: word(&mut words, "load")?.parse().ok()?,
            epoch: u64::from_str_radix(word(&mut words, "epoch")?, 16).ok()?,
        };
        words.next().is_none().then_some(told)
    }
}

/// Splits a value into its signed part and the MAC.
fn split(value: &str) -> Option<(&str, Mac)> {
    let (said, mac) = value.rsplit_once(MAC)?;
    Some((said, BASE64_URL_SAFE_NO_PAD.decode(mac).ok()?.try_into().ok()?))
}

fn word<'w>(words: &mut impl Iterator<Item = &'w str>, name: &str) -> Option<&'w str> {
    words.next()?.strip_prefix(name)?.strip_prefix('=')
}

/// Request numbers received from each process. *Bounds:* [`ASKERS_MAX`] processes, all of which have the
/// secret, with 8 KiB each. When there is no room for another, the owner clears the table and begins a new
/// epoch ([`Numbers::is_full`]).
#[derive(Default)]
pub(crate) struct Numbers(HashMap<u64, Window>);

struct Window {
    greatest: u64,
    /// Bitmap of the last [`NUMBERS_KEPT`] numbers.
    seen: Box<[u64]>,
}

impl Numbers {
    /// Returns whether there is no room for another process.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= ASKERS_MAX
    }

    /// Accepts a request to this process, whose epoch is `epoch`.
    ///
    /// # Errors
    /// [`MarkError::Epoch`] if the request was for another process. [`MarkError::Replayed`] if the request
    /// was received before.
    pub(crate) fn take(&mut self, ask: &Ask<'_>, mac: &Mac, epoch: u64) -> Result<(), MarkError> {
        if ask.epoch != epoch {
            return Err(MarkError::Epoch(*mac));
        }
        if self.is_new(ask.id, ask.number) { Ok(()) } else { Err(MarkError::Replayed) }
    }

    /// Records a number, and returns whether it is new.
    fn is_new(&mut self, id: u64, number: u64) -> bool {
        let words = usize::try_from(NUMBERS_KEPT / 64).unwrap_or_default();
        let new = || Window { greatest: 0, seen: vec![0; words].into() };
        self.0.entry(id).or_insert_with(new).is_new(number)
    }
}

impl Window {
    fn place(number: u64) -> (usize, u64) {
        let at = number % NUMBERS_KEPT;
        (usize::try_from(at / 64).unwrap_or_default(), 1 << (at % 64))
    }

    fn is_new(&mut self, number: u64) -> bool {
        if number.saturating_add(NUMBERS_KEPT) <= self.greatest {
            return false;
        }
        let skipped = number.saturating_sub(self.greatest);
        if skipped >= NUMBERS_KEPT {
            self.seen.fill(0);
        } else {
            for between in self.greatest + 1..=self.greatest + skipped {
                let (word, bit) = Self::place(between);
                self.seen[word] &= !bit;
            }
        }
        self.greatest = self.greatest.max(number);
        let (word, bit) = Self::place(number);
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const HEAD: &[u8] = b"GET /a HTTP/1.1\r\nHost: h\r\nCookie: a=1\r\n\r\n";

    fn ask(number: u64) -> Ask<'static> {
        Ask { asker: "web1", id: 5, number, epoch: 0xe, sequence: 42, is_anew: number.is_multiple_of(2) }
    }

    fn asked<'h>(
        signing: &SigningInput,
        head: &'h [u8],
        owner: &str,
        epoch: u64,
        numbers: &mut Numbers,
    ) -> Result<(Ask<'h>, Mac), MarkError> {
        let (ask, mac) = signing.read_request_mark(head, owner).ok_or(MarkError::Forged)?;
        numbers.take(&ask, &mac, epoch).map(|()| (ask, mac))
    }

    fn signed(number: u64) -> (Vec<u8>, Mac) {
        SigningInput::new(b"secret").ask(HEAD.to_vec(), "web2", &ask(number))
    }

    #[test]
    fn what_was_asked_is_known_again_and_once() {
        let (signing, mut numbers) = (SigningInput::new(b"secret"), Numbers::default());
        let (head, mac) = signed(7);
        assert!(head.starts_with(&HEAD[..HEAD.len() - 2]) && head.ends_with(b"\r\n\r\n"));
        assert_eq!(asked(&signing, &head, "web2", 0xe, &mut numbers), Ok((ask(7), mac)));
        assert_eq!(asked(&signing, &head, "web2", 0xe, &mut numbers), Err(MarkError::Replayed));
        let (next, next_mac) = signed(8);
        assert_eq!(asked(&signing, &next, "web2", 0xe, &mut numbers), Ok((ask(8), next_mac)));
        assert_eq!(asked(&signing, &next, "web2", 0xf, &mut numbers), Err(MarkError::Epoch(next_mac)));
    }

    #[test]
    fn an_altered_or_extended_request_fails_its_mac() {
        let (signing, mut numbers) = (SigningInput::new(b"secret"), Numbers::default());
        let (head, _) = signed(7);
        for at in 0..head.len() {
            let mut other = head.clone();
            other[at] ^= 1;
            let refused = asked(&signing, &other, "web2", 0xe, &mut numbers);
            assert_eq!(refused.err(), Some(MarkError::Forged), "byte {at}");
        }
        let longer = [&head[..head.len() - 2], b"X: y\r\n\r\n"].concat();
        for (head, owner, secret) in [
            (HEAD, "web2", "secret"),
            (&longer, "web2", "secret"),
            (&head, "web3", "secret"),
            (&head, "web2", "Secret"),
        ] {
            let asked = asked(&SigningInput::new(secret.as_bytes()), head, owner, 0xe, &mut numbers);
            assert_eq!(asked.err(), Some(MarkError::Forged));
        }
    }

    #[test]
    fn an_answer_is_to_its_request_alone() {
        let signing = SigningInput::new(b"secret");
        let (of, other) = (signed(7).1, signed(8).1);
        for (how, _) in How::ALL {
            let told = PeerAnswerMark { how, sequence: 9, load: 3, epoch: 0xe };
            let lines = signing.tell(&told, &of);
            let value = lines.split_once("Nighttrain-Peer: ").expect("the field").1.trim_end();
            assert_eq!(signing.read_answer_mark(value.as_bytes(), &of), Some(told));
            assert_eq!(signing.read_answer_mark(value.as_bytes(), &other), None);
            assert_eq!(
                signing.read_answer_mark(value.replace("sequence=9", "sequence=8").as_bytes(), &of),
                None
            );
            assert_eq!(SigningInput::new(b"other").read_answer_mark(value.as_bytes(), &of), None);
        }
    }

    proptest! {
        #[test]
        fn a_number_is_new_once(jumps in prop::collection::vec((0_u64..100_000, any::<bool>()), 1..200)) {
            let (mut numbers, mut seen, mut greatest, mut at) = (Numbers::default(), HashSet::new(), 0_u64, 1_u64);
            for (jump, is_back) in jumps {
                at = if is_back { at.saturating_sub(jump).max(1) } else { at + jump };
                let is_new = numbers.is_new(1, at);
                if is_new {
                    prop_assert!(seen.insert(at));
                } else {
                    prop_assert!(seen.contains(&at) || at + NUMBERS_KEPT <= greatest);
                }
                greatest = greatest.max(at);
            }
        }
    }
}
