"""./dev, in a checkout that was moved, and with a suite that fails."""

import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
import unittest

from tools import ROOT


def copy_of_dev(folder):
    shutil.copy(ROOT / "dev", folder / "dev")
    return str(folder / "dev")


class Dev(unittest.TestCase):
    # A Python environment names the folder that it was made in, and its programs do not start elsewhere.
    def test_environments_of_a_moved_checkout_are_made_anew(self):
        with tempfile.TemporaryDirectory() as work:
            here = pathlib.Path(work, "here")
            here.mkdir()
            program = copy_of_dev(here)
            subprocess.run([program, "help"], check=True, capture_output=True)
            for name in ("venv", "deploy", "prometheus"):
                (here / ".dev" / name).mkdir()
            subprocess.run([program, "help"], check=True, capture_output=True)
            self.assertTrue((here / ".dev/venv").is_dir(), "a checkout that stays keeps its environments")
            there = pathlib.Path(work, "there")
            here.rename(there)
            subprocess.run([str(there / "dev"), "help"], check=True, capture_output=True)
            left = sorted(path.name for path in (there / ".dev").iterdir() if path.is_dir())
            self.assertEqual(left, ["prometheus"], "what names no folder may stay")

    def test_a_word_that_there_is_not_is_named(self):
        with tempfile.TemporaryDirectory() as work:
            program = copy_of_dev(pathlib.Path(work))
            done = subprocess.run([program, "upp"], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertTrue(done.stderr.startswith("dev: no such word: upp\n./dev up "), done.stderr)

    # Debian's python3 comes without the part that makes environments, and its Node is too old.
    def test_python_learns_to_make_environments(self):
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            program = copy_of_dev(work)
            fakes, said, learned = work / "fakes", work / "said", work / "learned"
            fakes.mkdir()
            programs = {
                "node": "exit 1",
                "npm": "exit 0",
                "sudo": 'shift; exec "$@"',
                "apt-get": f'echo "$*" >>{said}; touch {learned}',
                "python3": f'[ -e {learned} ] || exit 1; [ "$2" = venv ] || exit 0; mkdir -p "$3/bin"; '
                f'for name in pip node npm; do printf "#!/bin/sh\\necho $name >>{said}\\n" >"$3/bin/$name"; '
                'chmod 755 "$3/bin/$name"; done',
            }
            for name, script in programs.items():
                (fakes / name).write_text(f"#!/bin/sh\n{script}\n")
                (fakes / name).chmod(0o755)
            environment = {**os.environ, "PATH": f"{fakes}:/usr/bin:/bin"}
            done = subprocess.run([program, "console"], capture_output=True, text=True, env=environment)
            self.assertTrue(said.exists(), done.stderr)
            lines = said.read_text().splitlines()
            self.assertIn("install -y --no-install-recommends python3-venv", lines)
            self.assertIn("pip", lines, "the wheel is installed then")
            self.assertNotIn("there is no Node", done.stderr)

    def test_a_suite_that_fails_keeps_no_other_from_running(self):
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            program = copy_of_dev(work)
            (work / "infra/tests").mkdir(parents=True)
            (work / "infra/tests/test_fails.py").write_text(
                "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.fail('on purpose')\n"
            )
            lists = work / ".ci/wheels"
            lists.mkdir(parents=True)
            (lists / "deploy.txt").write_text("")
            installed = work / ".dev/deploy"
            installed.mkdir(parents=True)
            (installed / "list.txt").write_text("")
            (work / ".dev/place").write_text(f"{work}\n")
            fakes = work / "fakes"
            fakes.mkdir()
            said = work / "said"
            # Each tool that ./dev looks for is there, and cargo notes what it was asked.
            for name in (
                "postgres initdb pgbouncer nats-server node npm npx tmux curl ip zsh fish chromium schemathesis moto_server dulwich "
                "prometheus oteltap kent-server cc cargo-nextest executable"
            ).split():
                (fakes / name).write_text("#!/bin/sh\nexit 0\n")
            (fakes / "cargo").write_text(f'#!/bin/sh\necho "$*" >>{said}\n')
            for fake in fakes.iterdir():
                fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
            web = work / "services/console/web"
            (web / "node_modules").mkdir(parents=True)
            (web / "package-lock.json").write_text("{}")
            (work / "services/console/site").mkdir()
            environment = {
                **os.environ,
                "PATH": f"{fakes}:{os.environ['PATH']}",
                "OC_BIN": str(fakes / "executable"),
            }
            done = subprocess.run([program, "test"], capture_output=True, text=True, env=environment)
            self.assertIn("on purpose", done.stderr)
            self.assertIn("nextest run", said.read_text(), done.stderr)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("the tests of infra/ failed", done.stderr)


if __name__ == "__main__":
    unittest.main()
