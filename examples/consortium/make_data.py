"""Write the data of the coordinator and of three sites, from the digits of scikit-learn.

    python make_data.py FOLDER

A real consortium has its data already, each site its own, on its own machine.
"""

import csv
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from potluck.data.makers.bags import identifiable_bags
from potluck.data.readers.digits import digits

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
CODES = {"round": [0, 6, 8, 9], "straight": [1, 4, 7], "curly": [2, 3, 5]}
PRIVATE = [9, 4, 7, 1, 8]
PIXELS = [f"p{i}" for i in range(64)]


def main(folder: Path) -> None:
    """Write everything into FOLDER/data."""
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    source = digits()
    order = torch.randperm(len(source.classes), generator=generator)
    images, classes = source.inputs[order], source.classes[order]
    rows = images.flatten(1).tolist()

    test = range(400)
    write_csv(data / "test.csv", [*PIXELS, "digit"], [[*rows[i], NAMES[classes[i]]] for i in test])

    mine = torch.arange(400, 1000)
    bags = identifiable_bags(classes[mine], 12, 10, generator)
    chosen, wards = mine[bags.index].tolist(), bags.bag.tolist()
    listed = [[*rows[i], f"ward {ward}"] for i, ward in zip(chosen, wards, strict=True)]
    write_csv(data / "wards.csv", [*PIXELS, "ward"], listed)
    shares = [[f"ward {m}", *row] for m, row in enumerate(bags.priors.tolist())]
    write_csv(data / "wards-shares.csv", ["bag", *NAMES], shares)

    code = {digit: name for name, members in CODES.items() for digit in members}
    mine = torch.arange(1000, 1450)
    columns = {name: images[mine].flatten(1)[:, i].numpy() for i, name in enumerate(PIXELS)}
    columns["code"] = [code[int(k)] for k in classes[mine]]
    pq.write_table(pa.table(columns), data / "registry.parquet")

    for i in range(1450, len(rows)):
        if int(classes[i]) in PRIVATE:
            place = data / "hospital" / NAMES[classes[i]]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[i, 0].numpy()).save(place / f"{i:04d}.png")


def write_csv(path: Path, header: list[str], rows: list[list[object]]) -> None:
    """Write a table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
