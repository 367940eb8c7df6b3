"""Attacks on a sandbox, each a function that returns whether it got through. `probes.py --list` prints their names, each with
the right that it is about: `user` for what the kernel grants to everybody, `root` for what it grants to root. `probes.py NAME` tries
one. The test runs each in a sandbox, where none may get through, and outside as that user, where all have to: a probe
that never gets through proves nothing.

Arguments come by the environment: OUT, a folder with sentinels beside the workspace; PORT and NAME of sentinels that listen.
"""
import ctypes
import errno
import fcntl
import mmap
import os
import resource
import signal
import socket
import stat
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
OUT = os.environ.get("OUT", "")
PROBES = {}


def probe(right):
    def keep(function):
        PROBES[function.__name__] = (right, function)
        return function
    return keep


def call(number, *arguments):
    """The result of a system call, or the negative error."""
    result = libc.syscall(ctypes.c_long(number), *arguments)
    return result if result >= 0 else -ctypes.get_errno()


def n(value):
    return ctypes.c_long(value)


def others():
    """All processes that can be seen but this one."""
    own = {os.getpid()}
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in own]


def some(attempt):
    """Whether it works on one of the other processes."""
    for pid in others():
        try:
            if attempt(pid):
                return True
        except OSError:
            pass
    return False


def denied(result):
    return result in (-errno.EPERM, -errno.EACCES, -errno.ENOSYS)


# Files
@probe("user")
def read_outside():
    return open(OUT + "/secret").read() == "secret"

@probe("user")
def read_by_dots():
    return open("../secret").read() == "secret"

@probe("user")
def read_by_link():
    os.symlink(OUT + "/secret", "link")
    return open("link").read() == "secret"

@probe("user")
def list_outside():
    return "secret" in os.listdir(OUT)

@probe("user")
def write_outside():
    open(OUT + "/written", "w").close()
    return True

@probe("user")
def link_outside():
    os.link(OUT + "/own", "hard")
    return True

@probe("user")
def rename_outside():
    open("mine", "w").close()
    os.rename("mine", OUT + "/renamed")
    return True

@probe("user")
def setuid_by_chmod():
    open("s1", "w").close()
    os.chmod("s1", 0o4755)
    return os.stat("s1").st_mode & 0o4000

@probe("user")
def setuid_by_fchmod():
    with open("s2", "w") as file:
        os.fchmod(file.fileno(), 0o4755)
    return os.stat("s2").st_mode & 0o4000

@probe("user")
def setuid_by_fchmodat2():
    open("s3", "w").close()
    return call(452, n(-100), b"s3", n(0o4755), n(0)) == 0

@probe("user")
def setuid_by_open():
    os.close(os.open("s4", os.O_CREAT | os.O_WRONLY, 0o4755))
    return os.stat("s4").st_mode & 0o4000

@probe("user")
def setuid_by_temporary_file():
    fd = os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755)
    return os.fstat(fd).st_mode & 0o4000

@probe("user")
def setuid_by_creat():
    return call(85, b"s5", n(0o4755)) >= 0 and os.stat("s5").st_mode & 0o4000

@probe("user")
def setuid_by_mknod():
    return call(133, b"s6", n(0o104755), n(0)) == 0 and os.stat("s6").st_mode & 0o4000

@probe("user")
def setuid_by_openat2():
    how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    return call(437, n(-100), b"s7", how, n(24)) >= 0

@probe("user")
def setgid_folder():
    os.mkdir("g")
    os.chmod("g", 0o2755)
    return os.stat("g").st_mode & 0o2000

@probe("root")
def device():
    os.mknod("d", 0o020666, os.makedev(1, 3))
    return True

@probe("root")
def capability_of_a_file():
    open("c", "w").close()
    os.setxattr("c", "security.capability", struct.pack("<IIIII", 0x02000001, 1, 0, 0, 0))
    return True

@probe("user")
def handle_of_a_file():
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    return call(303, n(-100), b".", handle, ctypes.byref(ctypes.c_int()), n(0)) == 0

@probe("root")
def chown():
    open("o", "w").close()
    os.chown("o", 12345, 12345)
    return True

# /proc and /sys
@probe("user")
def environment_of_others():
    return some(lambda pid: b"PROBE_SENTINEL" in open(f"/proc/{pid}/environ", "rb").read())

@probe("user")
def memory_of_others():
    return some(lambda pid: open(f"/proc/{pid}/mem", "rb"))

@probe("user")
def root_of_others():
    return some(lambda pid: os.path.exists(f"/proc/{pid}/root/proc") and os.listdir(f"/proc/{pid}/root"))

@probe("user")
def descriptors_of_others():
    return some(lambda pid: os.readlink(f"/proc/{pid}/fd/0"))

@probe("user")
def program_of_others():
    return some(lambda pid: os.readlink(f"/proc/{pid}/exe"))

@probe("user")
def sentinel_is_seen():
    return some(lambda pid: b"987654" in open(f"/proc/{pid}/cmdline", "rb").read())

@probe("root")
def write_core_pattern():
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    return True

@probe("root")
def open_sysrq():
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))
    return True

@probe("user")
def kernel_symbols():
    return open("/proc/kallsyms").read(10)

@probe("user")
def kernel_command_line():
    return open("/proc/cmdline").read(10)

@probe("user")
def disk_statistics():
    return open("/proc/diskstats").read(10)

@probe("user")
def system_files():
    return os.listdir("/sys/kernel")

@probe("root")
def kernel_messages():
    return call(103, n(3), ctypes.create_string_buffer(64), n(64)) >= 0

@probe("root")
def open_kmsg():
    return os.open("/dev/kmsg", os.O_RDONLY) >= 0

@probe("root")
def disks():
    return any(name.startswith(("sd", "vd", "nvme", "xvd", "loop")) for name in os.listdir("/dev"))

# Processes
@probe("user")
def trace_others():
    return some(lambda pid: call(101, n(0x4206), n(pid), n(0), n(0)) == 0)

@probe("user")
def read_memory_of_others():
    iov = struct.pack("PN", 0, 0)
    return some(lambda pid: not denied(call(310, n(pid), iov, n(1), iov, n(1), n(0))))

@probe("user")
def descriptor_from_others():
    def attempt(pid):
        fd = os.pidfd_open(pid)
        return call(438, n(fd), n(0), n(0)) >= 0
    return some(attempt)

@probe("user")
def signal_others():
    def attempt(pid):
        os.kill(pid, 0)
        return True
    return some(attempt)

@probe("user")
def compare_with_others():
    return some(lambda pid: call(312, n(os.getpid()), n(pid), n(2), n(0), n(0)) >= 0)

@probe("user")
def inherited_descriptor():
    return os.fstat(9).st_ino > 0

@probe("root")
def type_into_a_terminal():
    _, terminal = os.openpty()
    fcntl.ioctl(terminal, 0x5412, b"x")
    return True

@probe("root")
def have_capabilities():
    status = open("/proc/self/status").read()
    return int(status.split("CapEff:")[1].split()[0], 16) != 0

@probe("root")
def raise_priority():
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    return True

@probe("root")
def set_host_name():
    socket.sethostname("x")
    return True

# Namespaces
def unshares(flag):
    child = os.fork()
    if child == 0:
        os._exit(0 if call(272, n(flag)) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0

for name, flag, right in [
    ("user", 0x10000000, "user"), ("mount", 0x20000, "root"), ("uts", 0x4000000, "root"), ("ipc", 0x8000000, "root"),
    ("network", 0x40000000, "root"), ("process", 0x20000000, "root"), ("cgroup", 0x2000000, "root"), ("time", 0x80, "root"),
]:
    PROBES["unshare_" + name] = (right, lambda flag=flag: unshares(flag))

@probe("user")
def clone_into_a_user_namespace():
    pid = call(56, n(0x10000000 | signal.SIGCHLD), n(0), n(0), n(0), n(0))
    if pid == 0:
        os._exit(0)
    return pid > 0

@probe("user")
def clone3_into_a_user_namespace():
    arguments = struct.pack("8Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    pid = call(435, arguments, n(64))
    if pid == 0:
        os._exit(0)
    return pid > 0

@probe("root")
def enter_a_namespace():
    return call(308, n(os.open("/proc/self/ns/uts", os.O_RDONLY)), n(0)) == 0

@probe("root")
def mount_a_tmpfs():
    os.mkdir("m")
    return libc.mount(b"none", b"m", b"tmpfs", n(0), None) == 0

@probe("root")
def bind_a_folder():
    os.mkdir("b")
    return libc.mount(b".", b"b", None, n(4096), None) == 0

@probe("root")
def unmount():
    os.mkdir("u")
    libc.mount(b"none", b"u", b"tmpfs", n(0), None)
    return not denied(call(166, b"u", n(2)))

@probe("root")
def open_a_file_system():
    return call(430, b"tmpfs", n(0)) >= 0

@probe("root")
def clone_a_mount():
    return call(428, n(-100), b".", n(1)) >= 0

@probe("root")
def change_a_mount():
    return not denied(call(442, n(-100), b".", n(0), struct.pack("4Q", 0, 0, 0, 0), n(32)))

@probe("root")
def move_a_mount():
    return not denied(call(429, n(-100), b".", n(-100), b".", n(0)))

@probe("root")
def change_root():
    os.chroot(".")
    return True

@probe("root")
def pivot():
    return not denied(call(155, b".", b"."))

@probe("user")
def list_mounts():
    request = struct.pack("IIQQ", 24, 0, 0xFFFFFFFFFFFFFFFF, 0)
    return call(458, request, ctypes.create_string_buffer(800), n(100), n(0)) >= 0

# Kernel
@probe("user")
def io_uring():
    return call(425, n(1), ctypes.create_string_buffer(120)) >= 0

@probe("root")
def bpf():
    return call(321, n(0), struct.pack("IIIII", 2, 4, 4, 1, 0) + bytes(44), n(64)) >= 0

@probe("root")
def perf():
    attributes = struct.pack("IIQ", 1, 64, 0) + bytes(48)
    return call(298, attributes, n(0), n(-1), n(-1), n(0)) >= 0

@probe("user")
def userfaultfd():
    return call(323, n(1)) >= 0

@probe("user")
def key_ring():
    return call(250, n(0), n(-3), n(1)) >= 0

@probe("user")
def add_a_key():
    return call(248, b"user", b"probe", b"x", n(1), n(-3)) >= 0

@probe("user")
def personality():
    return call(135, n(0x0200000)) >= 0

@probe("user")
def local_descriptor_table():
    return call(154, n(0), ctypes.create_string_buffer(16), n(16)) >= 0

@probe("user")
def secret_memory():
    return call(447, n(0)) >= 0

@probe("root")
def set_the_clock():
    return not denied(call(227, n(99), struct.pack("qq", 0, 0)))

@probe("root")
def swap():
    return not denied(call(168, b"/nonexistent"))

@probe("root")
def accounting():
    return not denied(call(163, b"/nonexistent"))

@probe("root")
def load_a_module():
    return not denied(call(313, n(-1), b"", n(0)))

# Network
def opens(family, kind, protocol=0):
    socket.socket(family, kind, protocol).close()
    return True

for name, right, family, kind, protocol in [
    ("crypto", "user", 38, 5, 0), ("vsock", "user", 40, 1, 0), ("packets", "root", 17, 3, 0), ("raw", "root", 2, 3, 1),
    ("audit", "user", 16, 3, 9), ("netfilter", "user", 16, 3, 12), ("device_events", "user", 16, 3, 15),
    ("multipath", "user", 2, 1, 262),
]:
    PROBES["socket_" + name] = (right, lambda f=family, k=kind, p=protocol: opens(f, k, p))

@probe("user")
def connect_to_the_host():
    with socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 5) as connection:
        return connection.recv(7) == b"reached"

@probe("user")
def ask_by_udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        sock.connect(("127.0.0.1", int(os.environ["PORT"])))
        sock.send(b"x")
        return sock.recv(7) == b"reached"

@probe("user")
def connect_by_path():
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(OUT + "/socket")
        return True

@probe("user")
def connect_by_name():
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("\0" + os.environ["NAME"])
        return True

@probe("user")
def other_interfaces():
    return len(socket.if_nameindex()) > 1

@probe("root")
def switch_an_interface_off():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sH14x", b"lo", 0))
    return True

@probe("user")
def message_queue():
    return call(240, b"probe", n(os.O_CREAT | os.O_RDWR), n(0o600), n(0)) >= 0

# More files
def nameless_file_in(folder):
    """Makes a file without a name, which leaves no trace."""
    os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600))
    return True

for folder in ["/usr", "/etc", "/var", "/root", "/opt", "/usr/local/bin", "/usr/lib"]:
    name = "write_to" + folder.replace("/", "_")
    PROBES[name] = ("root", lambda folder=folder: nameless_file_in(folder))

@probe("root")
def read_shadow():
    return open("/etc/shadow").read(1)

@probe("root")
def list_the_home_of_root():
    return {".bashrc", ".profile", ".ssh", ".config"} & set(os.listdir("/root"))

@probe("user")
def list_var():
    return os.listdir("/var/lib")

@probe("user")
def list_the_root():
    # A folder on the way to a tool, or to a clone below it, is shown as it has to be.
    return {"boot", "mnt", "srv", "sys"} & set(os.listdir("/")) - set(os.environ["SHOWN"].split())

@probe("user")
def read_name_servers():
    return "nameserver" in open("/etc/resolv.conf").read()

@probe("user")
def host_name_of_the_machine():
    return open("/etc/hostname").read().strip() not in ("", "sandbox")

def own_outside():
    """A file of ours beside the workspace, whoever we are."""
    return [OUT + "/own", OUT + "/secret"]

def any_of(attempt, paths):
    for path in paths:
        try:
            attempt(path)
            return True
        except OSError:
            pass
    return False

@probe("user")
def truncate_outside():
    return any_of(lambda path: os.truncate(path, os.stat(path).st_size), own_outside())

@probe("user")
def append_outside():
    return any_of(lambda path: open(path, "a").close(), own_outside())

@probe("user")
def mode_outside():
    return any_of(lambda path: os.chmod(path, 0o644), own_outside())

@probe("user")
def times_outside():
    return any_of(lambda path: os.utime(path), own_outside())

@probe("user")
def attribute_outside():
    return any_of(lambda path: os.setxattr(path, "user.probe", b"x"), own_outside())

@probe("user")
def look_outside():
    return os.stat(OUT + "/secret").st_size

@probe("user")
def watch_outside():
    fd = call(253)
    return fd >= 0 and call(254, n(fd), OUT.encode(), n(0xFFF)) >= 0

@probe("user")
def enter_outside():
    os.chdir(OUT)
    return os.listdir(".")

@probe("user")
def make_a_folder_outside():
    os.mkdir(OUT + "/folder")
    return True

@probe("user")
def make_a_link_outside():
    os.symlink("x", OUT + "/symlink")
    return True

@probe("user")
def make_a_pipe_outside():
    os.mkfifo(OUT + "/pipe")
    return True

@probe("user")
def make_a_socket_outside():
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(OUT + "/bound")
    return True

@probe("user")
def remove_outside():
    os.unlink(OUT + "/victim")
    return True

@probe("user")
def run_outside():
    child = os.fork()
    if child == 0:
        try:
            os.execv(OUT + "/program", ["program"])
        except OSError:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0

@probe("user")
def lock_outside():
    with open(OUT + "/lock", "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True

@probe("user")
def map_outside():
    with open(OUT + "/secret") as file:
        return mmap.mmap(file.fileno(), 6, prot=mmap.PROT_READ)[:] == b"secret"

@probe("user")
def read_by_a_folder_link():
    os.symlink(OUT, "folder")
    return open("folder/secret").read() == "secret"

@probe("user")
def read_by_own_root():
    return open("/proc/self/root" + OUT + "/secret").read() == "secret"

@probe("user")
def read_by_own_directory():
    return open("/proc/self/cwd/../secret").read() == "secret"

@probe("root")
def open_by_a_handle():
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    if call(303, n(-100), b".", handle, ctypes.byref(ctypes.c_int()), n(0)) != 0:
        return False
    return call(304, n(os.open(".", os.O_RDONLY)), handle, n(0)) >= 0

@probe("user")
def watch_a_file_system():
    return call(300, n(0x200), n(0)) >= 0

@probe("user")
def setgid_by_fchmodat():
    os.mkdir("g2")
    return call(268, n(-100), b"g2", n(0o2755)) == 0 and os.stat("g2").st_mode & 0o2000

@probe("user")
def setuid_by_mknodat():
    return call(259, n(-100), b"s8", n(0o104755), n(0)) == 0 and os.stat("s8").st_mode & 0o4000

@probe("root")
def block_device():
    os.mknod("block", 0o060666, os.makedev(7, 0))
    return True

@probe("root")
def trusted_attribute():
    open("t", "w").close()
    os.setxattr("t", "trusted.probe", b"x")
    return True

@probe("root")
def immutable_file():
    with open("i", "w") as file:
        flags = struct.pack("L", 0x10)
        fcntl.ioctl(file, 0x40086602, flags)
        fcntl.ioctl(file, 0x40086602, struct.pack("L", 0))
    return True

@probe("user")
def large_file():
    with open("large", "wb") as file:
        file.seek(5 << 30)
        file.write(b"x")
    os.unlink("large")
    return True

# More of /proc, /dev and /sys
def opens_for_writing(path):
    os.close(os.open(path, os.O_WRONLY))
    return True

for name, path in [
    ("drop_caches", "vm/drop_caches"), ("modprobe", "kernel/modprobe"), ("randomness_of_addresses", "kernel/randomize_va_space"),
    ("limit_of_files", "fs/file-max"), ("protected_links", "fs/protected_symlinks"), ("pid_max", "kernel/pid_max"),
    ("dmesg_restrict", "kernel/dmesg_restrict"),
]:
    PROBES["set_" + name] = ("root", lambda path=path: opens_for_writing("/proc/sys/" + path))

@probe("root")
def core_of_the_kernel():
    return open("/proc/kcore", "rb").read(4)

@probe("user")
def keys_of_the_kernel():
    return open("/proc/keys").read(1)

@probe("user")
def users_of_keys():
    return open("/proc/key-users").read(1)

@probe("root")
def timers_of_the_kernel():
    return open("/proc/timer_list").read(1)

@probe("root")
def messages_by_proc():
    fd = os.open("/proc/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    return stat.S_ISREG(os.fstat(fd).st_mode)

@probe("root")
def be_killed_last():
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-900")
    return True

@probe("user")
def directories_of_others():
    return some(lambda pid: os.readlink(f"/proc/{pid}/cwd"))

@probe("user")
def maps_of_others():
    return some(lambda pid: open(f"/proc/{pid}/maps").read(1))

@probe("user")
def forget_pages_of_others():
    return some(lambda pid: open(f"/proc/{pid}/clear_refs", "w").write("1"))

@probe("user")
def have_others_killed_first():
    return some(lambda pid: open(f"/proc/{pid}/oom_score_adj", "w").write("1000"))

@probe("user")
def namespaces_of_others():
    return some(lambda pid: os.readlink(f"/proc/{pid}/ns/net"))

@probe("user")
def reads_and_writes_of_others():
    return some(lambda pid: open(f"/proc/{pid}/io").read(1))

for name, path, right in [
    ("memory_device", "mem", "root"), ("port_device", "port", "root"), ("tun_device", "net/tun", "root"),
    ("fuse_device", "fuse", "root"), ("kvm_device", "kvm", "root"), ("loop_control", "loop-control", "root"),
    ("mapper_control", "mapper/control", "root"), ("console", "console", "root"), ("clock_device", "rtc0", "root"),
]:
    PROBES["open_" + name] = (right, lambda path=path: os.open("/dev/" + path, os.O_RDWR | os.O_NONBLOCK) >= 0)

@probe("root")
def control_groups():
    for folder, _, files in os.walk("/sys/fs/cgroup"):
        if "cgroup.procs" in files:
            return opens_for_writing(folder + "/cgroup.procs")
    return False

@probe("user")
def hardware():
    return os.listdir("/sys/devices")

# More of processes
@probe("user")
def signal_by_descriptor():
    def attempt(pid):
        signal.pidfd_send_signal(os.pidfd_open(pid), 0)
        return True
    return some(attempt)

@probe("user")
def write_memory_of_others():
    iov = struct.pack("PN", 0, 0)
    return some(lambda pid: not denied(call(311, n(pid), iov, n(1), iov, n(1), n(0))))

@probe("user")
def be_traced():
    child = os.fork()
    if child == 0:
        os._exit(0 if call(101, n(0), n(0), n(0), n(0)) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0

@probe("user")
def priority_of_others():
    def attempt(pid):
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid))
        return True
    return some(attempt)

@probe("user")
def processors_of_others():
    def attempt(pid):
        os.sched_setaffinity(pid, os.sched_getaffinity(pid))
        return True
    return some(attempt)

@probe("user")
def limits_of_others():
    return some(lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE))

@probe("user")
def disk_priority_of_others():
    return some(lambda pid: call(251, n(1), n(pid), n(2 << 13 | 4)) == 0)

@probe("root")
def real_time():
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return True

@probe("root")
def disk_in_real_time():
    return call(251, n(1), n(0), n(1 << 13)) == 0

@probe("root")
def raise_a_limit():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    return True

@probe("user")
def dump_core():
    resource.setrlimit(resource.RLIMIT_CORE, (4096, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    return True

@probe("root")
def become_somebody():
    os.setresuid(1234, 1234, 1234)
    return os.geteuid() == 1234

@probe("root")
def change_groups():
    os.setgroups([0])
    return True

@probe("user")
def gain_rights_by_a_program():
    return libc.prctl(39, n(0), n(0), n(0), n(0)) == 0

@probe("root")
def keep_rights():
    return libc.prctl(28, n(0x2F), n(0), n(0), n(0)) == 0

@probe("root")
def paste_into_a_terminal():
    _, terminal = os.openpty()
    try:
        fcntl.ioctl(terminal, 0x541C, b"\x02")
    except OSError as error:
        return error.errno not in (errno.EPERM, errno.EACCES)
    return True

# More of namespaces
@probe("root")
def mount_read_only_again():
    return not denied(call(165, b"none", b"/usr", b"none", n(0x1020), n(0)))

@probe("root")
def mount_proc():
    os.mkdir("p")
    return libc.mount(b"proc", b"p", b"proc", n(0), None) == 0

@probe("root")
def mount_control_groups():
    os.mkdir("cg")
    return libc.mount(b"none", b"cg", b"cgroup2", n(0), None) == 0

@probe("root")
def mount_an_overlay():
    for name in ["low", "up", "work", "merged"]:
        os.mkdir(name)
    options = b"lowerdir=low,upperdir=up,workdir=work"
    return not denied(call(165, b"none", b"merged", b"overlay", n(0), options))

@probe("root")
def pick_a_file_system():
    return call(433, n(-100), b"/", n(0)) >= 0

@probe("root")
def configure_a_file_system():
    return not denied(call(431, n(-1), n(0), n(0), n(0), n(0)))

@probe("root")
def make_a_file_system_mount():
    return not denied(call(432, n(-1), n(0), n(0)))

@probe("user")
def look_at_a_mount():
    request = struct.pack("IIQQ", 24, 0, 0, 2)
    return not denied(call(457, request, ctypes.create_string_buffer(800), n(800), n(0)))

for name, flag in [("mount", 0x20000), ("uts", 0x4000000), ("ipc", 0x8000000), ("network", 0x40000000), ("process", 0x20000000)]:
    def clones(flag=flag):
        pid = call(56, n(flag | signal.SIGCHLD), n(0), n(0), n(0), n(0))
        if pid == 0:
            os._exit(0)
        return pid > 0
    PROBES[f"clone_into_a_{name}_namespace"] = ("root", clones)

# More of the kernel
@probe("user")
def calls_of_the_old_architecture():
    """getpid by `int 0x80`, which a filter of one architecture does not see."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x5b\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    child = os.fork()
    if child == 0:
        os._exit(0 if ctypes.CFUNCTYPE(ctypes.c_int)(address)() > 0 else 1)
    return os.waitpid(child, 0)[1] == 0

@probe("user")
def calls_of_x32():
    return call(0x40000000 | 39) > 0

@probe("user")
def calls_that_are_new():
    return call(468, n(-100), b".", ctypes.create_string_buffer(64), n(24), n(0)) != -errno.ENOSYS

@probe("root")
def ports():
    return call(173, n(0x80), n(1), n(1)) == 0

@probe("root")
def all_ports():
    return call(172, n(3)) == 0

@probe("user")
def state_of_the_clock():
    return call(159, ctypes.create_string_buffer(512)) >= 0

@probe("root")
def set_the_time_of_day():
    return not denied(call(164, struct.pack("qq", -1, -1), n(0)))

for name, number, arguments in [
    ("restart_the_machine", 169, (0, 0, 0, 0)), ("load_a_kernel", 246, (0, 0, 0, 0xFFFF)), ("load_a_kernel_file", 320, (-1, -1, 0, 0, 0xFFFF)),
    ("insert_a_module", 175, (0, 0, 0)), ("remove_a_module", 176, (0, 0)), ("swap_on", 167, (0, 0)),
    ("quota", 179, (0x800000, 0, 0, 0)), ("quota_by_descriptor", 443, (-1, 0x800000, 0, 0)), ("set_domain_name", 171, (0, -1)),
]:
    PROBES[name] = ("root", lambda number=number, arguments=arguments: not denied(call(number, *map(n, arguments))))

@probe("user")
def move_pages():
    return call(279, n(0), n(0), n(0), n(0), n(0), n(0)) >= 0

@probe("user")
def migrate_pages():
    mask = struct.pack("L", 1)
    return call(256, n(0), n(8), mask, mask) >= 0

@probe("user")
def io_uring_registers():
    return call(427, n(-1), n(0), n(0), n(0)) != -errno.ENOSYS

@probe("user")
def request_a_key():
    return not denied(call(249, b"user", b"probe", n(0), n(-3)))

# More of the network
for name, right, family, kind, protocol in [
    ("udplite", "user", 2, 2, 136), ("sctp", "user", 2, 1, 132), ("ping", "root", 2, 2, 1), ("raw_ipv6", "root", 10, 3, 58),
    ("xdp", "root", 44, 3, 0), ("generic_netlink", "user", 16, 3, 16), ("socket_diagnosis", "user", 16, 3, 4),
    ("transformations", "user", 16, 3, 6), ("routes_by_another_protocol", "user", 16, 3, 10), ("bluetooth", "root", 31, 3, 1),
]:
    PROBES["socket_" + name] = (right, lambda f=family, k=kind, p=protocol: opens(f, k, p))

def routes_to(address, family=socket.AF_INET):
    """Whether there is a way there: connecting a datagram socket sends nothing."""
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.connect((address, 53))
    return True

for name, address in [("metadata", "169.254.169.254"), ("the_internet", "1.1.1.1"), ("a_private_network", "10.0.0.1")]:
    PROBES["way_to_" + name] = ("user", lambda address=address: routes_to(address))

@probe("user")
def send_by_name():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect("\0" + os.environ["NAME"] + "-datagrams")
        return sock.send(b"x")

@probe("user")
def send_by_path():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(OUT + "/datagrams")
        return sock.send(b"x")

for name, number, arguments in [("memory", 29, (1, 0)), ("semaphores", 64, (1, 0)), ("messages", 68, (0,))]:
    def shared(number=number, arguments=arguments):
        return call(number, n(int(os.environ["KEY"])), *map(n, arguments)) >= 0
    PROBES["shared_" + name] = ("user", shared)

def asks_an_interface(request, data):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, request, data)
    return True

for name, request, data in [
    ("rename_an_interface", 0x8923, struct.pack("16s16s8x", b"lo", b"lo")), ("give_an_interface_an_address", 0x8916,
     struct.pack("16sHH4s16x", b"lo", 2, 0, bytes([127, 0, 0, 1]))), ("listen_to_all", 0x8914, struct.pack("16sH14x", b"lo", 0x101)),
]:
    PROBES[name] = ("root", lambda request=request, data=data: asks_an_interface(request, data))

@probe("root")
def listen_at_a_low_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 443))
    return True


def main():
    if sys.argv[1] == "--list":
        for name, (right, _) in PROBES.items():
            print(name, right)
        return
    try:
        through = PROBES[sys.argv[1]][1]()
    except (OSError, ValueError) as error:
        through = None
        print(error)
    print("THROUGH" if through else "HELD")


main()
