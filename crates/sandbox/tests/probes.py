"""Attacks on a sandbox, each a function that returns whether it got through. `probes.py --list` prints their names, each with
the right that it is about: `user` for what the kernel grants to everybody, `root` for what it grants to root. `probes.py NAME` tries
one. The test runs each in a sandbox, where none may get through, and outside as that user, where all have to: a probe
that never gets through proves nothing.

Arguments come by the environment: OUT, a folder with sentinels beside the workspace; PORT and NAME of sentinels that listen.
"""
import ctypes
import errno
import fcntl
import os
import signal
import socket
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


def main():
    if sys.argv[1] == "--list":
        for name, (right, _) in PROBES.items():
            print(name, right)
        return
    try:
        through = PROBES[sys.argv[1]][1]()
    except OSError as error:
        through = None
        print(error)
    print("THROUGH" if through else "HELD")


main()
