//! Application of a site's rules to a query: ignored parameters are left out, the others sorted.
//!
//! Nothing is decoded: a parameter is the text between two `&`, and its name the text before its first `=`.
//! The rules are applied where an address becomes a key and nowhere else, and a fetch sends the origin what
//! is in the key. Only the key's buffer may grow; nothing else is allocated.

use smallvec::SmallVec;

use crate::config::SiteRules;

/// Maximum number of parameters that are sorted; a query with more keeps its order.
const SORTED_MAX: usize = 128;

/// Appends an address's path and query, as changed by a site's rules.
#[inline]
pub(crate) fn append(path_and_query: &[u8], rules: &SiteRules, out: &mut Vec<u8>) {
    match memchr::memchr(b'?', path_and_query).filter(|_| rules.change_queries()) {
        None => out.extend_from_slice(path_and_query),
        Some(at) => {
            out.extend_from_slice(&path_and_query[..at]);
            append_query(&path_and_query[at + 1..], rules, out);
        }
    }
}

/// Applies a site's rules to the path and query after `from`.
pub(crate) fn apply(rules: &SiteRules, from: usize, key: &mut Vec<u8>) {
    let path_and_query = key.split_off(from);
    append(&path_and_query, rules, key);
}

fn append_query(query: &[u8], rules: &SiteRules, out: &mut Vec<u8>) {
    let start = out.len();
    let is_ignored =
        |parameter: &&[u8]| rules.ignore_query.iter().any(|rule| rule.is_met_by(name(parameter)));
    let parameters = || query.split(|&b| b == b'&');
    let kept = || parameters().filter(|parameter| !is_ignored(parameter));
    out.push(b'?');
    let mut put = |parameter: &[u8], at: usize| {
        if at > 0 {
            out.push(b'&');
        }
        out.extend_from_slice(parameter);
    };
    let mut sorted: SmallVec<[(usize, &[u8]); SORTED_MAX]> = SmallVec::new();
    let mut is_sorted = rules.sort_query;
    for (at, parameter) in kept().enumerate().take_while(|_| rules.sort_query) {
        is_sorted = at < SORTED_MAX;
        if !is_sorted {
            break;
        }
        sorted.push((at, parameter));
    }
    if is_sorted {
        // Positions break ties between equal names, as a stable sort would, which allocates.
        sorted.sort_unstable_by(|(at, a), (other_at, b)| (name(a), at).cmp(&(name(b), other_at)));
        sorted.iter().enumerate().for_each(|(at, (_, parameter))| put(parameter, at));
    } else {
        kept().enumerate().for_each(|(at, parameter)| put(parameter, at));
    }
    if out.len() == start + 1 && parameters().any(|parameter| is_ignored(&parameter)) {
        out.truncate(start);
    }
}

/// Returns the name of a parameter.
fn name(parameter: &[u8]) -> &[u8] {
    &parameter[..memchr::memchr(b'=', parameter).unwrap_or(parameter.len())]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(ignore: &[&str], sort_query: bool) -> SiteRules {
        let ignore_query = ignore.iter().map(|rule| rule.parse().expect("a pattern")).collect();
        SiteRules { ignore_query, sort_query, ..SiteRules::default() }
    }

    fn under(rules: &SiteRules, address: &str) -> String {
        let mut out = b"key".to_vec();
        append(address.as_bytes(), rules, &mut out);
        let mut again = format!("key{address}").into_bytes();
        apply(rules, 3, &mut again);
        assert_eq!(out, again);
        String::from_utf8(out.split_off(3)).expect("text")
    }

    #[test]
    fn parameters_leave_and_are_sorted() {
        let (ignoring, sorting) = (rules(&["utm_*", "fbclid"], false), rules(&["utm_*"], true));
        for (address, ignored, sorted) in [
            ("/a", "/a", "/a"),
            ("/a?", "/a?", "/a?"),
            ("/a?b", "/a?b", "/a?b"),
            ("/a?utm_source=x", "/a", "/a"),
            ("/a?utm_source", "/a", "/a"),
            ("/a?utm_a=1&", "/a", "/a"),
            ("/a?utm_a=1&utm_b", "/a", "/a"),
            ("/a?z=1&utm_a=2&b=3", "/a?z=1&b=3", "/a?b=3&z=1"),
            ("/a?b=2&a&b=1&a=0", "/a?b=2&a&b=1&a=0", "/a?a&a=0&b=2&b=1"),
            ("/a?b&&a", "/a?b&&a", "/a?&a&b"),
            ("/a?UTM_x&%75tm_x", "/a?UTM_x&%75tm_x", "/a?%75tm_x&UTM_x"),
            ("/a?b=utm_x?utm_y", "/a?b=utm_x?utm_y", "/a?b=utm_x?utm_y"),
            ("/a?b;utm_x=1", "/a?b;utm_x=1", "/a?b;utm_x=1"),
        ] {
            assert_eq!(under(&ignoring, address), ignored);
            assert_eq!(under(&sorting, address), sorted);
            assert_eq!(under(&SiteRules::default(), address), address);
        }
    }

    #[test]
    fn very_long_queries_keep_parameter_order() {
        for (count, is_sorted) in [(SORTED_MAX, true), (SORTED_MAX + 1, false), (5000, false)] {
            let names = || (0..count).rev().map(|number| format!("p{number:04}"));
            let address = format!("/?utm_a&{}", names().collect::<Vec<_>>().join("&"));
            let mut want: Vec<String> = names().collect();
            if is_sorted {
                want.sort();
            }
            assert_eq!(under(&rules(&["utm_*"], true), &address), format!("/?{}", want.join("&")));
        }
    }

    /// The slow twin: `split`, `retain` and a stable sort.
    fn twin(rules: &SiteRules, address: &str) -> String {
        let Some((path, query)) = address.split_once('?') else { return address.to_owned() };
        let name = |parameter: &str| parameter.split('=').next().unwrap_or_default().to_owned();
        let all: Vec<&str> = query.split('&').collect();
        let mut left = all.clone();
        left.retain(|parameter| {
            !rules.ignore_query.iter().any(|rule| rule.is_met_by(name(parameter).as_bytes()))
        });
        let is_less = left.len() < all.len();
        if rules.sort_query && left.len() <= SORTED_MAX {
            left.sort_by_key(|parameter| name(parameter));
        }
        let left = left.join("&");
        if left.is_empty() && is_less { path.to_owned() } else { format!("{path}?{left}") }
    }

    proptest! {
        #[test]
        fn it_makes_of_it_what_the_twin_makes(address in "/[a?]{0,2}([ab=&?]|&a=){0,24}", sort in any::<bool>()) {
            for ignore in [&[][..], &["a"], &["a*", "b"], &["*"]] {
                let rules = rules(ignore, sort);
                let once = under(&rules, &address);
                prop_assert_eq!(&once, &twin(&rules, &address));
                prop_assert_eq!(under(&rules, &once), once, "a normal form is its own");
            }
        }
    }
}
