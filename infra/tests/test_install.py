"""install.sh, as somebody runs it: a server serves a small release, and each way in which it can be wrong."""

import functools
import hashlib
import http.server
import io
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import threading
import unittest

from tools import ROOT

VERSION = "9.8.7"
NAME = f"opencode-cloud-{VERSION}-{os.uname().machine}-linux"
SHELL = shutil.which("dash") or "sh"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files. Of one beside which there is a file .cut it sends half, and breaks off."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = pathlib.Path(self.translate_path(self.path))
        if not path.with_name(f"{path.name}.cut").exists():
            return super().do_GET()
        text = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text[: len(text) // 2])
        self.close_connection = True
        return None


def archive(script=f"#!/bin/sh\necho opencode-cloud {VERSION}\n"):
    """Returns an archive like that of infra/release/pack."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for path, mode, text in [
            ("bin/opencode-cloud", 0o755, script),
            ("share/man/man1/opencode-cloud.1", 0o644, ".TH"),
            ("lib/systemd/system/opencode-cloud.service", 0o644, "[Service]"),
        ]:
            entry = tarfile.TarInfo(f"{NAME}/{path}")
            entry.mode, entry.size = mode, len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


class Install(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.work = pathlib.Path(self.folder.name)
        self.served, self.home = self.work / "served", self.work / "a home"
        self.served.mkdir()
        self.home.mkdir()
        handler = functools.partial(Quiet, directory=str(self.served))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        self.publish(archive())

    def publish(self, packed, total=None):
        total = total or hashlib.sha256(packed).hexdigest()
        (self.served / f"{NAME}.tar.gz").write_bytes(packed)
        (self.served / f"{NAME}.tar.gz.sha256").write_text(f"{total}  {NAME}.tar.gz\n")
        (self.served / "latest.txt").write_text(f"{VERSION}\n")

    def install(self, *words, path=os.environ["PATH"], **variables):
        env = {"HOME": str(self.home), "PATH": path, "OPENCODE_CLOUD_RELEASES": f"{self.url}/", "NO_PROXY": "*", **variables}
        # From a pipe, as people do it.
        command = [SHELL, "-s", "--", *words]
        with (ROOT / "install.sh").open() as script:
            return subprocess.run(command, stdin=script, env=env, cwd=self.work, capture_output=True, text=True, timeout=60)

    def tools(self, *left_out):
        """Returns a PATH with all tools but some."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.work))
        for place in reversed(os.environ["PATH"].split(":")):
            for tool in pathlib.Path(place).glob("*") if place else []:
                if tool.name not in left_out:
                    (folder / tool.name).unlink(missing_ok=True)
                    (folder / tool.name).symlink_to(tool)
        return folder

    def check_refusal(self, done, *parts):
        """Fails unless it says why on one line or two, and nothing was installed."""
        self.assertEqual(done.returncode, 1, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)
        self.assertLessEqual(len(done.stderr.splitlines()), 2, done.stderr)
        self.assertEqual(sorted(path for path in self.home.rglob("*") if path.is_file()), [])

    def test_a_release_is_installed_and_the_next_command_is_named(self):
        done = self.install()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        program = self.home / ".local/bin/opencode-cloud"
        self.assertIn(f"opencode-cloud {VERSION} is in {program.parent}", done.stdout)
        self.assertIn(f'export PATH="{program.parent}:$PATH"', done.stdout)
        self.assertIn("next: opencode-cloud up", done.stdout)
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(said, f"opencode-cloud {VERSION}\n")
        self.assertEqual(sorted(path.name for path in program.parent.iterdir()), ["opencode-cloud"])
        self.assertTrue((self.home / ".local/share/man/man1/opencode-cloud.1").is_file())
        # A second time it replaces the first, where it is on the PATH.
        done = self.install(path=f"{program.parent}:{os.environ['PATH']}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("export PATH", done.stdout)

    def test_a_place_and_a_version_are_chosen(self):
        (self.served / "latest.txt").write_text("1.0.0\n")
        for words in ([f"--prefix={self.work}/a", f"--version={VERSION}"], ["--prefix", f"{self.work}/b", "--version", VERSION]):
            self.assertEqual(self.install(*words).returncode, 0)
        for place in "ab":
            self.assertTrue((self.work / place / "bin/opencode-cloud").is_file())
            self.assertTrue((self.work / place / "lib/systemd/system/opencode-cloud.service").is_file())
        self.assertIn("--prefix DIR", self.install("--help").stdout)
        self.check_refusal(self.install("--perfix", "x"), "does not know --perfix")
        self.check_refusal(self.install("--prefix"), "--prefix needs a value")
        self.check_refusal(self.install("--version", "../x"), "is no version")

    def test_wget_and_shasum_will_do(self):
        for left_out in (("curl",), ("sha256sum",)):
            other = {"curl": "wget", "sha256sum": "shasum"}[left_out[0]]
            if not shutil.which(other):
                print(f"skipped: there is no {other}")
                continue
            done = self.install(path=str(self.tools(*left_out)))
            self.assertEqual(done.returncode, 0, done.stderr)
        neither = str(self.tools("curl", "wget"))
        shutil.rmtree(self.home / ".local", ignore_errors=True)
        self.check_refusal(self.install(path=neither), "it needs curl or wget")

    def test_a_wrong_sum_installs_nothing(self):
        self.publish(archive(), total="0" * 64)
        self.check_refusal(self.install(), "the sum of", f"should be {'0' * 64}", "nothing is installed")
        self.publish(archive())
        (self.served / f"{NAME}.tar.gz.sha256").write_text("<html>not found</html>\n")
        self.check_refusal(self.install(), "the sum of", "nothing is installed")

    def test_half_an_archive_installs_nothing(self):
        packed = archive()
        self.publish(packed[: len(packed) // 2], total=hashlib.sha256(packed).hexdigest())
        self.check_refusal(self.install(), "the sum of", "nothing is installed")
        self.publish(packed)
        (self.served / f"{NAME}.tar.gz.cut").touch()
        self.check_refusal(self.install(), "cannot fetch", f"{NAME}.tar.gz")

    def test_what_is_missing_is_named(self):
        self.check_refusal(self.install("--version", "1.0.0"), "cannot fetch", "opencode-cloud-1.0.0-", "404", "--version")
        for missing in (f"{NAME}.tar.gz", f"{NAME}.tar.gz.sha256", "latest.txt"):
            (self.served / missing).unlink()
            self.check_refusal(self.install(), "cannot fetch", missing, "404")
        self.check_refusal(self.install(OPENCODE_CLOUD_RELEASES=""), "set OPENCODE_CLOUD_RELEASES")
        self.check_refusal(self.install(OPENCODE_CLOUD_RELEASES="http://127.0.0.1:1"), "cannot fetch")

    def test_another_platform_is_refused(self):
        for system, machine, named in (("Darwin", "arm64", "Darwin"), ("Linux", "riscv64", "riscv64")):
            tools = self.tools("uname")
            (tools / "uname").write_text(f'#!/bin/sh\n[ "$1" = -s ] && echo {system} || echo {machine}\n')
            (tools / "uname").chmod(0o755)
            self.check_refusal(self.install(path=str(tools)), "there are no releases for", named)

    def test_a_place_that_cannot_be_written_is_named(self):
        (self.work / "file").touch()
        done = self.install("--prefix", f"{self.work}/file/below")
        self.check_refusal(done, f"cannot write to {self.work}/file/below/bin", "--prefix")
        self.check_refusal(self.install(HOME=""), "--prefix")

    def test_an_executable_that_does_not_run_is_not_installed(self):
        self.publish(archive("#!/bin/sh\necho GLIBC_2.99 not found >&2\nexit 1\n"))
        self.check_refusal(self.install(), "does not run on this machine", "GLIBC_2.99 not found")

    def test_half_of_the_script_does_nothing(self):
        text = (ROOT / "install.sh").read_text()
        for part in (3, 2):
            env = {"HOME": str(self.home), "PATH": os.environ["PATH"], "OPENCODE_CLOUD_RELEASES": self.url}
            half = text[: len(text) * (part - 1) // part]
            subprocess.run([SHELL], input=half, env=env, capture_output=True, text=True, timeout=60)
            self.assertEqual(list(self.home.rglob("*")), [])


if __name__ == "__main__":
    unittest.main()
