"""The stages: written as terraform wants, planned and applied with a mocked provider."""

import contextlib
import functools
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from tools import ROOT, missing, program

STAGES = ["identity", "app", "console", "enterprise", "lake", "stats", "monitoring"]
# Where terraform itself looks, and where machines without its registry keep copies.
MIRRORS = ["~/.terraform.d/plugins", "/usr/local/share/terraform/plugins", "/usr/share/terraform/plugins", "/opt/*"]


def mirror():
    """Returns a folder with a copy of the provider, as `terraform providers mirror` makes it."""
    given = os.environ.get("OC_TF_MIRROR")
    for pattern in [given] if given else MIRRORS:
        for found in glob.glob(os.path.expanduser(f"{pattern}/*/hashicorp/aws")):
            return str(pathlib.Path(found).parents[2])
    missing("terraform-aws", "there is no copy of the provider hashicorp/aws; OC_TF_MIRROR names a folder with one")


def terraform(arguments, folder, **more):
    environment = {**os.environ, "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1", **more}
    if "TF_CLI_CONFIG_FILE" not in more:
        environment.pop("TF_CLI_CONFIG_FILE", None)
    command = [program("terraform", "terraform"), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@contextlib.contextmanager
def workplace(*folders):
    """A copy of these folders, for all that terraform writes beside them; gives it with the variables to run there."""
    copies = mirror()
    with tempfile.TemporaryDirectory() as work:
        for name in folders:
            shutil.copytree(ROOT / "infra" / name, f"{work}/{name}", ignore=shutil.ignore_patterns(".terraform*"))
        config = pathlib.Path(work) / "terraform.rc"
        config.write_text(f'provider_installation {{\n  filesystem_mirror {{\n    path = "{copies}"\n  }}\n}}\n')
        yield pathlib.Path(work), {"TF_CLI_CONFIG_FILE": str(config)}


@functools.cache
def applied():
    """Plans and applies all stages together, and returns their outputs."""
    program("terraform", "terraform")
    with workplace("modules", "stages", "tests/stages") as (work, how):
        here = work / "tests/stages"
        done = terraform(["init", "-backend=false", "-input=false", "-no-color"], here, **how)
        assert done.returncode == 0, done.stdout + done.stderr
        done = terraform(["test", "-json", "-verbose"], here, **how)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, [line for line in told if line.get("@level") == "error"]
    state = next(line["test_state"] for line in told if line["type"] == "test_state")
    return {name: output["value"] for name, output in state["outputs"].items()}


class Stages(unittest.TestCase):
    def test_every_stage_has_a_contract_and_values(self):
        for stage in STAGES:
            folder = ROOT / "infra/stages" / stage
            outputs = set(re.findall(r'^output "(\w+)"', (folder / "outputs.tf").read_text(), re.MULTILINE))
            self.assertEqual(outputs, {"contract", "helm_values"}, stage)
        self.assertEqual(sorted(STAGES), sorted(path.name for path in (ROOT / "infra/stages").iterdir() if path.is_dir()))
        for file in (ROOT / "infra").glob("*/**/*.tf"):
            self.assertNotRegex(file.read_text(), r'(?m)^provider "', f"{file}: the environment configures providers")

    def test_terraform_would_format_nothing_anew(self):
        done = terraform(["fmt", "-check", "-recursive", "-diff"], ROOT / "infra")
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_stages_fit_together(self):
        outputs = applied()
        self.assertEqual(sorted(outputs["contracts"]), sorted(STAGES))
        self.assertEqual(sorted(outputs["helm_values"]), sorted(STAGES))

    def test_wrong_settings_are_refused_with_a_sentence(self):
        program("terraform", "terraform")
        with workplace("modules/network") as (work, how):
            test = '''
mock_provider "aws" {}
run "cidr" {
  command   = plan
  variables {
    name  = "x"
    cidr  = "10.0.0.0/24"
    zones = ["a", "b"]
  }
  expect_failures = [var.cidr]
}
run "zones" {
  command   = plan
  variables {
    name  = "x"
    cidr  = "10.0.0.0/16"
    zones = ["a"]
  }
  expect_failures = [var.zones]
}
'''
            here = work / "modules/network"
            (here / "refused.tftest.hcl").write_text(test)
            terraform(["init", "-backend=false", "-input=false"], here, **how)
            done = terraform(["test", "-no-color"], here, **how)
        self.assertIn("Success! 2 passed", done.stdout, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
