"""From what sites declared to what the coordinator trains: the federation as it can know it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from potluck.engines import Sequential
from potluck.errors import PotluckError
from potluck.federation import Federation, Site
from potluck.flower.declaration import Declaration, known_site, verdict
from potluck.flower.terms import Terms, check_secrets
from potluck.labels import LabelSpace
from potluck.messages import Tensors
from potluck.study.build import (
    Prepared,
    check_columns,
    choose_device,
    load_federation,
    make_network,
    make_recipe,
    own_data,
)
from potluck.study.inventory import Brought, Inventory, SiteFacts
from potluck.study.recipe import recipe_values
from potluck.study.schema import Study
from potluck.study.stocktaking import take_inventory


@dataclass(frozen=True, eq=False)
class Own:
    """What the coordinator itself has.

    Args:
      space:   the target classes.
      server:  its own data, if any.
      test:    its test set, if any.
      columns: the input columns of its tables, by what they belong to.
    """

    space: LabelSpace
    server: Site | None
    test: tuple[Tensor, Tensor] | None
    columns: dict[str, tuple[str, ...] | None]


def own_part(study: Study) -> Own:
    """What the coordinator of a study itself has, checked."""
    if study.simulation is not None:
        federation, _ = load_federation(study)
        return Own(federation.space, federation.server, federation.test, {})
    assert study.federation is not None
    columns: dict[str, tuple[str, ...] | None] = {}
    server, test = own_data(study.federation, Path(study.folder), columns)
    return Own(LabelSpace(tuple(study.federation.classes)), server, test, columns)


def assemble(
    study: Study, own: Own, declared: Sequence[Declaration], sums: Sequence[Tensors]
) -> Prepared:
    """All that the coordinator needs for training, checked as far as it can be.

    Args:
      study:    the study.
      own:      what the coordinator itself has.
      declared: what each site declared, in the federation's order.
      sums:     sums of their inputs, where the study standardises them.
    """
    device = choose_device(study)
    sites = [known_site(one, own.space) for one in declared]
    aside = [site for site, one in zip(sites, declared, strict=True) if one.validation]
    columns = {one.name: one.columns for one in declared} | own.columns
    check_columns(columns)
    federation = Federation.of(sites, own.server, own.test, aside)
    recipe = make_recipe(study)
    recipe.check(federation)
    if study.standardise == "federation":
        _check_sums(declared, sums)
    network = make_network(study, federation, sums)
    return Prepared(
        federation.to(device), recipe, network, Sequential(), device, next(iter(columns.values()))
    )


def terms_for(study: Study, run: str, declared: Declaration, site: Site) -> Terms:
    """What a site is told with every message.

    Args:
      study:    the study.
      run:      which run this is.
      declared: what the site declared.
      site:     the site as the coordinator knows it.
    """
    terms = Terms(run, recipe_values(study), study.model, declared.digest())
    check_secrets(terms, site)
    return terms


def inventory(declared: Sequence[Declaration], prepared: Prepared) -> Inventory:
    """What everybody brought, for the report: of sites, what they declared and no more.

    Args:
      declared: what the sites declared.
      prepared: what was made of it.
    """
    sites = tuple(
        Brought(SiteFacts(one.name, one.kind, one.private, False, one.samples, None, None))
        for one in declared
    )
    server = prepared.federation.server
    own = [] if server is None else take_inventory(Federation.of([server])).sites
    test = prepared.federation.test
    return Inventory(
        classes=prepared.federation.space.names,
        sites=(*sites, *own),
        verdict=verdict(declared, prepared.federation),
        test=0 if test is None else len(test[1]),
        validation=sum(one.validation for one in declared),
    )


def _check_sums(declared: Sequence[Declaration], sums: Sequence[Tensors]) -> None:
    for one, part in zip(declared, sums, strict=True):
        shapes = {name: tuple(value.shape) for name, value in part.items()}
        columns = one.shape[:1]
        finite = all(torch.isfinite(value).all() for value in part.values())
        if shapes != {"count": (), "total": columns, "square": columns} or not finite:
            raise PotluckError(
                f'site "{one.name}" sent no sums of its inputs, which the study needs '
                '(standardise = "federation").'
            )
