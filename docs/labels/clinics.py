"""The tables of the tutorials: made-up patients of made-up clinics, drawn at random.

Nothing here is medical knowledge. Every clinic has the same six measurements of its patients and
writes down something else about what ails them.
"""

import csv
from pathlib import Path

import numpy as np

COLUMNS = ["age", "temperature", "crp", "oxygen", "heart_rate", "d_dimer"]
DIAGNOSES = {
    "pneumonia": [62, 38.6, 110, 91, 98, 0.9],
    "bronchitis": [45, 37.6, 25, 96, 84, 0.4],
    "influenza": [38, 39.1, 35, 95, 102, 0.5],
    "heart failure": [74, 36.7, 12, 92, 92, 0.8],
    "embolism": [58, 37.1, 30, 90, 112, 3.2],
}
SPREAD = [16, 0.8, 30, 3.0, 14, 0.9]
CODES = {
    "pneumonia": "J lungs",
    "bronchitis": "J lungs",
    "influenza": "J lungs",
    "heart failure": "I heart and vessels",
    "embolism": "I heart and vessels",
}
WARDS = {
    "emergency": [0.2, 0.2, 0.2, 0.2, 0.2],
    "chest": [0.6, 0.2, 0.1, 0.0, 0.1],
    "infections": [0.2, 0.1, 0.6, 0.1, 0.0],
    "cardiology": [0.0, 0.1, 0.0, 0.6, 0.3],
    "vascular": [0.1, 0.0, 0.0, 0.2, 0.7],
    "short stay": [0.1, 0.6, 0.2, 0.1, 0.0],
}
NAMES = list(DIAGNOSES)


def patients(rng, count, shares=None):
    """(count, 6) measurements and the true diagnoses."""
    drawn = rng.choice(len(NAMES), count, p=shares)
    measured = rng.normal(np.array(list(DIAGNOSES.values()))[drawn], SPREAD)
    return measured.clip(min=0).round(1), [NAMES[k] for k in drawn]


def write(name, columns, rows):
    """A CSV file in the folder data."""
    with open(f"data/{name}.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])


def write_clinic(name, label, measured, labels):
    """A clinic's table: its measurements, then what it wrote down."""
    rows = [[*row, written] for row, written in zip(measured.tolist(), labels, strict=True)]
    write(name, [*COLUMNS, label], rows)


def main():
    """Write all tables."""
    rng = np.random.default_rng(0)
    Path("data").mkdir(exist_ok=True)

    write_clinic("test", "diagnosis", *patients(rng, 400))
    write_clinic("university", "diagnosis", *patients(rng, 30))

    measured, truth = patients(rng, 300)
    write_clinic("county", "code", measured, [CODES[name] for name in truth])

    measured, truth = patients(rng, 300)
    wrong = rng.random(300) < 0.3
    others = [str(rng.choice([n for n in NAMES if n != name])) for name in truth]
    written = [o if w else t for o, w, t in zip(others, wrong, truth, strict=True)]
    write_clinic("billing", "diagnosis", measured, written)

    rows, labels, shares = [], [], []
    for ward, mix in WARDS.items():
        measured, truth = patients(rng, 60, mix)
        rows.append(measured)
        labels += [ward] * len(truth)
        shares.append([ward, *(round(truth.count(name) / len(truth), 3) for name in NAMES)])
    write_clinic("wards", "ward", np.concatenate(rows), labels)
    write("ward-shares", ["bag", *NAMES], shares)

    measured, truth = patients(rng, 300)
    suspected = ["|".join(n for n in NAMES if n == name or rng.random() < 0.4) for name in truth]
    write_clinic("urgent", "suspected", measured, suspected)

    measured, truth = patients(rng, 200, [0, 0, 0, 0.5, 0.5])
    write_clinic("heart", "diagnosis", measured, truth)

    measured, _ = patients(rng, 300)
    write("archive", COLUMNS, measured.tolist())


if __name__ == "__main__":
    main()
