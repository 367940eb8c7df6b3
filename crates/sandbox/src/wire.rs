//! Requests between worker, launcher and keeper: one byte over a socket that carries descriptors, the first of which is
//! memory with the words. The receiver trusts the sender: a worker asks, and commands reach none of these sockets.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::command::DiskShare;
use crate::sys;

/// The most descriptors of one request.
const MOST: usize = 4;
/// The most bytes of one request: a command line and an environment.
const LARGEST: u64 = 8 * 1024 * 1024;

/// Words, one after the other, each with its length.
#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        self.0.extend(bytes);
    }

    pub(crate) fn number(&mut self, number: i64) {
        self.0.extend(number.to_le_bytes());
    }

    pub(crate) fn words<'w>(&mut self, words: impl ExactSizeIterator<Item = &'w OsStr>) {
        self.number(i64::try_from(words.len()).unwrap_or(i64::MAX));
        words.for_each(|word| self.bytes(word.as_bytes()));
    }
}

/// Reads words in the order in which they were written.
pub(crate) struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    pub(crate) fn number(&mut self) -> Option<i64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i64::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn word(&mut self) -> Option<OsString> {
        self.bytes().map(|bytes| OsString::from_vec(bytes.to_vec()))
    }

    pub(crate) fn path(&mut self) -> Option<PathBuf> {
        self.word().map(PathBuf::from)
    }

    pub(crate) fn words(&mut self) -> Option<Vec<OsString>> {
        let count = self.number()?;
        (0..count).map(|_| self.word()).collect()
    }
}

/// Something that a request says.
pub(crate) trait Request: Sized {
    fn write(&self, to: &mut Writer);
    fn read(from: &mut Reader<'_>) -> Option<Self>;

    fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        self.write(&mut writer);
        writer.0
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let request = Self::read(&mut reader)?;
        reader.0.is_empty().then_some(request)
    }
}

/// Sends a request with its descriptors. A socket that is full gives [`io::ErrorKind::WouldBlock`] where it does not block.
pub(crate) fn send(
    socket: impl AsFd,
    request: &impl Request,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let memory = sys::in_memory(&request.to_bytes())?;
    let mut all = vec![memory.as_fd()];
    all.extend(descriptors);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&all)) {
        return Err(io::Error::other("too many descriptors"));
    }
    sendmsg(socket, &[IoSlice::new(b"+")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a request and its descriptors; `None` at the socket's end.
pub(crate) fn receive<R: Request>(socket: impl AsFd) -> io::Result<Option<(R, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    if descriptors.is_empty() {
        return Err(io::Error::other("a request without words"));
    }
    let memory = File::from(descriptors.remove(0));
    let mut bytes = Vec::new();
    memory.take(LARGEST).read_to_end(&mut bytes)?;
    let request = R::from_bytes(&bytes).ok_or_else(|| io::Error::other("a torn request"))?;
    Ok(Some((request, descriptors)))
}

/// Asks the launcher for a cell. Descriptors: the keeper's end of the cell's socket, the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CellRequest {
    /// With the launcher's own rights (tier A) or in a user namespace (tier B).
    pub(crate) privileged: bool,
    /// Where commands see the workspace.
    pub(crate) shown: PathBuf,
    /// Folders that commands see where the host has them, read-only.
    pub(crate) tools: Vec<OsString>,
    /// Paths below the workspace that are read-only.
    pub(crate) read_only: Vec<PathBuf>,
    /// Paths below the workspace in whose place commands see nothing.
    pub(crate) hidden: Vec<PathBuf>,
    /// The folder that commands see as the `.git` of the workspace; none: that itself.
    pub(crate) git_front: Option<PathBuf>,
    /// The first of the host's user ids for commands, and how many there are.
    pub(crate) uids: (u32, u32),
    pub(crate) memory_bytes: u64,
    pub(crate) all_cells_bytes: u64,
    pub(crate) processes: u32,
    /// The Location's lock file.
    pub(crate) lock: Option<PathBuf>,
    /// Whether the cell has a way out: a listener comes with the answer.
    pub(crate) exit: bool,
    /// Certificates in PEM for commands to believe; empty: the system's.
    pub(crate) certificates: Vec<u8>,
    /// The folder that commands see as [`crate::OUTPUTS`], read-only.
    pub(crate) outputs: PathBuf,
}

impl Request for CellRequest {
    fn write(&self, to: &mut Writer) {
        to.number(i64::from(self.privileged));
        to.bytes(self.shown.as_os_str().as_bytes());
        to.words(self.tools.iter().map(OsString::as_os_str));
        to.words(self.read_only.iter().map(|path| path.as_os_str()));
        to.words(self.hidden.iter().map(|path| path.as_os_str()));
        to.words(self.git_front.iter().map(|path| path.as_os_str()));
        to.number(i64::from(self.uids.0));
        to.number(i64::from(self.uids.1));
        to.number(i64::try_from(self.memory_bytes).unwrap_or(i64::MAX));
        to.number(i64::try_from(self.all_cells_bytes).unwrap_or(i64::MAX));
        to.number(i64::from(self.processes));
        to.words(self.lock.iter().map(|path| path.as_os_str()));
        to.number(i64::from(self.exit));
        to.bytes(&self.certificates);
        to.bytes(self.outputs.as_os_str().as_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            privileged: from.number()? != 0,
            shown: from.path()?,
            tools: from.words()?,
            read_only: from.words()?.into_iter().map(PathBuf::from).collect(),
            hidden: from.words()?.into_iter().map(PathBuf::from).collect(),
            git_front: from.words()?.into_iter().next().map(PathBuf::from),
            uids: (u32::try_from(from.number()?).ok()?, u32::try_from(from.number()?).ok()?),
            memory_bytes: u64::try_from(from.number()?).ok()?,
            all_cells_bytes: u64::try_from(from.number()?).ok()?,
            processes: u32::try_from(from.number()?).ok()?,
            lock: from.words()?.into_iter().next().map(PathBuf::from),
            exit: from.number()? != 0,
            certificates: from.word()?.into_vec(),
            outputs: from.path()?,
        })
    }
}

/// The answer of launcher or keeper. Descriptors: the listener of the cell's way out, if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CellAnswer {
    /// The cell is made.
    Ready {
        /// Its keeper.
        keeper: i32,
        /// Why it has no control groups; empty where it has them.
        unlimited: String,
    },
    /// There is none, for this reason.
    Refused(String),
}

impl Request for CellAnswer {
    fn write(&self, to: &mut Writer) {
        match self {
            Self::Ready { keeper, unlimited } => {
                to.number(i64::from(*keeper));
                to.bytes(unlimited.as_bytes());
            }
            Self::Refused(why) => {
                to.number(0);
                to.bytes(why.as_bytes());
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let keeper = i32::try_from(from.number()?).ok()?;
        let words = from.word()?.into_string().ok()?;
        Some(match keeper {
            0 => Self::Refused(words),
            keeper => Self::Ready { keeper, unlimited: words },
        })
    }
}

/// Asks a keeper for a command. Descriptors: its output, the keeper's end of the socket on which it reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandRequest {
    pub(crate) timeout: Duration,
    /// The fencing token, where the Location has a lock.
    pub(crate) token: Option<i64>,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    /// `NAME=value`.
    pub(crate) env: Vec<OsString>,
    /// Where it starts, as commands see it.
    pub(crate) directory: PathBuf,
    pub(crate) share: DiskShare,
}

impl Request for CommandRequest {
    fn write(&self, to: &mut Writer) {
        to.number(i64::try_from(self.timeout.as_millis()).unwrap_or(i64::MAX));
        to.number(i64::from(self.token.is_some()));
        to.number(self.token.unwrap_or_default());
        to.bytes(self.program.as_os_str().as_bytes());
        to.words(self.args.iter().map(OsString::as_os_str));
        to.words(self.env.iter().map(OsString::as_os_str));
        to.bytes(self.directory.as_os_str().as_bytes());
        to.number(i64::try_from(self.share.file_bytes).unwrap_or(i64::MAX));
        to.number(i64::from(self.share.removes_only));
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let timeout = Duration::from_millis(u64::try_from(from.number()?).ok()?);
        let (fenced, token) = (from.number()? != 0, from.number()?);
        Some(Self {
            timeout,
            token: fenced.then_some(token),
            program: from.path()?,
            args: from.words()?,
            env: from.words()?,
            directory: from.path()?,
            share: DiskShare {
                file_bytes: u64::try_from(from.number()?).ok()?,
                removes_only: from.number()? != 0,
            },
        })
    }
}

/// `NAME=value`, as a program finds it.
pub(crate) fn variable(name: &OsStr, value: &OsStr) -> OsString {
    let mut word = name.to_os_string();
    word.push("=");
    word.push(value);
    word
}

/// `path` below `root`, as commands see it that see `root` as `shown`.
pub(crate) fn seen(path: &Path, root: &Path, shown: &Path) -> Option<PathBuf> {
    let rest = path.strip_prefix(root).ok()?;
    Some(if rest.as_os_str().is_empty() { shown.to_path_buf() } else { shown.join(rest) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_socket_with_descriptors() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let cell = CellRequest {
            privileged: true,
            shown: "/work space".into(),
            tools: vec!["/opt/a".into(), "/b".into()],
            read_only: vec!["a/.git".into()],
            hidden: vec![".ssh".into(), ".netrc".into()],
            git_front: Some("/spool/git-1".into()),
            uids: (200_000, 8192),
            memory_bytes: 1 << 31,
            all_cells_bytes: 1 << 32,
            processes: 512,
            lock: Some("/l".into()),
            exit: true,
            certificates: vec![1, 0, 255],
            outputs: "/spool/outputs".into(),
        };
        send(&ours, &cell, &[ours.as_fd()]).unwrap();
        let (seen, fds) = receive::<CellRequest>(&theirs).unwrap().unwrap();
        assert_eq!((seen, fds.len()), (cell.clone(), 1));
        let ready = CellAnswer::Ready { keeper: 7, unlimited: "none\n".into() };
        for answer in [ready, CellAnswer::Refused("why".into())] {
            send(&ours, &answer, &[]).unwrap();
            assert_eq!(receive::<CellAnswer>(&theirs).unwrap().unwrap().0, answer);
        }
        let command = CommandRequest {
            timeout: Duration::from_secs(3),
            token: Some(-7),
            program: "/bin/sh".into(),
            args: vec!["-c".into(), OsString::from_vec(vec![b'x', 0xFF, b'\n'])],
            env: vec!["A=b".into()],
            directory: "/w".into(),
            share: DiskShare { file_bytes: 1 << 33, removes_only: true },
        };
        send(&ours, &command, &[]).unwrap();
        assert_eq!(receive::<CommandRequest>(&theirs).unwrap().unwrap().0, command);
        assert_eq!(CellRequest::from_bytes(&cell.to_bytes()[1..]), None);
        drop((ours, fds));
        assert!(receive::<CellRequest>(&theirs).unwrap().is_none());
    }

    #[test]
    fn a_directory_is_seen_below_the_workspace() {
        let seen = |path: &str| seen(Path::new(path), Path::new("/a/b"), Path::new("/workspace"));
        assert_eq!(seen("/a/b"), Some("/workspace".into()));
        assert_eq!(seen("/a/b/c"), Some("/workspace/c".into()));
        assert_eq!(seen("/a"), None);
    }
}
