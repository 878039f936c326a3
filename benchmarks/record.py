"""What every result is stored with: command, commit, hardware, versions, load."""

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"

PACKAGES = ("potluck", "torch", "numpy", "matplotlib", "pfl", "flwr", "ray", "fedlab")


def store(path: Path, results: Any, **more: Any) -> None:
    """Write results with the facts of this run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**facts(), **more, "results": results}, indent=1) + "\n")
    print(f"stored in {path}")


def facts() -> dict[str, Any]:
    """How, on what and with what this was measured."""
    return {
        "command": shlex.join(["python", *sys.argv]),
        "commit": _git("rev-parse", "HEAD") + (" and changes" if _git("status", "-s") else ""),
        "hardware": hardware(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
        "load average": [round(load, 2) for load in os.getloadavg()],
    }


def hardware() -> str:
    """The processor, and the GPU if there is one."""
    cpu = f"{len(os.sched_getaffinity(0))} cores of {_processor()}"
    return f"{torch.cuda.get_device_name()}; {cpu}" if torch.cuda.is_available() else cpu


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and greatest."""
    return {"median": median(values), "min": min(values), "max": max(values)}


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a Markdown table; the first row is the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _version(package: str) -> str:
    if package == "torch":
        return torch.__version__
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    return done.stdout.strip() if done.returncode == 0 else "unknown"
