//! A disk that answers only when the test says so, below the program under test: `bad_day.c`, preloaded.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::accelerator::Setup;

/// A disk with a gate: while the gate is shut, the program's reads (or writes) of a store's segments wait.
#[derive(Debug)]
pub struct SlowDisk {
    library: PathBuf,
    gate: PathBuf,
    gate_variable: &'static str,
}

impl SlowDisk {
    /// Makes a disk that is shut for reads, with its files in `directory`, which must outlive it.
    ///
    /// # Panics
    /// Without a C compiler, which linking needs anyway.
    pub fn shut(directory: &Path) -> Self {
        let disk = Self::with_gate(directory, "BAD_DAY_GATE");
        disk.shut_again();
        disk
    }

    /// Makes a disk that can be shut for writes, with its files in `directory`, which must outlive it.
    ///
    /// # Panics
    /// See [`Self::shut`].
    pub fn of_writes(directory: &Path) -> Self {
        Self::with_gate(directory, "BAD_DAY_WRITE_GATE")
    }

    fn with_gate(directory: &Path, gate_variable: &'static str) -> Self {
        let (library, gate) = (directory.join("bad_day.so"), directory.join("gate"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bad_day.c");
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .arg(&library)
            .args([source, "-ldl"])
            .output()
            .expect("there is a C compiler");
        assert!(output.status.success(), "{output:?}");
        Self { library, gate, gate_variable }
    }

    /// Shuts the gate.
    ///
    /// # Panics
    /// If the directory is gone.
    pub fn shut_again(&self) {
        std::fs::write(&self.gate, "").expect("a file");
    }

    /// Puts the disk below a program that is to be started.
    #[must_use]
    pub fn below(&self, setup: Setup) -> Setup {
        let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
        setup
            .environment("LD_PRELOAD", &text(&self.library))
            .environment(self.gate_variable, &text(&self.gate))
    }

    /// Opens the gate.
    ///
    /// # Panics
    /// If the gate is open already.
    pub fn open(&self) {
        std::fs::remove_file(&self.gate).expect("the gate was shut");
    }
}
