"""The chart: it renders for every file in values/, and what it renders is right for three versions of Kubernetes."""

import functools
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import test_stages
from tools import ROOT, check_settings, executable, module, program

CHART = ROOT / "charts/opencode-cloud"
HERE = pathlib.Path(__file__).parent
VERSIONS = ["1.31", "1.33", "1.37"]
MINIMAL = {"database": {"existingSecret": "db"}, "blobUrl": "s3://bucket/oc"}

# Rules of checkov that do not hold here, each with its reason.
EXCEPTIONS = {
    "CKV_K8S_43": "image.digest sets one; a chart cannot know it before the image is pushed",
    "CKV_K8S_15": "IfNotPresent: tags are never pushed twice, and nodes start pods while the registry is away",
    "CKV_K8S_38": "the pod that creates the Secret has a token; no other has",
}


def load(name):
    yaml = module("helm", "yaml")
    return yaml.safe_load((HERE / "values" / f"{name}.yaml").read_text())


def names():
    return sorted(path.stem for path in (HERE / "values").glob("*.yaml"))


def render(values, name="oc", **options):
    """Returns the notes and the objects."""
    helm, yaml = module("helm", "helm_python"), module("helm", "yaml")
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render(values, name=name, namespace="team", **options)
    notes = files.pop("opencode-cloud/templates/NOTES.txt")
    objects = []
    for path, text in files.items():
        objects += [item for item in yaml.safe_load_all(text) if item]
    return notes, objects


@functools.cache
def rendered(name):
    """Returns the objects of a file of values."""
    return render(load(name), is_install=True)[1]


def merged(first, second):
    """Joins two sets of values as Helm does, but adds lists together, as a person would."""
    result = dict(first)
    for key, value in second.items():
        old = result.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            result[key] = merged(old, value)
        elif isinstance(value, list) and isinstance(old, list):
            result[key] = old + value
        else:
            result[key] = value
    return result


def pods(objects):
    """Returns each object that makes pods, with their specification."""
    kinds = ("Deployment", "StatefulSet", "Job")
    return [(item, item["spec"]["template"]["spec"]) for item in objects if item["kind"] in kinds]


class Chart(unittest.TestCase):
    maxDiff = None

    def test_it_is_one_that_helm_finds_no_fault_with(self):
        helm = module("helm", "helm_python")
        found = helm.lint(str(CHART), values=MINIMAL, strict=True)
        problems = [message for message in found["messages"] if message["severity"] > 1]
        self.assertEqual((problems, found["errors"]), ([], []))

    def test_every_object_is_valid_for_each_version(self):
        validate = module("kubernetes", "kubernetes_validate")
        # Most objects are the same for most values.
        every = {json.dumps(item, sort_keys=True): item for name in names() for item in rendered(name)}
        self.assertGreater(len(every), 50)
        for item in every.values():
            for version in VERSIONS:
                with self.subTest(version=version, kind=item["kind"], name=item["metadata"]["name"]):
                    validate.validate(item, version, strict=True)

    def test_the_validation_refuses_what_is_wrong(self):
        validate = module("kubernetes", "kubernetes_validate")
        deployment = next(item for item in render(MINIMAL)[1] if item["kind"] == "Deployment")
        for wrong in ({"replicas": "many"}, {"replica": 1}):
            broken = {**deployment, "spec": {**deployment["spec"], **wrong}}
            with self.assertRaises(validate.ValidationError):
                validate.validate(broken, "1.33", strict=True)

    def test_turns_have_the_time_of_a_stop_but_a_minute(self):
        for seconds, grace in [(30, "20"), (90, "30"), (1860, "1800"), (604800, "604740")]:
            manifests = render({**MINIMAL, "worker": {"terminationGracePeriodSeconds": seconds}})[1]
            [worker] = [item for item in manifests if item["metadata"]["name"].endswith("-worker") and item["kind"] == "StatefulSet"]
            environment = {one["name"]: one.get("value") for one in worker["spec"]["template"]["spec"]["containers"][0]["env"]}
            self.assertEqual(environment["OPENCODE_CLOUD_STOP_GRACE"], grace)

    def test_wrong_values_are_refused_with_a_sentence(self):
        helm = module("helm", "helm_python")
        both = {**MINIMAL}
        for values, told in [
            ({}, "database.existingSecret is empty: create a Secret"),
            ({}, "blobUrl is empty: workers share no disk"),
            ({**both, "nats": {"enabled": False}}, "name the Secret with the URLs of your own NATS"),
            ({**both, "ingress": {"enabled": True}}, "ingress.host is empty: name the host"),
            ({**both, "publicUrl": "http://x", "gateway": {"tls": {"existingSecret": "t"}}}, "begin with https://"),
            ({**both, "model": {"url": "http://m", "protocol": "gemini"}}, "model.name is empty"),
            ({**both, "worker": {"terminationGracePeriodSeconds": 5}}, "running turns alone get 20 seconds"),
            ({**both, "placement": {"members": 2}}, "value must be one of 1, 3, 5"),
            ({**both, "workers": {}}, "additional properties 'workers' not allowed"),
            ({**both, "worker": {"sandbox": "none"}}, "value must be one of 'A', 'B', 'C'"),
            ({**both, "gateway": {"replicas": "2"}}, "got string, want integer"),
            ({**both, "blobUrl": "file:///x"}, "at '/blobUrl'"),
            ({**both, "worker": {"resources": {"limits": {"memory": "lots"}}}}, "at '/worker/resources/limits/memory'"),
        ]:
            with self.subTest(values=values), self.assertRaises(helm.HelmError) as refused:
                render(values)
            self.assertIn(told, str(refused.exception))

    def test_notes_say_how_to_log_in(self):
        for name in names():
            for how in ({"is_install": True}, {"is_upgrade": True}):
                notes, _ = render(load(name), **how)
                self.assertIn("opencode-cloud login", notes)
            notes, _ = render(load(name), is_install=True)
            golden = HERE / "golden" / f"{name}.txt"
            if os.environ.get("OC_BLESS"):
                golden.write_text(notes)
            self.assertEqual(notes, golden.read_text(), f"OC_BLESS=1 writes {golden.name} anew")

    def test_every_key_of_a_secret_is_one_that_is_made(self):
        with tempfile.TemporaryDirectory() as folder:
            database = "--database-url=postgres://admin@db:5432/oc"
            made = [executable(), "secrets", "init", f"--dir={folder}", "--nats=nats:4222", database]
            subprocess.run(made, check=True, capture_output=True)
            known = set(os.listdir(folder))
        for name in names():
            for item, pod in pods(rendered(name)):
                for volume in pod.get("volumes", []):
                    for source in volume.get("projected", {}).get("sources", []):
                        secret = source["secret"]
                        for key in (key["key"] for key in secret["items"]):
                            own = secret["name"] in ("nats", "vllm")
                            self.assertTrue(own or key in known, f"{item['metadata']['name']}: {key}")

    def test_every_setting_is_one_of_the_executable(self):
        for name in names():
            self.check_pods(rendered(name), name)

    def check_pods(self, objects, name):
        executable()
        for item, pod in pods(objects):
            container = pod["containers"][0]
            words = container["args"]
            if container["name"] == "nats":
                continue
            role = words[:2] if words[0] in ("secrets", "placement") else words[:1]
            variables = [variable["name"] for variable in container.get("env", [])]
            with self.subTest(values=name, pod=item["metadata"]["name"]):
                check_settings(self, role, words, variables)

    def test_a_node_can_always_be_drained(self):
        for name in names():
            for item in rendered(name):
                if item["kind"] == "PodDisruptionBudget":
                    self.assertNotIn("minAvailable", item["spec"])
                    self.assertEqual(item["spec"]["maxUnavailable"], 1)
                    self.assertEqual(item["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow")

    def test_pods_have_limits_probes_and_no_rights(self):
        for name in names():
            for item, pod in pods(rendered(name)):
                role = item["metadata"]["labels"]["app.kubernetes.io/component"]
                container = pod["containers"][0]
                with self.subTest(values=name, role=role):
                    self.assertEqual(pod["automountServiceAccountToken"], role == "secrets")
                    self.assertTrue({"cpu", "memory"} <= set(container["resources"]["limits"]))
                    self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
                    self.assertEqual(container["securityContext"]["capabilities"]["drop"], ["ALL"])
                    self.assertTrue(item["kind"] == "Job" or "readinessProbe" in container)
                    # Only a worker whose sandbox needs rights has some.
                    free = name in ("sandbox-a", "sandbox-b") and role == "worker"
                    self.assertEqual("add" in container["securityContext"]["capabilities"], free)
                    self.assertEqual(pod.get("hostUsers"), False if name == "sandbox-b" and free else None)

    def test_a_pull_secret_is_in_every_pod_and_a_digest_wins(self):
        for item, pod in pods(rendered("private-registry")):
            self.assertEqual(pod["imagePullSecrets"], [{"name": "corp"}])
            image = pod["containers"][0]["image"]
            self.assertTrue(image.startswith("nats:") or image.startswith("registry.corp/ai/opencode-cloud@sha256:"))

    def test_workers_share_a_bucket_and_no_disk(self):
        for item, pod in pods(rendered("minimal")):
            role = item["metadata"]["labels"]["app.kubernetes.io/component"]
            container = pod["containers"][0]
            self.assertFalse([volume for volume in pod["volumes"] if "persistentVolumeClaim" in volume], role)
            if role in ("gateway", "worker"):
                self.assertIn({"name": "OPENCODE_CLOUD_BLOB_URL", "value": "s3://bucket/oc"}, container["env"], role)
            if role == "worker":
                self.assertIn("--workspace-disk=own", container["args"])

    def test_folders_of_a_node_have_a_bound(self):
        # Finding look 7 (M4): uploads filled a node's disk.
        for name in names():
            for item, pod in pods(rendered(name)):
                for volume in pod["volumes"]:
                    if "emptyDir" in volume:
                        with self.subTest(values=name, pod=item["metadata"]["name"], volume=volume["name"]):
                            self.assertRegex(volume["emptyDir"].get("sizeLimit", "none"), r"^[0-9]+[MG]i$")

    def test_uploads_wait_on_a_disk_that_holds_them(self):
        for name in names():
            pod = next(pod for item, pod in pods(rendered(name)) if item["metadata"]["name"].endswith("-gateway"))
            container = pod["containers"][0]
            env = {variable["name"]: variable.get("value") for variable in container["env"]}
            self.assertEqual(env["OPENCODE_CLOUD_DATA_DIR"], "/data")
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            volume = next(volume for volume in pod["volumes"] if volume["name"] == mounts["/data"])
            spool = int(env["OPENCODE_CLOUD_UPLOAD_SPOOL"].removesuffix("GiB"))
            self.assertGreater(int(volume["emptyDir"]["sizeLimit"].removesuffix("Gi")), spool, name)

    def test_secrets_of_ones_own_need_no_job(self):
        made = [item["metadata"]["name"] for item, _ in pods(rendered("minimal")) if item["kind"] == "Job"]
        made = [name[:-9] if "-found-" in name else name for name in made]
        self.assertEqual(sorted(made), ["oc-opencode-cloud-found", "oc-opencode-cloud-migrate", "oc-opencode-cloud-secrets"])
        own = rendered("own-secrets")
        self.assertEqual([item for item in own if item["metadata"]["name"].endswith(("-secrets", "-setup"))], [])

    def test_tls_reaches_the_gateway_and_its_probes(self):
        objects = rendered("gateway-tls")
        pod = next(pod for item, pod in pods(objects) if item["metadata"]["name"].endswith("-gateway"))
        container = pod["containers"][0]
        self.assertIn("--tls-cert=/tls/tls.crt", container["args"])
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            self.assertEqual(container[probe]["httpGet"]["scheme"], "HTTPS")
        self.assertIn({"name": "tls", "secret": {"secretName": "oc-tls", "defaultMode": 0o440}}, pod["volumes"])

    def test_a_pod_is_ready_when_it_is_of_use(self):
        """Finding ops B6: a rollout replaced every good worker by one that placement refuses."""
        for name in names():
            for item, pod in pods(rendered(name)):
                for container in pod["containers"]:
                    probe = container.get("readinessProbe", {}).get("httpGet")
                    if item["metadata"]["name"].endswith("-nats") or not probe:
                        continue
                    self.assertEqual(probe["path"], "/readyz", item["metadata"]["name"])
                    for other in ("startupProbe", "livenessProbe"):
                        self.assertEqual(container[other]["httpGet"]["path"], "/healthz", item["metadata"]["name"])

    def test_the_group_is_founded_before_anything_is_ready(self):
        """A member is ready once its group is founded: a hook that waits for members would wait for itself."""
        names = []
        for values in (MINIMAL, MINIMAL, {**MINIMAL, "image": {"tag": "other"}}, {**MINIMAL, "placement": {"members": 5}}):
            objects = render(values, is_install=True)[1]
            job = next(item for item in objects if "-found-" in item["metadata"]["name"])
            self.assertNotIn("annotations", job["metadata"])
            names.append(job["metadata"]["name"])
        self.assertEqual(names[0], names[1])
        self.assertEqual(len(set(names)), 3, "a Job cannot change")
        services = [item for item in render(MINIMAL)[1] if item["kind"] == "Service" and item["metadata"]["name"].endswith("-placement")]
        self.assertEqual([item["spec"]["publishNotReadyAddresses"] for item in services], [True])

    def test_members_of_placement_keep_their_names(self):
        objects = rendered("everything")
        placement = next(item for item in objects if item["metadata"]["name"] == "agents-placement" and item["kind"] == "StatefulSet")
        self.assertEqual((placement["spec"]["replicas"], placement["spec"]["ordinals"]), (5, {"start": 4}))
        found = next(pod for item, pod in pods(objects) if item["metadata"]["name"].startswith("agents-found-"))
        words = found["containers"][0]["args"]
        self.assertEqual(words[3:], [f"{n}=http://agents-placement-{n}.agents-placement:4301" for n in range(4, 9)])
        peers = [entry["value"] for entry in placement["spec"]["template"]["spec"]["containers"][0]["env"] if entry["name"].endswith("PEERS")]
        self.assertEqual(peers, [",".join(word.split("=")[1] for word in words[3:])])

    def test_it_renders_with_what_the_stages_say(self):
        validate = module("kubernetes", "kubernetes_validate")
        said = {stage: json.loads(text) for stage, text in test_stages.applied()["helm_values"].items()}
        base = functools.reduce(merged, [said[stage] for stage in ("identity", "app", "console", "monitoring")])
        for values in (base, merged(base, said["enterprise"])):
            # The schema refuses what a stage says and the chart does not know.
            notes, objects = render(values, name="oc-test", is_install=True)
            self.assertIn("URL=https://oc.example.com", notes)
            accounts = [item["metadata"]["name"] for item in objects if item["kind"] == "ServiceAccount"]
            self.assertIn("oc-test-opencode-cloud", accounts, "the account that may use the bucket")
            for item in objects:
                validate.validate(item, VERSIONS[0], strict=True)
            self.check_pods(objects, "stages")

    def test_checkov_finds_nothing(self):
        checkov = program("checkov", "checkov")
        yaml = module("helm", "yaml")
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "all.yaml").write_text(yaml.safe_dump_all(rendered("ingress")))
            command = [checkov, "--directory", folder, "--framework", "kubernetes", "--output", "json"]
            command += ["--skip-download", "--quiet", "--skip-check", ",".join(EXCEPTIONS)]
            done = subprocess.run(command, capture_output=True, text=True)
        report = json.loads(done.stdout)
        failed = [(check["check_id"], check["check_name"], check["resource"]) for check in report["results"]["failed_checks"]]
        self.assertGreater(report["summary"]["passed"], 300)
        self.assertEqual(failed, [])


if __name__ == "__main__":
    unittest.main()
