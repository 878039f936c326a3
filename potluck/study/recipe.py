"""The recipe that a study describes, as plain values and as the object that trains.

Over a network, sites get these values and nothing else of the study: no classes, no sites.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from potluck.engines.recipe import Recipe
from potluck.federated import FEDERATED
from potluck.local import LOCAL_OPTIMISERS, SCHEDULES, LocalTraining
from potluck.methods import METHODS
from potluck.study.options import complete, make

if TYPE_CHECKING:
    from potluck.study.schema import Study

_PARTS = {"rounds", "seed", "cohort", "batch_norm", "method", "federated", "local"}


def recipe_values(study: "Study") -> dict[str, Any]:
    """The part of a study that all parties agree on, as JSON values."""
    return study.model_dump(mode="json", include=_PARTS)


def recipe_of(values: Mapping[str, Any]) -> Recipe:
    """The recipe that such values describe.

    Args:
      values: what `recipe_values` gave, perhaps after a journey as JSON.
    """
    local = dict(values["local"])
    given = complete("local.optimiser", "optimiser", LOCAL_OPTIMISERS, local["optimiser"], "sgd")
    local["optimiser"] = make(LOCAL_OPTIMISERS, given)
    given = complete("local.schedule", "schedule", SCHEDULES, local["schedule"], "constant")
    local["schedule"] = make(SCHEDULES, given)
    method = complete("method", "method", METHODS, values["method"], "likelihood")
    federated = complete(
        "federated", "federated optimiser", FEDERATED, values["federated"], "fedavg"
    )
    return Recipe(
        rounds=values["rounds"],
        seed=values["seed"],
        method=make(METHODS, method),
        federated=make(FEDERATED, federated),
        local=LocalTraining(**local),
        cohort=values["cohort"],
        batch_norm=values["batch_norm"],
    )
