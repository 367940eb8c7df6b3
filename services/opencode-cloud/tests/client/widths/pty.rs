//! A program in a terminal of so many columns.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Runs a program whose output goes to a terminal, and returns what it wrote, without colours.
pub(crate) fn shown(mut program: Command, columns: u16) -> String {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("a terminal of ours");
    let name = ptsname(&ours, Vec::new()).expect("its name");
    let flags = i32::try_from(OFlags::NOCTTY.bits()).expect("a flag");
    let theirs = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(OsStr::from_bytes(name.as_bytes()))
        .expect("its other side");
    let size = Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&theirs, size).expect("a size");
    program.stdin(Stdio::null()).stdout(theirs.try_clone().expect("the side twice")).stderr(theirs);
    let mut child = program.spawn().expect("it starts");
    drop(program); // otherwise the other side stays open, and there is no end
    let mut bytes = Vec::new();
    // Linux ends a terminal that nobody has open with an error.
    let _closed = File::from(ours).read_to_end(&mut bytes);
    child.wait().expect("it ends");
    plain(&String::from_utf8(bytes).expect("text"))
}

/// Returns a text without colours and carriage returns, and without lines that were drawn anew.
fn plain(text: &str) -> String {
    let text: String = text
        .split_inclusive('\n')
        .map(|line| line.rsplit_once("\r\u{1b}[2K").map_or(line, |(_, left)| left))
        .collect();
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => drop(rest.by_ref().find(|c| c.is_ascii_alphabetic())),
            '\r' => {}
            c => plain.push(c),
        }
    }
    plain
}
