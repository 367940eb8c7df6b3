"""Processes for tests: the service's, and a Postgres of our own."""

import contextlib
import glob
import json
import os
import pathlib
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

from tools import missing


def clean(environment):
    """Returns the environment of a process: nothing of the caller's but what programs need, and what is given."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8", **environment}


def until(test, what, process=None, seconds=90):
    """Waits until `test` returns something, and returns it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = test()
        if found:
            return found
        if process and process.poll() is not None:
            raise AssertionError(f"{what}: the process ended with {process.returncode}: {process.told()}")
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {seconds} s{': ' + process.told() if process else ''}")


class Process(subprocess.Popen):
    """A process whose output is in a file."""

    def __init__(self, arguments, environment, log):
        self.log = pathlib.Path(log)
        with self.log.open("wb") as output:
            super().__init__([str(word) for word in arguments], env=clean(environment), stdout=output, stderr=output,
                             stdin=subprocess.DEVNULL, cwd=self.log.parent, start_new_session=True)

    def told(self):
        return self.log.read_text(errors="replace")

    def stop(self):
        """Ends it as a supervisor would, and returns its exit code."""
        if self.poll() is None:
            self.send_signal(signal.SIGTERM)
        try:
            return self.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            raise


@contextlib.contextmanager
def folder():
    """A folder that the user of Postgres may pass through."""
    with tempfile.TemporaryDirectory(prefix="oc-", ignore_cleanup_errors=True) as path:
        os.chmod(path, 0o711)
        yield pathlib.Path(path)


# In an order of this process's own, below the ports that the system gives away: nobody takes one of them between
# the choice and the server that listens there.
PORTS = iter(random.sample(range(20_000, 32_000), 12_000))


def free_port():
    """A port that nothing listens on, and that no call before this one returned."""
    for port in PORTS:
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


@contextlib.contextmanager
def postgres(work):
    """A Postgres with the database `opencode_cloud`; gives the administrator's URL."""
    found = shutil.which("initdb") or next(iter(glob.glob("/usr/lib/postgresql/*/bin/initdb")), None)
    bin_folder = pathlib.Path(os.path.realpath(found)).parent if found else missing("postgres", "there is no initdb")
    data, port, socket_folder = work / "pgdata", free_port(), work / "pg"
    data.mkdir()
    socket_folder.mkdir()
    by = []
    if os.getuid() == 0:
        user = pwd.getpwnam("postgres")
        for path in (data, socket_folder):
            os.chown(path, user.pw_uid, user.pw_gid)
        by = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    password = work / "pgpassword"
    password.write_text("admin")
    password.chmod(0o644)
    init = [*by, bin_folder / "initdb", "--username=postgres", f"--pwfile={password}", "--auth=scram-sha-256", f"--pgdata={data}", "--no-sync"]
    subprocess.run(init, check=True, capture_output=True, cwd=work)
    server = Process([*by, bin_folder / "postgres", "-D", data, "-p", port, "-k", socket_folder, "-c", "fsync=off",
                      "-c", "listen_addresses=127.0.0.1"], {}, work / "postgres.log")
    try:
        psql = [bin_folder / "psql", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-c", "CREATE DATABASE opencode_cloud"]
        asked = lambda: subprocess.run(psql, capture_output=True, env=clean({"PGPASSWORD": "admin"})).returncode == 0
        until(asked, "Postgres answers", server)
        yield f"postgres://postgres:admin@127.0.0.1:{port}/opencode_cloud"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=60)


def post(url, key, body):
    """Sends JSON and returns the answer's."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def work_at(program, url, key):
    """Runs a prompt in a managed workspace of the service, and returns what a person sees."""
    project = post(f"{url}/project/init", key, {})["id"]
    session = post(f"{url}/project/{project}/session", key, {"title": "a test"})["id"]
    command = [str(program), "run", "--session", session, "create a.txt containing hello and then run cat a.txt"]
    environment = clean({"OPENCODE_CLOUD_URL": url, "OPENCODE_CLOUD_KEY": key})
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    told = done.stdout + done.stderr
    assert done.returncode == 0 and "a.txt" in told, f"{done.returncode}: {told}"
    return told


def ready_at(process):
    """Returns the URL that `up` or `serve` prints when it is ready."""
    def found():
        match = re.search(r"is ready at (\S+)", process.told())
        return match and match.group(1)
    return until(found, "it is ready", process)
