//! How many variants of an address are stored: by a field that the origin varies by, anyone could fill the store with
//! copies of one page.
//!
//! Who lost its place ([`places`](crate::places)) may store as many again. What is there already may be replaced without
//! asking.

use engine::store::Hash;

use crate::places::Places;

/// Addresses that a core remembers.
const PLACES: usize = 1024;
/// New variants that an address may have at once.
pub(crate) const VARIANTS_MAX: u32 = 256;
/// After which one more may come: those of before expire, too.
const NEW_EVERY_S: u64 = 15;

/// The new variants of an address.
#[derive(Debug, Clone, Copy, Default)]
struct Added {
    left: u32,
    /// Of the last that was added to `left`.
    at_s: u64,
}

/// Those of each address.
pub(crate) struct Variants(Places<Added>);

impl Default for Variants {
    fn default() -> Self {
        Self(Places::new(PLACES))
    }
}

impl Variants {
    /// Leave to store a variant of an address that is not there yet.
    pub(crate) fn may_add(&self, address: Hash, now_s: u64) -> bool {
        let mut added = self.0.get(address).unwrap_or(Added { left: VARIANTS_MAX, at_s: now_s });
        let more = now_s.saturating_sub(added.at_s) / NEW_EVERY_S;
        added.left = u64::from(added.left).saturating_add(more).min(u64::from(VARIANTS_MAX)) as u32;
        added.at_s += more * NEW_EVERY_S;
        let may = added.left > 0;
        added.left = added.left.saturating_sub(1);
        self.0.set(address, added);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_and_then_some_each_minute() {
        let variants = Variants::default();
        let (one, other) = (Hash::seeded(b"one", 0), Hash::seeded(b"other", 0));
        assert!((0..VARIANTS_MAX).all(|_| variants.may_add(one, 1000)));
        assert!(!variants.may_add(one, 1000) && variants.may_add(other, 1000));
        assert!(!variants.may_add(one, 1014) && variants.may_add(one, 1016) && !variants.may_add(one, 1029));
        assert!(variants.may_add(one, 1030), "the time that was over counts on");
        assert!(
            (0..VARIANTS_MAX).all(|_| variants.may_add(one, 1_000_000)) && !variants.may_add(one, 1_000_000)
        );
        assert!(!variants.may_add(one, 0), "a clock that was set back");
    }
}
