//! A disk in memory, for the fuzz target of queue files and for bheap's own tests of damage.

use std::{io, path::Path};

use bheap::file::Disk;

#[derive(Debug, Clone)]
pub(crate) struct Memory(pub(crate) Vec<u8>);

impl Disk for Memory {
    fn path(&self) -> &Path {
        Path::new("memory")
    }
    fn bytes(&self) -> &[u8] {
        &self.0
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
    fn reserve(&mut self, _from: usize, _bytes: usize) -> io::Result<()> {
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}
