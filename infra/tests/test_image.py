"""The Dockerfile, as hadolint reads it. It is not built here: that needs a container engine."""

import subprocess
import unittest

from tools import ROOT, program


class Image(unittest.TestCase):
    def test_hadolint_finds_nothing(self):
        hadolint = program("hadolint", "hadolint")
        done = subprocess.run([hadolint, str(ROOT / "Dockerfile")], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_it_contains_the_archive_only(self):
        ignored = (ROOT / ".dockerignore").read_text().splitlines()
        self.assertEqual([line for line in ignored if line and not line.startswith("#")], ["*", "!dist/*.tar.gz"])
        text = (ROOT / "Dockerfile").read_text()
        self.assertIn("\nUSER 65532:65532\n", text)


if __name__ == "__main__":
    unittest.main()
