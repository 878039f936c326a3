"""The README's way from two tables with different labels to a report, command by command."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
CLASSES = ("angina", "infarction", "asthma", "pneumonia")
DEPARTMENTS = {"angina": "heart", "infarction": "heart", "asthma": "lung", "pneumonia": "lung"}


def write_table(path: Path, label: str, rows: int, seed: int) -> None:
    """Measurements that differ between the classes."""
    draw = np.random.default_rng(seed)
    lines = [f"age,pressure,{label}"]
    for i in range(rows):
        k = i % 4
        age, pressure = draw.normal(40 + 25 * (k % 2), 4), draw.normal(100 + 40 * (k // 2), 6)
        name = CLASSES[k] if label == "diagnosis" else DEPARTMENTS[CLASSES[k]]
        lines.append(f"{age:.1f},{pressure:.1f},{name}")
    path.write_text("\n".join(lines) + "\n")


def test_two_tables_with_different_labels_become_a_report(tmp_path: Path) -> None:
    (block,) = re.findall(r"```bash\n(mkdir.*?)```", README, re.DOTALL)
    mine = tmp_path / "mine"
    mine.mkdir()
    write_table(mine / "north.csv", "diagnosis", 60, 0)
    write_table(mine / "south.csv", "department", 120, 1)
    write_table(mine / "test.csv", "diagnosis", 80, 2)
    command = tmp_path / ".venv" / "bin" / "potluck"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m potluck "$@"\n')
    command.chmod(0o755)
    ran = subprocess.run(
        ["bash", "-e", "-c", block],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "120"},
    )
    assert ran.returncode == 0, ran.stderr
    assert "The study is in order" in ran.stdout
    accuracy = re.search(r"test accuracy after 20 rounds: ([\d.]+)%", ran.stdout)
    assert accuracy is not None
    assert float(accuracy[1]) > 85
    page = (mine / "run" / "report.html").read_text(encoding="utf-8")
    assert "two hospitals" in page
    assert "What each site brought" in page
