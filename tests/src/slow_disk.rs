//! A disk that does not answer until the test says so, below the program under test: `bad_day.c`, preloaded.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::accelerator::Setup;

/// While it is shut, the program's reads of a store's segments wait, or its writes.
#[derive(Debug)]
pub struct SlowDisk {
    library: PathBuf,
    gate: PathBuf,
    gate_variable: &'static str,
}

impl SlowDisk {
    /// Makes one that is shut for reads, in `directory`, which outlives it.
    ///
    /// # Panics
    /// Without a C compiler, which linking needs anyway.
    pub fn shut(directory: &Path) -> Self {
        let disk = Self::with_gate(directory, "BAD_DAY_GATE");
        disk.shut_again();
        disk
    }

    /// Makes one that can be shut for writes, in `directory`, which outlives it.
    ///
    /// # Panics
    /// As [`Self::shut`].
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

    /// Lets it answer no more.
    ///
    /// # Panics
    /// If the directory is gone.
    pub fn shut_again(&self) {
        std::fs::write(&self.gate, "").expect("a file");
    }

    /// Puts it below a program that is to be started.
    #[must_use]
    pub fn below(&self, setup: Setup) -> Setup {
        let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
        setup
            .environment("LD_PRELOAD", &text(&self.library))
            .environment(self.gate_variable, &text(&self.gate))
    }

    /// Lets it answer.
    ///
    /// # Panics
    /// If it did before.
    pub fn open(&self) {
        std::fs::remove_file(&self.gate).expect("the gate was shut");
    }
}
