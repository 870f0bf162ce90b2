"""Resolve the extras again and rewrite the pins beside this file.

Run it with the lowest Python that the project supports, in an environment that has pip:

    python constraints/update.py

`all.txt` is resolved first, without any pin, so that it holds the newest versions that install
together; `base.txt` is resolved under those pins, so that no version differs between the two.
Only names and versions are written: no addresses, no hashes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADER = (
    "# Versions that install together on Python {python} for '.[{extras}]'.\n"
    "# Written by constraints/update.py.\n"
)


def resolve(extras: str, constraint: Path | None = None) -> dict[str, str]:
    """Return the distributions that pip would install for `.[extras]` into an empty environment."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--report", str(report)]
        if constraint is not None:
            command += ["-c", str(constraint)]
        subprocess.run([*command, f"{HERE.parent}[{extras}]"], check=True)
        items = json.loads(report.read_text(encoding="utf-8"))["install"]
    found = {item["metadata"]["name"].lower(): item["metadata"]["version"] for item in items}
    found.pop("caravanserai")
    return found


def write(name: str, extras: str, pins: dict[str, str]) -> Path:
    """Write one constraints file and return its path."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    lines = [f"{dist}=={pins[dist]}\n" for dist in sorted(pins)]
    path = HERE / name
    path.write_text(HEADER.format(python=python, extras=extras) + "".join(lines), encoding="utf-8")
    print(f"{path.name}: {len(pins)} pins")
    return path


def main() -> None:
    """Write `all.txt`, then `base.txt` under its pins, and what `all.txt` leaves out."""
    everything = write("all.txt", "all,dev", resolve("all,dev"))
    write("base.txt", "dev", resolve("dev", everything))
    write("openai-agents.txt", "openai-agents,dev", resolve("openai-agents,dev"))


if __name__ == "__main__":
    main()
