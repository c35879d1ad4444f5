//! The questions behind a path: `?subs=1&limit=10`.

/// The parameters of a query, in nats-server's manner: the first of a name counts, a wrong one is said in words.
pub(super) struct Query<'a> {
    text: &'a str,
}

impl<'a> Query<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text }
    }

    pub(super) fn word(&self, name: &str) -> Option<&'a str> {
        self.text
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, value)| *key == name && !value.is_empty())
            .map(|(_, value)| value)
    }

    /// A whole number; what is below 0 is as good as absent.
    pub(super) fn number(&self, name: &str) -> Result<Option<usize>, String> {
        let Some(word) = self.word(name) else { return Ok(None) };
        let number: i64 = word
            .parse()
            .map_err(|_| format!("Error decoding int for '{name}': {word:?} is no whole number"))?;
        Ok(usize::try_from(number).ok())
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.word(name) {
            None | Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
            Some(word) => Err(format!("Error decoding boolean for '{name}': {word:?} is neither 1 nor 0")),
        }
    }
}

/// The part of a list that a page shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) offset: usize,
    pub(super) limit: usize,
}

/// As many are shown where nobody says (nats-server's `DefaultConnListSize`, `DefaultSubListSize`).
const LIMIT_DEFAULT: usize = 1024;

impl Part {
    pub(super) fn of(query: &Query<'_>) -> Result<Self, String> {
        let limit = query.number("limit")?.filter(|limit| *limit > 0).unwrap_or(LIMIT_DEFAULT);
        Ok(Self { offset: query.number("offset")?.unwrap_or(0), limit })
    }
}
