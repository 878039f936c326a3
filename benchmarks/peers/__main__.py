"""One tool's run in this process; prints one line of JSON.

python -m peers TOOL PROBLEM_AS_JSON STARTED_AT
"""

import json
import sys
from importlib import import_module

import torch
from problem import Clock, Problem

from peers import TOOLS


def main() -> None:
    name, given, started = sys.argv[1:]
    problem = Problem(**json.loads(given))
    torch.set_num_threads(problem.threads)
    clock, data = Clock(float(started)), problem.data()
    module, options = TOOLS[name]
    model = import_module(f"peers.{module}").train(problem, data, clock, **options)
    print(json.dumps({**clock.report(problem), "accuracy": data.accuracy(model)}))


if __name__ == "__main__":
    main()
