"""The release archive, as somebody without this repository gets it: unpacked in an empty folder, and started."""

import json
import os
import shutil
import subprocess
import unittest

from servers import Process, folder, ready_at, work_at
from tools import ROOT, executable


class Release(unittest.TestCase):
    def test_an_unpacked_archive_starts_a_service(self):
        program = executable()
        with folder() as work:
            usr = self.unpacked(program, work)
            self.check_files(usr / "share")
            self.check_unit(usr / "lib/systemd/system/opencode-cloud.service")
            opencode = usr / "bin/opencode-cloud"
            command = [opencode, "serve", f"--data-dir={work}/data", "--port=0", "--shared"]
            if os.geteuid() != 0:
                # Several people want a sandbox of root's.
                command.append("--sandbox-require=C")
            service = Process(command, {"HOME": str(work)}, work / "log")
            try:
                url = ready_at(service)
                key = (work / "data/client.key").read_text().strip()
                self.assertIn("hello", work_at(opencode, url, key))
            finally:
                code = service.stop()
            self.assertEqual(code, 0, service.told())

    def unpacked(self, program, work):
        packed, usr = work / "dist", work / "usr local"
        packed.mkdir()
        usr.mkdir()
        # Quickly: an executable with all that debuggers read is large.
        command = [str(ROOT / "infra/release/pack"), program, str(packed)]
        archive = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "PACK_LEVEL": "1"}).stdout.strip()
        self.assertIn(f"opencode-cloud-{(packed / 'latest.txt').read_text().strip()}-", archive)
        subprocess.run(["sha256sum", "--check", "--strict", f"{archive}.sha256"], check=True, cwd=packed, capture_output=True)
        subprocess.run(["tar", "--strip-components=1", "-xzf", archive, "-C", str(usr)], check=True)
        return usr

    def check_files(self, share):
        for path, part in [
            ("man/man1/opencode-cloud.1", ".TH"),
            ("man/man1/opencode-cloud-run.1", ".TH"),
            ("bash-completion/completions/opencode-cloud", "opencode-cloud"),
            ("zsh/site-functions/_opencode-cloud", "#compdef opencode-cloud"),
            ("fish/vendor_completions.d/opencode-cloud.fish", "complete -c opencode-cloud"),
            ("doc/opencode-cloud/README.md", "# OpenCode Cloud"),
            ("doc/opencode-cloud/install.md", "systemctl"),
            ("doc/opencode-cloud/LICENSE", "Apache License"),
            ("doc/opencode-cloud/THIRD-PARTY-LICENSES.txt", "Permission is hereby granted"),
        ]:
            self.assertIn(part, (share / path).read_text(), path)
        bom = json.loads((share / "doc/opencode-cloud/sbom.cdx.json").read_text())
        self.assertEqual((bom["bomFormat"], bom["specVersion"]), ("CycloneDX", "1.5"))
        crates = {crate["name"]: crate for crate in bom["components"]}
        self.assertGreater(len(crates), 200)
        self.assertEqual(crates["tokio"]["licenses"], [{"expression": "MIT"}])
        self.assertEqual(crates["tokio"]["hashes"][0]["alg"], "SHA-256")
        self.assertEqual([crate for crate in crates.values() if "licenses" not in crate], [])
        for name in ("testkit", "proptest", "rcgen"):
            self.assertFalse(name in crates, f"{name} is for tests only")

    def check_unit(self, unit):
        self.assertIn("ExecStart=/usr/local/bin/opencode-cloud serve", unit.read_text())
        if not shutil.which("systemd-analyze"):
            print("skipped: the unit is not verified, since there is no systemd-analyze")
            return
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
        # The program comes with the installation, and other units of this machine are not ours.
        ours = [line for line in done.stderr.splitlines() if "opencode-cloud" in line and "is not executable" not in line]
        self.assertEqual(ours, [])


if __name__ == "__main__":
    unittest.main()
