"""What each site brought to a run: `sites.json` and `sites.safetensors` in its folder.

Written before the first round, for `potluck report`, which sees the run folder and no data: how
many samples, which kind of labels, how often each, what they say about the classes, and which
meaning was declared for them. Of a private site that is not simulated, nothing about its labels
is written.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from potluck.study.array_files import Array, read_arrays, write_arrays
from potluck.study.files import read_sealed

STEM = "sites"

_ARRAYS = ("counts", "classes", "truth", "declared", "worth")


@dataclass(frozen=True)
class SiteFacts:
    """What one site brought, as far as numbers and names go.

    Args:
      name:        the site's.
      kind:        of its labels.
      private:     whether its classes are a secret from the other sites.
      server:      whether this is the server's own data.
      samples:     how many it has.
      symbols:     names of its labels; None where they are secret, or too many.
      information: how much of the class a label tells on average, from 0 (nothing) to 1 (all);
                   None where it is secret.
    """

    name: str
    kind: str
    private: bool
    server: bool
    samples: int
    symbols: list[str] | None
    information: float | None


@dataclass(frozen=True, eq=False)
class Brought:
    """What one site brought.

    Args:
      facts:    numbers and names.
      counts:   (Z,) samples with each label; None without `facts.symbols`.
      classes:  (K,) samples of each class as its labels tell it: a label that allows several
                classes counts for each of them by its share. None where it is secret.
      truth:    (K,) samples of each class; None where nobody knows them.
      declared: (Z, K) P(label | class) of coarse and noisy labels, or the class proportions of
                bags; None for other kinds.
      worth:    (K,) what one of its labels is worth about each class, from 0 (nothing) to 1 (an
                exact label). None where it is secret, and in runs made before this was written.
    """

    facts: SiteFacts
    counts: Array | None = None
    classes: Array | None = None
    truth: Array | None = None
    declared: Array | None = None
    worth: Array | None = None

    @property
    def evidence(self) -> Array | None:
        """(K,) how many exact labels of each class its labels are worth; None without `worth`."""
        return None if self.worth is None or self.classes is None else self.worth * self.classes


@dataclass(frozen=True, eq=False)
class Inventory:
    """What everybody brought.

    Args:
      classes:    names of the K target classes.
      sites:      the sites in the federation's order, then the server's own data.
      verdict:    which classes can be told apart at all.
      test:       how many test samples there are.
      validation: how many samples sites keep aside for validation.
    """

    classes: tuple[str, ...]
    sites: tuple[Brought, ...]
    verdict: str
    test: int
    validation: int


def write_inventory(folder: Path, inventory: Inventory) -> None:
    """Write an inventory into a run folder."""
    facts = {
        "classes": list(inventory.classes),
        "verdict": inventory.verdict,
        "test": inventory.test,
        "validation": inventory.validation,
        "sites": [asdict(site.facts) for site in inventory.sites],
    }
    arrays = {
        f"{index}.{name}": array
        for index, site in enumerate(inventory.sites)
        for name, array in _arrays(site)
    }
    write_arrays(folder / STEM, arrays, facts)


def read_inventory(folder: Path) -> Inventory | None:
    """The inventory of a run folder; None when the run was made by a potluck that wrote none."""
    path = (folder / STEM).with_suffix(".json")
    if not path.exists():
        return None
    facts = read_sealed(path)
    arrays = read_arrays(folder / STEM, facts)
    return Inventory(
        classes=tuple(facts["classes"]),
        sites=tuple(_read(index, site, arrays) for index, site in enumerate(facts["sites"])),
        verdict=facts["verdict"],
        test=facts["test"],
        validation=facts["validation"],
    )


def _arrays(site: Brought) -> Iterator[tuple[str, Array]]:
    for name in _ARRAYS:
        if (array := getattr(site, name)) is not None:
            yield name, array


def _read(index: int, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> Brought:
    return Brought(SiteFacts(**facts), **{name: arrays.get(f"{index}.{name}") for name in _ARRAYS})
