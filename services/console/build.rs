//! Copies the built console, or the page that says how to build it, to where the crate embeds it from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const PLACEHOLDER: &str = include_str!("src/placeholder.html");

fn main() -> io::Result<()> {
    // The folder is always there; `./dev console` fills it.
    println!("cargo::rerun-if-changed=site");
    println!("cargo::rerun-if-changed=src/placeholder.html");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    let (built, site) = (Path::new("site/dist"), out.join("site"));
    if site.exists() {
        fs::remove_dir_all(&site)?;
    }
    if built.join("index.html").is_file() {
        copy(built, &site)
    } else {
        fs::create_dir_all(&site)?;
        fs::write(site.join("index.html"), PLACEHOLDER)
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
