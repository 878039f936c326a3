"""What a network costs: rounds over Flower on one machine, against the same rounds in one process.

python benchmarks/network.py [ROUNDS]     writes benchmarks/results/network.json

Three sites of the consortium example, first in one process (`potluck run`), then as real processes
under TLS (`potluck coordinate`, three times `potluck join`), with a small model and with one of a
million parameters. A round's time is the one in the history: from the broadcast to the evaluation.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from record import RESULTS, spread, store, table

from potluck.flower.processes import free_port
from potluck.study.runfolder import RunFolder

EXAMPLE = Path(__file__).parents[1] / "examples" / "consortium"
BIN = Path(sys.executable).parent
SITES = ("wards", "registry", "hospital")
MODELS = {"9 thousand parameters": "[128]", "1.1 million parameters": "[1000, 1000]"}


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    results, rows = {}, [["", "in one process", "over TLS", "overhead", "handshake", "per site"]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("study.toml", "sites"):
            copy = shutil.copytree if (EXAMPLE / part).is_dir() else shutil.copy
            copy(EXAMPLE / part, folder / part)
        run([sys.executable, EXAMPLE / "make_data.py", folder], folder)
        for number, (model, hidden) in enumerate(MODELS.items()):
            settings = ["-o", f"rounds={rounds}", "-o", f"model.hidden={hidden}"]
            here = in_process(folder, number, settings)
            there, handshake = over_network(folder, number, settings)
            per_site = there[-1]["bytes"]["wards"]
            one, two = (spread([r["seconds"] for r in h[1:]]) for h in (here, there))
            results[model] = {
                "in one process": one,
                "over TLS": two,
                "seconds from the start to the first round": handshake,
                "bytes per site and round": per_site,
                "same result": here[-1]["test"] == there[-1]["test"],
            }
            overhead = two["median"] - one["median"]
            size = f"{(per_site['down'] + per_site['up']) / 1e6:.2f} MB"
            cells = (one["median"], two["median"], overhead, handshake)
            rows.append([model, *(f"{seconds:.2f} s" for seconds in cells), size])
    print(table(rows))
    store(RESULTS / "network.json", results, rounds=rounds, sites=len(SITES))


def in_process(folder, number, settings):
    sites = ",".join(f'"sites/{name}.toml"' for name in SITES)
    out = folder / f"here-{number}"
    command = [BIN / "potluck", "run", "study.toml", "--out", out, *settings]
    how = ["-o", f"federation.sites=[{sites}]", "-o", "run.engine=sequential"]
    run([*command, *how], folder)
    return RunFolder.open(out).history()


def over_network(folder, number, settings):
    out, keys, port = folder / f"there-{number}", folder / f"keys-{number}", free_port()
    named = [part for name in SITES for part in ("--site", name)]
    host = ["--host", "127.0.0.1", "--port", port]
    run([BIN / "potluck", "keys", keys, *host, *named], folder)
    joins = [
        [BIN / "potluck", "join", f"sites/{name}.toml", "--invitation", keys / "sites" / name]
        for name in SITES
    ]
    with background(joins, folder):
        began = time.time()
        command = [BIN / "potluck", "coordinate", "study.toml", "--keys", keys / "coordinator"]
        run([*command, "--bind", "127.0.0.1", "--out", out, *settings], folder)
        whole = time.time() - began
    history = RunFolder.open(out).history()
    return history, whole - sum(record["seconds"] for record in history)


def run(command, folder):
    subprocess.run([str(part) for part in command], cwd=folder, env=variables(), check=True)


@contextmanager
def background(commands, folder):
    started = [
        subprocess.Popen(
            [str(part) for part in command],
            cwd=folder,
            env=variables(),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        for command in commands
    ]
    try:
        yield
    finally:
        for process in started:
            process.send_signal(signal.SIGINT)
        for process in started:
            process.wait()


def variables():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    main()
