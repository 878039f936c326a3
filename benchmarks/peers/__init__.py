"""The tools that are compared, each in a file of its own.

A tool is a function of (problem, data, clock) that trains, ticks the clock after every round and
gives the trained model. Each runs in a process of its own: `python -m peers TOOL PROBLEM`.
"""

TOOLS: dict[str, tuple[str, dict]] = {
    "plain loop": ("loop", {}),
    "worker processes": ("processes", {}),
    "compiled vmap by hand": ("vmapped", {}),
    "pfl": ("pfl_research", {}),
    "FedLab": ("fed_lab", {}),
    "Flower, an actor a core": ("flower", {"cores": 1}),
    "Flower, default": ("flower", {"cores": 2}),
    "Potluck sequential": ("potluck_engines", {"engine": "sequential"}),
    "Potluck stacked": ("potluck_engines", {"engine": "stacked"}),
    "Potluck compiled": ("potluck_engines", {"engine": "stacked", "compile": True}),
    "Potluck auto": ("potluck_engines", {"engine": "auto"}),
}
"""Name → module in this folder and its options."""

HAND_WRITTEN = ("plain loop", "worker processes")
"""What a researcher writes without a framework."""
