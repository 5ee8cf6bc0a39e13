"""How much CPU time does `dovetail lint` take for a repository of many files?

The files are those of `tests/repository`, again and again, and beside them what makes real repositories large:
Deployments of a hundred lines, CRDs, dashboards, values of charts.
"""

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_SOURCE = Path(__file__).parents[1] / "tests" / "repository"
_SIZES = (1_000, 3_000, 10_000)


def print_repository() -> None:
    """The table; each size is measured in a process of its own."""
    print("lint of a directory")
    print(f"{'files':>8} {'size':>8} {'time':>9} {'CPU':>9} {'findings':>9}")
    for files in _SIZES:
        with tempfile.TemporaryDirectory() as folder:
            size = _fill(Path(folder), files)
            begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "dovetail", "lint", folder, "-o", "json"]
            outcome = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        report = json.loads(outcome.stdout)
        assert (outcome.returncode, report["files"] + len(report["skipped"])) == (1, files)
        print(
            f"{files:>8} {size / 1e6:>5.0f} MB {seconds:>7.2f} s {cpu:>7.2f} s {len(report['problems']):>9}", flush=True
        )
    print()


def _fill(folder: Path, files: int) -> int:
    """Write that many files, and give their size in bytes."""
    written = team = size = 0
    while written < files:
        top = folder / f"team-{team}"
        shutil.copytree(_SOURCE, top, ignore=shutil.ignore_patterns(".github", "node_modules"))
        for number in range(20):
            (top / f"service-{number}.yaml").write_text(_service(f"service-{number}"))
        (top / "crd.yaml").write_text(_crd(400))
        (top / "dashboard.json").write_text(json.dumps({"panels": [{"id": n, "expr": "up" * 40} for n in range(400)]}))
        (top / "values-large.yaml").write_text("".join(f"key{n}:\n  nested: value-{n}\n" for n in range(300)))
        for path in sorted(top.rglob("*")):
            if path.is_file():
                if written < files:
                    written, size = written + 1, size + path.stat().st_size
                else:
                    path.unlink()
        team += 1
    return size


def _service(name: str) -> str:
    env = "".join(f"        - name: SETTING_{n}\n          value: value-{n}\n" for n in range(25))
    return f"""apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  namespace: shop
spec:
  replicas: 3
  selector:
    matchLabels:
      app: {name}
  template:
    metadata:
      labels:
        app: {name}
    spec:
      containers:
      - name: {name}
        image: registry.example.com/shop/{name}:1.0.0
        env:
{env}---
apiVersion: v1
kind: Service
metadata:
  name: {name}
  namespace: shop
spec:
  selector:
    app: {name}
  ports:
  - port: 80
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {name}
  namespace: shop
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      app: {name}
"""


def _crd(fields: int) -> str:
    head = (
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: things.example.com\n"
    )
    body = "".join(f"      field{n}:\n        description: what it is\n        type: string\n" for n in range(fields))
    return f"{head}spec:\n  schema:\n    properties:\n{body}"
