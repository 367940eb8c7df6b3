"""The compose file: its services run here as processes, with the command lines and the environment that it gives them.

Unproved by this: the images, the owners of volumes, and the timing of health checks, which need a container engine.
"""

import contextlib
import json
import os
import re
import subprocess
import unittest
import urllib.request

from servers import Process, clean, folder, free_port, postgres, ready_at, until, work_at
from tools import ROOT, check_settings, executable, module, program

DATABASE = "postgres://postgres@postgres:5432/opencode_cloud"
# What the image sets.
IMAGE = {"HOME": "/data", "OPENCODE_CLOUD_DATA_DIR": "/data"}


def services(profile, *more, override=None):
    """The services of a profile as Compose understands them, without settings of whoever runs this."""
    compose = program("compose", "docker-compose")
    given = [f"--profile={name}" for name in (profile, *more)]
    if override:
        given += ["--file=docker-compose.yml", f"--file={override}"]
    command = [compose, *given, "config", "--format", "json"]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["services"]


class Host:
    """A machine on which each service is a process instead of a container."""

    def __init__(self, work, known, database):
        self.work, self.known, self.program = work, known, executable()
        self.ports, self.metrics = {}, {}
        self.running = []
        self.places = [(DATABASE, database)]
        for path in ("/secrets", "/data"):
            (work / path[1:]).mkdir()
        for name, service in known.items():
            inside = "4222" if name == "nats" else (service.get("environment") or {}).get("OPENCODE_CLOUD_PORT")
            if inside:
                self.ports[name] = free_port()
                self.places.append((f"{name}:{inside}", f"127.0.0.1:{self.ports[name]}"))

    def here(self, text):
        """Puts what is here in place of what would be in containers: folders, and addresses of other services."""
        for there, place in self.places:
            text = text.replace(there, place)
        return re.sub(r"(^|=|file://)/(secrets|data)\b", rf"\1{self.work}/\2", text)

    def words(self, name):
        return [self.here(word) for word in self.known[name]["command"]]

    def environment(self, name):
        given = {**IMAGE, **(self.known[name].get("environment") or {})}
        # Without a value it would be the caller's, who has none here.
        found = {key: self.here(value) for key, value in given.items() if value is not None}
        if name in self.ports:
            found["OPENCODE_CLOUD_PORT"] = str(self.ports[name])
        if "OPENCODE_CLOUD_METRICS_BIND" in found:
            # Every container has port 9464 for itself.
            self.metrics.setdefault(name, f"127.0.0.1:{free_port()}")
            found["OPENCODE_CLOUD_METRICS_BIND"] = self.metrics[name]
        return found

    def once(self, name):
        """Runs a service that ends by itself, and returns what it printed."""
        done = subprocess.run([self.program, *self.words(name)], capture_output=True, text=True, cwd=self.work,
                              env=clean(self.environment(name)), timeout=120)
        assert done.returncode == 0, f"{name}: {done.stderr}"
        return done.stdout

    def start(self, name, first=None, more=()):
        process = Process([first or self.program, *self.words(name), *more], self.environment(name), self.work / f"{name}.log")
        self.running.append((name, process))
        return process

    def healthy(self, name, process):
        """Waits until the service's own health check passes."""
        test = self.known[name]["healthcheck"]["test"]
        assert test[:3] == ["CMD", "opencode-cloud", "ready"], test
        flags = [word for word in test[3:] if word.startswith("--")]
        command = [self.program, "ready", self.url(name), *flags]
        until(lambda: subprocess.run(command, capture_output=True, env=clean({})).returncode == 0, f"{name} is healthy", process)

    def url(self, name):
        return f"http://127.0.0.1:{self.ports[name]}"

    def secret(self, name):
        return (self.work / "secrets" / name).read_text()

    def check_metrics(self, name):
        """Asks as Prometheus does."""
        headers = {"authorization": f"Bearer {self.secret('metrics-token')}"}
        request = urllib.request.Request(f"http://{self.metrics[name]}/metrics", headers=headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read().decode()
        assert "oc_build_info" in text, text[:500]

    def stop(self):
        """Ends everything, the last one first, and returns who did not end well."""
        ended = [(name, process.stop()) for name, process in reversed(self.running)]
        self.running = []
        # A NATS that is told to stop says so with its code.
        return [(name, code) for name, code in ended if code != (1 if name == "nats" else 0)]


@contextlib.contextmanager
def host(profile):
    known = services(profile)
    with folder() as work, postgres(work) as database:
        machine = Host(work, known, database)
        try:
            yield machine
        finally:
            machine.stop()


class Compose(unittest.TestCase):
    def test_one_process_works(self):
        with host("single") as machine:
            self.assertEqual(sorted(machine.known), ["migrate", "postgres", "secrets", "service"])
            self.assertIn("secrets are made in", machine.once("secrets"))
            self.assertIn("already", machine.once("secrets"), "a second start makes none")
            self.assertIn("the database is at schema", machine.once("migrate"))
            # As other profiles leave the volume.
            for left in ("placement-1", "workspaces", "blobs", "locks", "prometheus"):
                (machine.work / "data" / left).mkdir()
            service = machine.start("service")
            machine.healthy("service", service)
            # It answers health checks a moment before it has written the key.
            ready_at(service)
            # docker compose exec service opencode-cloud key
            asked = subprocess.run([machine.program, "key"], env=clean(machine.environment("service")), capture_output=True, text=True)
            self.assertEqual(asked.returncode, 0, asked.stderr)
            self.assertIn("hello", work_at(machine.program, machine.url("service"), asked.stdout.strip()))
            machine.check_metrics("service")
            told = service.told()
            self.assertIn("OpenCode Cloud is ready at", told)
            for secret in os.listdir(machine.work / "secrets"):
                self.assertNotIn(machine.secret(secret), told, f"{secret} is in the log")
            self.assertEqual(machine.stop(), [])

    def test_a_cluster_works(self):
        with host("cluster") as machine:
            self.assertNotIn("service", machine.known, "one database has one kind of service")
            machine.once("secrets")
            machine.once("migrate")
            # The server takes the made file; only its ports are others here.
            nats = program("nats", "nats-server")
            machine.start("nats", nats, [f"--port={machine.ports['nats']}", f"--http_port={free_port()}"])
            placements = [(name, machine.start(name)) for name in ("placement-1", "placement-2", "placement-3")]
            for name, process in placements:
                machine.healthy(name, process)
            self.assertIn("the group is founded in generation", machine.once("found"))
            self.assertEqual(machine.once("found"), "the group is founded already\n")
            for name in ("worker-1", "worker-2", "gateway-1", "gateway-2"):
                machine.healthy(name, machine.start(name))
            for name in ("gateway-1", "gateway-2"):
                self.assertTrue((machine.work / "data" / name / "uploads").is_dir(), name)
                self.assertIn("hello", work_at(machine.program, machine.url(name), machine.secret("bootstrap-key")))
            for name in ("placement-1", "worker-1", "gateway-2"):
                machine.check_metrics(name)
            self.assertEqual(machine.stop(), [])

    def test_uploads_wait_on_a_disk(self):
        # Finding look 7 (M4): they waited in /tmp, which is memory.
        folders = []
        for profile, names in (("single", ["service"]), ("cluster", ["gateway-1", "gateway-2"])):
            known = services(profile)
            for name in names:
                service = known[name]
                words = [word.removeprefix("--data-dir=") for word in service["command"] if word.startswith("--data-dir=")]
                found = words or [(service.get("environment") or {})["OPENCODE_CLOUD_DATA_DIR"]]
                self.assertRegex(found[0], "^/data/", name)
                self.assertIn("/data", [volume["target"] for volume in service["volumes"]], name)
                self.assertNotIn("/data", service["tmpfs"], name)
                folders += found
        self.assertEqual(len(set(folders)), len(folders), "each empties its own at its start")

    def test_every_setting_is_one_of_the_executable(self):
        for profile in ("single", "cluster"):
            for name, service in services(profile).items():
                words = service.get("command")
                if name in ("postgres", "nats", "prometheus"):
                    continue
                role = words[:2] if words[0] in ("secrets", "placement") else words[:1]
                with self.subTest(service=name):
                    check_settings(self, role, words, service.get("environment") or {})

    def test_the_override_for_tls_is_right(self):
        page = (ROOT / "docs/install.md").read_text()
        with folder() as work:
            override = work / "override.yml"
            override.write_text(re.search(r"```yaml\n(services:.*?)```", page, re.DOTALL).group(1))
            before, after = services("single")["service"], services("single", override=override)["service"]
        variables = after["environment"]
        self.assertEqual(len(variables), len(before["environment"]) + 2, "a certificate and its key")
        check_settings(self, ("up",), after["command"], variables)
        targets = [volume["target"] for volume in after["volumes"]]
        self.assertEqual(sorted(targets), ["/data", "/secrets", "/tls"])
        self.assertEqual(after["healthcheck"]["test"], [*before["healthcheck"]["test"], "https://127.0.0.1:4096"])

    def test_there_is_no_password_and_no_open_port(self):
        program("compose", "docker-compose")
        for profile in ("single", "cluster"):
            for name, service in services(profile, "observability").items():
                for variable, value in (service.get("environment") or {}).items():
                    if re.search("PASSWORD|SECRET|KEY", variable):
                        self.assertTrue(value is None or value.startswith("/secrets/"), f"{name}: {variable}")
                for port in service.get("ports", []):
                    self.assertEqual(port["host_ip"], "127.0.0.1", name)
                if "/" not in service["image"] and service["image"].startswith("opencode-cloud"):
                    self.assertEqual((service["cap_drop"], service["read_only"]), (["ALL"], True), name)

    def test_prometheus_looks_at_every_role(self):
        yaml = module("helm", "yaml")
        config = yaml.safe_load((ROOT / "infra/compose/prometheus.yml").read_text())
        names = config["scrape_configs"][0]["dns_sd_configs"][0]["names"]
        roles = [
            name
            for profile in ("single", "cluster")
            for name, service in services(profile).items()
            if "OPENCODE_CLOUD_METRICS_BIND" in (service.get("environment") or {})
        ]
        self.assertEqual(sorted(names), sorted(roles))

    def test_the_image_sets_what_this_test_believes(self):
        self.assertIn("\nENV HOME=/data OPENCODE_CLOUD_DATA_DIR=/data\n", (ROOT / "Dockerfile").read_text())


if __name__ == "__main__":
    unittest.main()
