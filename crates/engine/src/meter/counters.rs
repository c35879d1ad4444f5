//! Counters and gauges in rows, one row per core.
//!
//! A row is a whole number of 128-byte lines (two cache lines, because the hardware fetches them in pairs),
//! so that no two cores ever write to the same line. [`CoreCounters`] is the handle that may write a row;
//! each row has at most one.

use std::{
    cell::Cell,
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::snapshot::{Family, Point, Source, Unit, Value};

/// Kind of a metric: counter or gauge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value that only increases, starting from 0.
    Counter,
    /// A value that goes up and down.
    Gauge,
}

/// Name, help text and type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// Prometheus name, including the unit, without `_total`: `cache_sent_bytes`.
    pub name: &'static str,
    /// Help text, one sentence.
    pub help: &'static str,
    /// Unit of the value. For `Bytes` and `Seconds`, the name must end in the unit.
    pub unit: Unit,
    /// Counter or gauge.
    pub kind: Kind,
}

/// An enum whose variants index a table of [`Spec`]s; written by [`counters!`](crate::counters).
pub trait CounterTable: Copy + std::fmt::Debug + Send + Sync + 'static {
    /// Specifications of the metrics, one per variant, in the order of the variants.
    const SPECS: &'static [Spec];

    /// Returns the index in [`Self::SPECS`].
    fn index(self) -> usize;
}

/// Declares an enum of counters and gauges and its table. The help is also the variant's documentation.
///
/// ```
/// use engine::meter::{CounterSet, Unit};
///
/// engine::counters! {
///     /// What a shop counts.
///     pub enum Shop {
///         Sold => Counter, "shop_sold", None, "Things sold.";
///         Weight => Counter, "shop_sold_bytes", Bytes, "Bytes of things sold.";
///         Customers => Gauge, "shop_customers", None, "Customers in the shop.";
///     }
/// }
///
/// let set = CounterSet::<Shop>::new(2);
/// let counters = set.core(0);
/// counters.add(Shop::Sold, 3);
/// assert_eq!(set.total(Shop::Sold), 3);
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* $vis:vis enum $table:ident {
        $($variant:ident => $kind:ident, $name:literal, $unit:ident, $help:literal;)+
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $table {
            $(#[doc = $help] $variant,)+
        }

        impl $crate::meter::CounterTable for $table {
            const SPECS: &'static [$crate::meter::Spec] = &[
                $($crate::meter::Spec {
                    name: $name,
                    help: $help,
                    unit: $crate::meter::Unit::$unit,
                    kind: $crate::meter::Kind::$kind,
                },)+
            ];

            #[inline(always)]
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// Number of values in one 128-byte line.
const LINE: usize = 16;

#[repr(align(128))]
#[derive(Debug)]
struct Line([AtomicU64; LINE]);

/// Values of one metrics table, with a row for each core.
#[derive(Debug)]
pub struct CounterSet<K> {
    /// Lines of all rows, in the order of the rows.
    lines: Box<[Line]>,
    lines_a_row: usize,
    /// For each row, whether its [`CoreCounters`] handle has been taken.
    taken: Box<[AtomicBool]>,
    table: PhantomData<K>,
}

impl<K: CounterTable> CounterSet<K> {
    /// Creates a set for `cores` writers with all values at 0.
    ///
    /// # Panics
    /// Panics if a name does not end in its unit (`_bytes`, `_seconds`).
    #[must_use]
    pub fn new(cores: usize) -> Arc<Self> {
        for spec in K::SPECS {
            spec.unit.assert_ends(spec.name);
        }
        let lines_a_row = K::SPECS.len().div_ceil(LINE);
        Arc::new(Self {
            lines: (0..cores * lines_a_row)
                .map(|_| Line(std::array::from_fn(|_| AtomicU64::new(0))))
                .collect(),
            lines_a_row,
            taken: (0..cores).map(|_| AtomicBool::new(false)).collect(),
            table: PhantomData,
        })
    }

    /// Takes the handle that may write row `core`.
    ///
    /// # Panics
    /// Panics if there is no such row, or if its handle is already taken, because two writers would lose
    /// counts.
    #[must_use]
    pub fn core(self: &Arc<Self>, core: usize) -> CoreCounters<K> {
        assert!(!self.taken[core].swap(true, Ordering::Acquire), "counters of core {core}: a second writer");
        CoreCounters { set: Arc::clone(self), core, one_thread: PhantomData }
    }

    /// Returns the sum of a metric over all rows.
    #[must_use]
    pub fn total(&self, key: K) -> u64 {
        (0..self.cores()).map(|core| self.of(core, key)).fold(0, u64::wrapping_add)
    }

    /// Returns the value of a metric in row `core`.
    ///
    /// # Panics
    /// Panics if there is no such row.
    #[must_use]
    pub fn of(&self, core: usize, key: K) -> u64 {
        self.cell(core, key).load(Ordering::Relaxed)
    }

    /// Returns the number of rows, one per core.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.taken.len()
    }

    #[inline(always)]
    fn cell(&self, core: usize, key: K) -> &AtomicU64 {
        let index = key.index();
        &self.lines[core * self.lines_a_row + index / LINE].0[index % LINE]
    }
}

impl<K: CounterTable> Source for CounterSet<K> {
    fn collect(&self, families: &mut Vec<Family>) {
        families.extend(K::SPECS.iter().enumerate().map(|(index, spec)| {
            let place = |core: usize| &self.lines[core * self.lines_a_row + index / LINE].0[index % LINE];
            let total =
                (0..self.cores()).map(|core| place(core).load(Ordering::Relaxed)).fold(0, u64::wrapping_add);
            let value = match spec.kind {
                Kind::Counter => Value::Counter(total),
                // Signed: a gauge may be raised in one row and lowered in another.
                Kind::Gauge => Value::Gauge(total.cast_signed() as f64),
            };
            Family {
                name: spec.name,
                help: spec.help,
                unit: spec.unit,
                points: vec![Point { labels: Vec::new(), value }],
            }
        }));
    }
}

/// Handle for writing one core's values. It may move to the core's thread and then stays with one owner (`Rc`
/// shares it among the core's tasks).
#[derive(Debug)]
pub struct CoreCounters<K> {
    set: Arc<CounterSet<K>>,
    core: usize,
    /// Not `Sync`, because two threads that add at once would lose counts.
    one_thread: PhantomData<Cell<()>>,
}

impl<K: CounterTable> CoreCounters<K> {
    /// Adds `n` with a load and a store, which is enough because the row has one writer.
    #[inline]
    pub fn add(&self, key: K, n: u64) {
        let cell = self.set.cell(self.core, key);
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Subtracts `n` from a gauge.
    #[inline]
    pub fn sub(&self, key: K, n: u64) {
        self.add(key, n.wrapping_neg());
    }

    /// Sets this row's part of a gauge.
    #[inline]
    pub fn set(&self, key: K, value: u64) {
        self.set.cell(self.core, key).store(value, Ordering::Relaxed);
    }

    /// Returns the value of this row.
    #[must_use]
    pub fn value(&self, key: K) -> u64 {
        self.set.of(self.core, key)
    }
}

impl<K> Drop for CoreCounters<K> {
    fn drop(&mut self) {
        self.set.taken[self.core].store(false, Ordering::Release);
    }
}
