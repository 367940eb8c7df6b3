"""Lists the crates that are linked into the executable, and collects their licences.

Writes sbom.cdx.json (CycloneDX 1.5) and THIRD-PARTY-LICENSES.txt to a folder: sbom.py REPOSITORY VERSION FOLDER.
"""

import collections
import hashlib
import json
import pathlib
import re
import subprocess
import sys

PACKAGE = "opencode-cloud"
LICENCE_FILE = re.compile(r"^(licen[cs]e|copying|notice|copyright)", re.IGNORECASE)


def metadata(root):
    host = subprocess.check_output(["rustc", "-vV"], text=True)
    target = re.search(r"^host: (.+)$", host, re.MULTILINE).group(1)
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", target]
    # A build does not fetch crates that it does not use, and this command wants all of them: it fetches those that are missing.
    return json.loads(subprocess.check_output(command, cwd=root))


def linked(data):
    """Returns the packages below the executable, without those that only tests or build scripts use."""
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    packages = {package["id"]: package for package in data["packages"]}
    first = next(key for key, package in packages.items() if package["name"] == PACKAGE)
    found, waiting = set(), [first]
    while waiting:
        current = waiting.pop()
        if current in found:
            continue
        found.add(current)
        for dependency in nodes[current]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    return first, sorted((packages[key] for key in found), key=lambda it: (it["name"], it["version"]))


def checksums(root):
    lock = (root / "Cargo.lock").read_text()
    pattern = r'name = "([^"]+)"\nversion = "([^"]+)"\nsource = [^\n]+\nchecksum = "([0-9a-f]+)"'
    return {(name, version): digest for name, version, digest in re.findall(pattern, lock)}


def component(package, digests):
    name, version = package["name"], package["version"]
    entry = {
        "type": "library",
        "bom-ref": f"{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:cargo/{name}@{version}",
    }
    if package["license"]:
        # Old crates part alternatives by a slash, which is no SPDX expression.
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if (name, version) in digests:
        entry["hashes"] = [{"alg": "SHA-256", "content": digests[name, version]}]
    return entry


def licences(packages):
    """Returns the licence texts, each once, below the names of the crates that come with it."""
    users = collections.defaultdict(list)
    for package in packages:
        if package["source"] is None:
            continue
        for file in sorted(pathlib.Path(package["manifest_path"]).parent.iterdir()):
            if file.is_file() and LICENCE_FILE.match(file.name):
                text = file.read_text(errors="replace").strip()
                users[text].append(f"{package['name']} {package['version']}")
    parts = [f"{', '.join(sorted(set(names)))}\n\n{text}\n" for text, names in users.items()]
    return ("\n" + "=" * 100 + "\n\n").join(sorted(parts))


def main(root, version, folder):
    root, folder = pathlib.Path(root), pathlib.Path(folder)
    data = metadata(root)
    first, packages = linked(data)
    digests = checksums(root)
    ours = next(package for package in packages if package["id"] == first)
    components = [component(package, digests) for package in packages if package is not ours]
    body = json.dumps(components, sort_keys=True)
    serial = hashlib.sha256(body.encode()).hexdigest()
    uuid = f"{serial[:8]}-{serial[8:12]}-4{serial[13:16]}-8{serial[17:20]}-{serial[20:32]}"
    root_component = {**component(ours, digests), "type": "application", "version": version}
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid}",
        "version": 1,
        "metadata": {"component": root_component},
        "components": components,
    }
    (folder / "sbom.cdx.json").write_text(json.dumps(bom, indent=1) + "\n")
    (folder / "THIRD-PARTY-LICENSES.txt").write_text(licences(packages))


if __name__ == "__main__":
    main(*sys.argv[1:])
