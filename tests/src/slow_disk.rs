//! A disk that does not answer until the test says so, below the program under test: `bad_day.c`, preloaded.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::accelerator::Setup;

/// While it is shut, the program's reads of a store's segments wait.
#[derive(Debug)]
pub struct SlowDisk {
    library: PathBuf,
    gate: PathBuf,
}

impl SlowDisk {
    /// Makes one that is shut, in `directory`, which outlives it.
    ///
    /// # Panics
    /// Without a C compiler, which linking needs anyway.
    pub fn shut(directory: &Path) -> Self {
        let (library, gate) = (directory.join("bad_day.so"), directory.join("gate"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bad_day.c");
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .arg(&library)
            .args([source, "-ldl"])
            .output()
            .expect("there is a C compiler");
        assert!(output.status.success(), "{output:?}");
        std::fs::write(&gate, "").expect("a file");
        Self { library, gate }
    }

    /// Puts it below a program that is to be started.
    #[must_use]
    pub fn below(&self, setup: Setup) -> Setup {
        let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
        setup.environment("LD_PRELOAD", &text(&self.library)).environment("BAD_DAY_GATE", &text(&self.gate))
    }

    /// Lets it answer.
    ///
    /// # Panics
    /// If it did before.
    pub fn open(&self) {
        std::fs::remove_file(&self.gate).expect("the gate was shut");
    }
}
