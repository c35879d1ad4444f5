//! This machine's memory as the kernel describes it: the data caches of the first core, and huge pages.

use std::fs;
use std::path::Path;

/// A data cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Cache {
    /// Level of the cache; level 1 is nearest to the core.
    pub level: u32,
    /// Size in bytes; the full size even if several cores share the cache.
    pub bytes: usize,
}

/// Returns the data caches, nearest first; empty if the kernel does not describe them.
#[must_use]
pub fn here() -> Vec<Cache> {
    described(Path::new("/sys/devices/system/cpu/cpu0/cache"))
}

fn described(directory: &Path) -> Vec<Cache> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut caches: Vec<Cache> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let text = |name: &str| Some(fs::read_to_string(path.join(name)).ok()?.trim().to_owned());
            (text("type")? != "Instruction").then_some(())?;
            Some(Cache { level: text("level")?.parse().ok()?, bytes: bytes_of(&text("size")?)? })
        })
        .collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

/// Parses a size such as `32K`, `2M` or `123`.
fn bytes_of(size: &str) -> Option<usize> {
    let (digits, unit) = match size.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => size.strip_suffix('M').map_or((size, 1), |digits| (digits, 1 << 20)),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

/// Policy of the kernel for huge pages in anonymous memory (`transparent_hugepage/enabled`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HugePages {
    /// Huge pages are used wherever they fit.
    Always,
    /// Huge pages are used only on request (`madvise`).
    Asked,
    /// Huge pages are never used, or the kernel does not report the policy.
    Never,
}

impl HugePages {
    /// Reads the policy of this machine.
    #[must_use]
    pub fn here() -> Self {
        Self::said(&fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default())
    }

    fn said(text: &str) -> Self {
        match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
            Some(("always", _)) => Self::Always,
            Some(("madvise", _)) => Self::Asked,
            _ => Self::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_in_brackets_counts() {
        assert_eq!(HugePages::said("always [madvise] never\n"), HugePages::Asked);
        assert_eq!(HugePages::said("[always] madvise never\n"), HugePages::Always);
        assert_eq!(HugePages::said("always madvise [never]\n"), HugePages::Never);
        assert_eq!(HugePages::said(""), HugePages::Never);
    }

    #[test]
    fn cache_sizes_are_read_and_instruction_caches_ignored() {
        assert_eq!(bytes_of("32K"), Some(32 << 10));
        assert_eq!(bytes_of("2M"), Some(2 << 20));
        assert_eq!(bytes_of("512"), Some(512));
        assert_eq!(bytes_of("big"), None);
        let directory = tempfile::tempdir().unwrap();
        for (index, (level, kind, size)) in
            [("3", "Unified", "32M"), ("1", "Instruction", "32K"), ("1", "Data", "48K")].iter().enumerate()
        {
            let path = directory.path().join(format!("index{index}"));
            fs::create_dir(&path).unwrap();
            for (name, value) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(path.join(name), format!("{value}\n")).unwrap();
            }
        }
        let found = described(directory.path());
        assert_eq!(found, [Cache { level: 1, bytes: 48 << 10 }, Cache { level: 3, bytes: 32 << 20 }]);
        assert!(described(Path::new("/nonexistent")).is_empty());
    }
}
