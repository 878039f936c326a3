"""What the coordinator tells a site with every message, so that each message stands alone.

A site's program is started anew for each message and may have been away for a while. The terms
hold the recipe and the model's architecture. They name no class and no other site: a private site
gets the same terms whatever the others have.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from potluck.engines.recipe import Recipe
from potluck.errors import PotluckError
from potluck.federation import Site
from potluck.models import build
from potluck.models.network import Network
from potluck.study.recipe import recipe_of


@dataclass(frozen=True)
class Terms:
    """What the coordinator tells a site.

    Args:
      run:    which run this is; a site keeps its state of each run apart.
      recipe: what all parties agree on, as `potluck.study.recipe` reads it.
      model:  the architecture's name and options.
      admitted: the digest of what this site declared when it was admitted to the run.
      since:  the last round, counted from 1, whose update from this site counted; 0 for none.
              What the site then kept is what it goes on from.
      floor:  the site need not remember what was before this many rounds.
    """

    run: str
    recipe: Mapping[str, Any]
    model: Mapping[str, Any]
    admitted: str = ""
    since: int = 0
    floor: int = 0

    def facts(self) -> dict[str, Any]:
        """As JSON values."""
        return {"terms": asdict(self)}

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> "Terms":
        """The inverse of `facts`."""
        return cls(**facts["terms"])

    def make_recipe(self) -> Recipe:
        """What all parties agree on."""
        return recipe_of(self.recipe)

    def make_network(self, site: Site) -> Network:
        """The model with the classes that the site knows; its first parameters mean nothing."""
        options = {key: value for key, value in self.model.items() if key != "name"}
        shape = tuple(site.inputs.shape[1:])
        return Network(build(self.model["name"], shape, len(site.view.own().space), **options))


def check_secrets(terms: Terms, site: Site) -> None:
    """Refuse terms that would tell a private site the name of another's class.

    Args:
      terms: what it would be told.
      site:  the site as the coordinator knows it.
    """
    if not site.view.private:
        return
    others = set(site.view.space) - set(site.view.symbols)
    if named := sorted(others & set(_texts(asdict(terms)))):
        raise PotluckError(
            f'site "{site.name}" keeps its classes private, but the recipe, which all sites get, '
            f'names the class "{named[0]}". Choose other options of the method.'
        )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from (key, *_texts(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
