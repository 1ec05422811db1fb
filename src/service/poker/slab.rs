//! Values at small numbers.

/// Values kept at numbers that are given again once they are free.
#[derive(Debug)]
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Keeps a value and answers its number; none if all numbers are taken.
    pub(super) fn insert(&mut self, value: T) -> Option<u32> {
        if let Some(at) = self.free.pop() {
            *self.places.get_mut(at as usize)? = Some(value);
            return Some(at);
        }
        let at = u32::try_from(self.places.len()).ok().filter(|at| *at != u32::MAX)?;
        self.places.push(Some(value));
        Some(at)
    }

    pub(super) fn get(&self, at: u32) -> Option<&T> {
        self.places.get(at as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.places.get_mut(at as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, at: u32) -> Option<T> {
        let value = self.places.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(value)
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0_u32..).zip(&self.places).filter_map(|(at, value)| Some((at, value.as_ref()?)))
    }
}
