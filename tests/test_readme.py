"""What the README shows is what the code does."""

import re
import tomllib
from pathlib import Path

from potluck.study.schema import parse_study

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return text


def test_the_python_example_trains_a_classifier(capsys):
    exec(compile(block("python"), "README.md", "exec"), {})
    verdict, result = capsys.readouterr().out.splitlines()
    assert "All 10 classes" in verdict
    assert float(result.split()[0]) > 0.85


def test_the_study_file_is_valid():
    study = parse_study(tomllib.loads(block("toml")), "README.md")
    assert study.federated == {
        "name": "fedprox",
        "weights": "samples",
        "server_lr": 1.0,
        "mu": 0.01,
    }
