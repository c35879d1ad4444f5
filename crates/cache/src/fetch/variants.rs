//! Number of stored variants of an address: with a field by which the origin varies, any client could fill
//! the store with copies of one page.
//!
//! Up to the bound, variants are stored at their first request. Beyond it a variant is stored at its second
//! request: a made-up variant is requested once, and a variant that visitors want is never kept out, whatever
//! any client sends. The count of an address that lost its slot
//! ([`direct_mapped_table`](crate::core::direct_mapped_table)) starts at zero again. A variant that is
//! already stored may always be replaced.

use engine::store::Hash;

use crate::{core::direct_mapped_table::DirectMappedTable, fetch::refused_keys::RefusedKeys};

/// Slots of the table on each core.
const ADDRESSES: usize = 1024;
/// Maximum number of new variants that an address may add in a burst.
pub(crate) const VARIANTS_MAX: u32 = 256;
/// Seconds after which one more variant may be added, because earlier ones expire.
const NEW_EVERY_S: u64 = 15;

/// Allowance of new variants of an address.
#[derive(Debug, Clone, Copy, Default)]
struct NewVariants {
    left: u32,
    /// Time at which `left` was last increased.
    at_s: u64,
}

/// Allowances of the addresses of a core.
pub(crate) struct Variants {
    added: DirectMappedTable<NewVariants>,
    refused: RefusedKeys,
}

impl Default for Variants {
    fn default() -> Self {
        Self { added: DirectMappedTable::new(ADDRESSES), refused: RefusedKeys::default() }
    }
}

impl Variants {
    /// Returns whether a new variant of an address may be stored.
    pub(crate) fn may_add(&self, address: Hash, variant: Hash, now_s: u64) -> bool {
        let mut added = self.added.get(address).unwrap_or(NewVariants { left: VARIANTS_MAX, at_s: now_s });
        let more = now_s.saturating_sub(added.at_s) / NEW_EVERY_S;
        added.left = u64::from(added.left).saturating_add(more).min(u64::from(VARIANTS_MAX)) as u32;
        added.at_s += more * NEW_EVERY_S;
        let is_among_them = added.left > 0;
        added.left = added.left.saturating_sub(1);
        self.added.set(address, added);
        is_among_them || self.refused.has_or_insert(variant, now_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::dependent::hash_of_dependent;

    const ONE: u32 = 1;
    const OTHER: u32 = 2;

    fn hash(number: u32) -> Hash {
        Hash::seeded(&number.to_le_bytes(), 0)
    }

    /// Adds another variant at each call.
    fn adds(variants: &Variants, address: u32, number: &mut u32, now_s: u64) -> bool {
        *number += 1;
        variants.may_add(hash(address), hash_of_dependent(hash(address), hash(1000 + *number)), now_s)
    }

    #[test]
    fn new_variants_per_address_are_rate_limited() {
        let (variants, mut number) = (Variants::default(), 0);
        let mut adds = |address, now_s| adds(&variants, address, &mut number, now_s);
        assert!((0..VARIANTS_MAX).all(|_| adds(ONE, 1000)));
        assert!(!adds(ONE, 1000) && adds(OTHER, 1000));
        assert!(!adds(ONE, 1014) && adds(ONE, 1016) && !adds(ONE, 1029));
        assert!(adds(ONE, 1030), "the time that was over counts on");
        assert!((0..VARIANTS_MAX).all(|_| adds(ONE, 1_000_000)) && !adds(ONE, 1_000_000));
        assert!(!adds(ONE, 0), "a clock that was set back");
    }

    #[test]
    fn a_variant_requested_again_is_admitted() {
        let (variants, mut number) = (Variants::default(), 0);
        while adds(&variants, ONE, &mut number, 1000) {}
        let wanted = hash_of_dependent(hash(ONE), hash(7));
        assert!(!variants.may_add(hash(ONE), wanted, 1000));
        assert!((0..100).all(|_| !adds(&variants, ONE, &mut number, 1001)), "made up");
        assert!(variants.may_add(hash(ONE), wanted, 1002));
        let forgotten = hash_of_dependent(hash(ONE), hash(8));
        assert!(!variants.may_add(hash(ONE), forgotten, 1003));
        while adds(&variants, ONE, &mut number, 1063) {}
        assert!(!variants.may_add(hash(ONE), forgotten, 1063));
    }
}
