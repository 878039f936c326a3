"""Flower's simulation runtime (Ray) plays the sites of a study."""

import torch
from deployment import BIN, stage
from federations import SITES, a_study, in_process
from test_flower_parity import assert_same

from potluck.study.model_files import load_model
from potluck.study.runfolder import RunFolder

STUDY = """
rounds = 2
model = { name = "mlp", hidden = [12] }
federated = "scaffold"
local = { lr = 0.1, steps = 3, batch_size = 16 }
run = { device = "cpu", threads = 1 }

[simulation]
dataset = "digits"
validation = 0.2

[[simulation.sites]]
name = "clinic"
samples = 40
view = { kind = "exact" }

[[simulation.sites]]
name = "secretive"
samples = 60
view = { kind = "subset", classes = ["7", "2", "5"], private = true }
"""


# Else there is one for each core, and as many processes in reserve, which all load torch.
ONE_ACTOR = {
    "RAY_OVERRIDE_RESOURCES": '{"CPU": 1}',
    "RAY_prestart_worker_first_driver": "0",
}


def test_the_simulation_runtime_gives_the_same_bytes(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    with stage(tmp_path) as scene:
        command = ("coordinate", "study.toml", "--simulate", "--out", "run")
        done = scene.start("simulation", BIN / "potluck", *command, **ONE_ACTOR)
        assert done.wait() == 0, done.said()
    run = RunFolder.open(tmp_path / "run")
    sites = [SITES[0], SITES[4]]
    study = a_study(
        federated="scaffold",
        run={"device": "cpu", "threads": 1},
        simulation={"dataset": "digits", "validation": 0.2, "sites": sites},
    )
    assert_same(run, in_process(study, tmp_path / "here"))
    assert torch.isfinite(load_model(run).state.theta).all()
