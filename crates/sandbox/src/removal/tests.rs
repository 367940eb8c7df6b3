use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use rustix::fs::{OFlags, mkdirat};

use super::*;

/// Makes a folder below a folder, so many times, and a file in the last.
pub(crate) fn dig(at: &Path, levels: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder = openat(CWD, at, flags, Mode::empty()).expect("a folder");
    for _ in 0..levels {
        mkdirat(&folder, "d", Mode::RWXU).expect("a folder in it");
        folder = openat(&folder, "d", flags, Mode::empty()).expect("its folder");
    }
    let make = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(&folder, "file", make, Mode::RWXU).expect("a file");
}

/// In memory where that is to be had: a disk takes a minute for what the processor does in a second.
fn folder_with(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder =
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
    let path = folder.path().join(name);
    fs::create_dir(&path).expect("a folder");
    (folder, path)
}

/// Finding security-3 C2.
#[test]
fn a_tree_of_100_000_levels_is_removed_in_a_small_stack() {
    let (_folder, top) = folder_with("top");
    dig(&top, 100_000);
    // A stack that holds a few calls, and not one for each level.
    let removed = std::thread::Builder::new().stack_size(128 * 1024).spawn({
        let top = top.clone();
        move || {
            remove_tree(&top).expect("removed");
            let open = fs::read_dir("/proc/self/fd").expect("descriptors").count();
            assert!(open < 500, "{open} descriptors are open");
        }
    });
    removed.expect("a thread").join().expect("it ends");
    assert!(!top.exists());
    remove_tree(&top).expect("it is gone already");
}

#[test]
fn wide_and_deep_trees_go_and_their_folder_may_stay() {
    let (_folder, top) = folder_with("top");
    for number in 0..40 {
        let wide = top.join(format!("wide-{number}"));
        fs::create_dir_all(wide.join("a/b/c")).expect("folders");
        fs::write(wide.join("a/b/file"), "x").expect("a file");
        dig(&wide, 70);
    }
    // Names that moved folders get.
    fs::create_dir_all(top.join(".removing-0/full")).expect("folders");
    fs::write(top.join(".removing-1"), "x").expect("a file");
    empty_folder(&top).expect("emptied");
    assert_eq!(fs::read_dir(&top).expect("it stays").count(), 0);
    remove_tree(&top).expect("removed");
    assert!(!top.exists());
    assert_eq!(empty_folder(&top).expect_err("gone").kind(), io::ErrorKind::NotFound);
}

#[test]
fn links_are_removed_and_never_followed() {
    let (folder, top) = folder_with("top");
    let outside = folder.path().join("outside");
    fs::create_dir(&outside).expect("a folder");
    fs::write(outside.join("kept"), "x").expect("a file");
    symlink(&outside, top.join("link")).expect("a link");
    symlink("..", top.join("up")).expect("a link");
    dig(&top, 40);
    remove_tree(&top).expect("removed");
    assert!(outside.join("kept").exists() && !top.exists());
    let link = folder.path().join("link");
    symlink(&outside, &link).expect("a link");
    assert_eq!(empty_folder(&link).expect_err("a link").kind(), io::ErrorKind::NotADirectory);
    remove_tree(&link).expect("the link alone");
    assert!(outside.join("kept").exists() && link.symlink_metadata().is_err());
    remove_tree(&outside.join("kept")).expect("a file");
    assert!(!outside.join("kept").exists());
}

#[test]
fn a_folder_without_rights_is_removed_too() {
    let (_folder, top) = folder_with("top");
    let closed = top.join("a/closed");
    fs::create_dir_all(closed.join("b")).expect("folders");
    fs::write(closed.join("b/file"), "x").expect("a file");
    for path in [&closed.join("b"), &closed] {
        fs::set_permissions(path, Permissions::from_mode(0o000)).expect("closed");
    }
    as_an_ordinary_user(&top, |top| remove_tree(top).expect("removed"));
    assert!(!top.exists());
}

/// Runs `work` as an ordinary user who owns everything, if this is root, whom no mode stops.
fn as_an_ordinary_user(top: &Path, work: impl FnOnce(&Path) + Send) {
    const USER: u32 = 4242;
    if !rustix::process::geteuid().is_root() {
        return work(top);
    }
    let parent = top.parent().expect("a parent");
    fs::set_permissions(parent, Permissions::from_mode(0o777)).expect("opened");
    let owned =
        std::process::Command::new("chown").arg("-R").arg(USER.to_string()).arg(top).status();
    assert!(owned.expect("chown runs").success());
    // Rights are a thread's.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let none = rustix::thread::CapabilitySet::empty();
            let sets = rustix::thread::CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            };
            let user = rustix::process::Uid::from_raw(USER);
            rustix::thread::set_thread_uid(user).expect("another user");
            rustix::thread::set_capabilities(None, sets).expect("no rights");
            work(top);
        });
        thread.join().expect("it ends");
    });
}

#[test]
fn what_stays_is_told_and_the_rest_goes() {
    if !rustix::process::geteuid().is_root() {
        return; // only root has a mount that stays
    }
    let (_folder, top) = folder_with("top");
    fs::create_dir_all(top.join("a/mounted")).expect("folders");
    for name in ["a/file", "z"] {
        fs::write(top.join(name), "x").expect("a file");
    }
    let script = format!(
        "mount -t tmpfs tmpfs {0}/a/mounted && echo x >{0}/a/mounted/kept && exec \"$0\" --ignored --exact {1}",
        top.display(),
        "removal::tests::inner_removal"
    );
    let this = std::env::current_exe().expect("this program");
    let mut command = std::process::Command::new("unshare");
    // Also for an ordinary user.
    command
        .args(["--map-root-user", "--mount", "--propagation=private", "--", "sh", "-c", &script])
        .arg(this);
    let ended = command.env("REMOVAL_TOP", &top).output().expect("unshare runs");
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    if !ended.status.success() && !text.contains("test result") {
        return; // no namespaces to throw away
    }
    assert!(ended.status.success(), "{text}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(
        top.join("a/mounted").exists() && !top.join("a/file").exists() && !top.join("z").exists()
    );
}

#[test]
#[ignore = "the inner part of the test above"]
fn inner_removal() {
    let top = std::env::vars_os().find(|(name, _)| name == "REMOVAL_TOP").expect("a folder").1;
    let top = PathBuf::from(top);
    let error = remove_tree(&top).expect_err("a mount is in it").to_string();
    assert!(
        error.contains("2 of its entries cannot be removed, the first is a/mounted: "),
        "{error}"
    );
    assert!(top.join("a/mounted/kept").exists(), "another file system is not entered");
}

#[test]
fn a_scratch_folder_goes_with_what_is_in_it() {
    let (_folder, top) = folder_with("top");
    let scratch = ScratchFolder::make(&top, "scratch-").expect("made");
    dig(scratch.path(), 18_000);
    drop(scratch);
    assert_eq!(fs::read_dir(&top).expect("a folder").count(), 0);
}
