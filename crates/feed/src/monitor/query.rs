//! Parameters of monitoring queries: `?subs=1&limit=10`, or JSON in the system account.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// Parameters of a query, with nats-server's rules: the first value for a name counts, and an invalid value
/// produces an error text.
pub(crate) struct Query<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Query<'a> {
    /// Parses the query of a URL, percent-encoded (RFC 3986 §2.1); `+` is a space, as in a form.
    pub(crate) fn new(text: &'a str) -> Self {
        let decode = |part: &'a str| -> Cow<'a, str> {
            if !part.contains(['%', '+']) {
                return part.into();
            }
            let blanks = part.replace('+', " ");
            percent_decode_str(&blanks).decode_utf8_lossy().into_owned().into()
        };
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        Self { pairs: pairs.map(|(key, value)| (decode(key), decode(value))).collect() }
    }

    /// Reads the JSON object of a request in the system account; any other JSON value has no parameters.
    /// `names` translates JSON keys to the names in a URL's query.
    pub(crate) fn of_json(object: &'a Value, names: &[(&'static str, &'static str)]) -> Self {
        let mut pairs = Vec::new();
        for (key, value) in object.as_object().into_iter().flatten() {
            let text: Cow<'a, str> = match value {
                Value::String(text) => text.as_str().into(),
                Value::Number(_) | Value::Bool(_) => value.to_string().into(),
                _ => continue,
            };
            let name = names.iter().find(|(known, _)| known == key).map_or(key.as_str(), |(_, name)| *name);
            pairs.push((Cow::from(name.to_owned()), text));
        }
        Self { pairs }
    }

    pub(crate) fn word(&self, name: &str) -> Option<&str> {
        let mut pairs = self.pairs.iter();
        pairs.find(|(key, value)| *key == name && !value.is_empty()).map(|(_, value)| &**value)
    }

    /// Returns the whole number given for a name; a negative one counts as absent.
    pub(crate) fn number(&self, name: &str) -> Result<Option<usize>, String> {
        let Some(word) = self.word(name) else { return Ok(None) };
        let number: i64 = word
            .parse()
            .map_err(|_| format!("Error decoding int for '{name}': {word:?} is no whole number"))?;
        Ok(usize::try_from(number).ok())
    }

    /// Returns the whole number given for a name; a negative one is an error.
    pub(crate) fn unsigned(&self, name: &str) -> Result<Option<u64>, String> {
        let parse = |word: &str| {
            word.parse().map_err(|_| {
                format!("Error decoding uint64 for '{name}': {word:?} is no whole number from 0 on")
            })
        };
        self.word(name).map(parse).transpose()
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.word(name) {
            None | Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
            Some(word) => Err(format!("Error decoding boolean for '{name}': {word:?} is neither 1 nor 0")),
        }
    }
}

/// Part of a list that a page shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) offset: usize,
    pub(super) limit: usize,
}

/// Default length of a page (nats-server's `DefaultConnListSize`, `DefaultSubListSize`).
const LIMIT_DEFAULT: usize = 1024;
/// Largest length of a page, even if `limit` is higher, because a page is built in memory. The page reports
/// the limit that was used.
const LIMIT_MAX: usize = 16 * 1024;

impl Part {
    pub(super) fn of(query: &Query<'_>) -> Result<Self, String> {
        let limit = query.number("limit")?.filter(|limit| *limit > 0).unwrap_or(LIMIT_DEFAULT);
        Ok(Self { offset: query.number("offset")?.unwrap_or(0), limit: limit.min(LIMIT_MAX) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let query = Query::new("test=a%2Eb&acc=%24G&user=ann+lee&%6cimit=7&sort=&sort=cid&bad=%zz&subs=1");
        assert_eq!(query.word("test"), Some("a.b"));
        assert_eq!(query.word("acc"), Some("$G"));
        assert_eq!(query.word("user"), Some("ann lee"));
        assert_eq!(query.number("limit"), Ok(Some(7)));
        assert_eq!(
            (query.word("sort"), query.word("bad"), query.word("none")),
            (Some("cid"), Some("%zz"), None)
        );
        assert_eq!(query.flag("subs"), Ok(true));
        assert_eq!(Part::of(&Query::new("limit=1000000")).map(|part| part.limit), Ok(LIMIT_MAX));
    }

    #[test]
    fn a_negative_cid_is_refused() {
        assert!(Query::new("cid=-1").unsigned("cid").is_err_and(|said| said.contains("'cid'")));
        assert_eq!(Query::new("cid=7").unsigned("cid"), Ok(Some(7)));
    }

    #[test]
    fn json_asks_the_same() {
        let asked =
            serde_json::json!({"subscriptions": true, "limit": 3, "acc": "$G", "tags": ["a"], "offset": -1});
        let query = Query::of_json(&asked, &[("subscriptions", "subs")]);
        assert_eq!((query.flag("subs"), query.number("limit")), (Ok(true), Ok(Some(3))));
        assert_eq!(
            (query.word("acc"), query.word("tags"), query.number("offset")),
            (Some("$G"), None, Ok(None))
        );
    }
}
