//! Major page faults of each thread of a server, from `/proc/PID/task/TID/stat`.

use std::collections::BTreeMap;
use std::fs;

/// Returns the name and the major page faults of each thread of the process and its descendants, by thread
/// id.
pub(crate) fn major_faults(root: u32) -> BTreeMap<u32, (String, u64)> {
    let mut found = BTreeMap::new();
    let mut processes = vec![root];
    while let Some(process) = processes.pop() {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for task in tasks {
            // A thread may end between the listing and the reading; it is skipped.
            let Some((number, stat)) = task.file_name().to_str().and_then(|name| {
                Some((name.parse().ok()?, fs::read_to_string(task.path().join("stat")).ok()?))
            }) else {
                continue;
            };
            if let Some(faults) = parse(&stat) {
                found.insert(number, faults);
            }
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            processes.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    found
}

/// Parses the name and field 12 (majflt) of `stat` (proc(5)); the name may contain spaces and parentheses.
fn parse(stat: &str) -> Option<(String, u64)> {
    let (_, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    Some((name.to_owned(), rest.split_ascii_whitespace().nth(9)?.parse().ok()?))
}

/// Returns the faults between two readings: of all threads, and of the threads whose name begins with `name`.
pub(crate) fn between(
    before: &BTreeMap<u32, (String, u64)>,
    after: &BTreeMap<u32, (String, u64)>,
    name: &str,
) -> (u64, u64) {
    let mut sums = (0, 0);
    for (number, (thread, faults)) in after {
        let more = faults - before.get(number).map_or(0, |(_, faults)| *faults).min(*faults);
        sums.0 += more;
        if thread.starts_with(name) {
            sums.1 += more;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_whatever_the_name() {
        let stat = "42 (a) b (c)) S 7 0 0 0 -1 4194560 1 2 33 4 100 20";
        assert_eq!(parse(stat), Some(("a) b (c)".into(), 33)));
        assert_eq!(parse("42 (a"), None);
        let own = major_faults(std::process::id());
        assert!(own.len() >= 2, "this test's thread and the main one: {own:?}");
    }

    #[test]
    fn faults_of_threads_that_ended_count() {
        let of = |list: &[(u32, &str, u64)]| {
            list.iter().map(|(number, name, faults)| (*number, ((*name).to_owned(), *faults))).collect()
        };
        let before: BTreeMap<_, _> = of(&[(1, "main", 5), (2, "cache-0", 7), (3, "gone", 9)]);
        let after = of(&[(1, "main", 6), (2, "cache-0", 7), (4, "cache-1", 2)]);
        assert_eq!(between(&before, &after, "cache-"), (3, 2));
    }
}
