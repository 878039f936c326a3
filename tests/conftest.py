"""Settings shared by all tests: one thread, so that results and timings do not depend on cores."""

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
# A suite that is started in the background ignores Ctrl-C, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile(
    "potluck",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("potluck")

SLOW = (
    "test_network_faults.py",
    "test_fedul_claims.py",
    "test_potluck_claims.py",
    "test_consortium.py",
    "test_docs_pages.py",
    "test_fedpll_claims.py",
    "test_flower_simulation.py",
    "test_cli.py",
    "test_private_claims.py",
    "test_stacked_methods.py",
    "test_fedmt_claims.py",
    "test_reproduction.py",
    "test_flower_faults.py",
    "test_flower_parity.py",
    "test_label_projection.py",
    "test_results_cli.py",
    "test_broken_input.py",
    "test_readme_own_tables.py",
    "test_build.py",
    "test_stacked.py",
    "test_fedmt.py",
    "test_report_figures.py",
    "test_training.py",
)
"""Files that take longest: first, so that no worker is left with one when the others are done.
Those that mostly wait, for networks, lie between those that compute, so that cores are not idle."""


def pytest_collection_modifyitems(items):
    order = {name: place for place, name in enumerate(SLOW)}
    items.sort(key=lambda item: order.get(item.path.name, len(SLOW)))
