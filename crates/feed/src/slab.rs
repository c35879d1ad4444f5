//! Things by number, the numbers of those that are gone used again.

/// A table that is as large grows by an eighth instead of doubling: the kernel moves its pages, nothing is copied, and what
/// is not used is not held.
const GROW_BY_EIGHTHS_FROM: usize = 16 * 1024;

/// A table of things; memory goes back when the last is gone.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Adds a thing and says its number.
    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        if let Some(at) = self.vacant.pop() {
            self.places[at as usize] = Some(thing);
            return at;
        }
        if self.places.len() == self.places.capacity() && self.places.len() >= GROW_BY_EIGHTHS_FROM {
            self.places.reserve_exact(self.places.len() / 8);
        }
        self.places.push(Some(thing));
        u32::try_from(self.places.len() - 1)
            .unwrap_or_else(|_| panic!("a slab of four thousand million things"))
    }

    /// Takes a thing out.
    pub(crate) fn remove(&mut self, at: u32) -> Option<T> {
        let thing = self.places.get_mut(at as usize)?.take()?;
        self.vacant.push(at);
        if self.vacant.len() == self.places.len() {
            self.places = Vec::new();
            self.vacant = Vec::new();
        }
        Some(thing)
    }

    #[inline]
    pub(crate) fn find(&self, at: u32) -> Option<&T> {
        self.places.get(at as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn find_mut(&mut self, at: u32) -> Option<&mut T> {
        self.places.get_mut(at as usize)?.as_mut()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.vacant.len()
    }

    /// All of them with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.places).filter_map(|(at, place)| Some((at, place.as_ref()?)))
    }

    /// Numbers are below this.
    pub(crate) fn end(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: u32) -> &T {
        match &self.places[at as usize] {
            Some(thing) => thing,
            None => panic!("slab: nothing has the number {at}"),
        }
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        match &mut self.places[at as usize] {
            Some(thing) => thing,
            None => panic!("slab: nothing has the number {at}"),
        }
    }
}
