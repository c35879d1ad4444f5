//! Writes every error page as HTML into a directory, to look at: `cargo run --example error_pages -- DIRECTORY`.

use std::{env, error::Error, fs, path::PathBuf};

use cache::error_page::{Fault, render};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = PathBuf::from(env::args_os().nth(1).ok_or("usage: error_pages DIRECTORY")?);
    fs::create_dir_all(&directory)?;
    for fault in Fault::ALL {
        let page = render(fault, "0f3a-92c1-77", Some(b"text/html"), None);
        fs::write(directory.join(fault.words().code).with_extension("html"), page.body)?;
    }
    Ok(())
}
