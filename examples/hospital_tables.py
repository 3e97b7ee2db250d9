"""Three made-up hospitals whose exports are as untidy as real ones, always the same.

python examples/hospital_tables.py [FOLDER]    writes their tables; hospitals.py uses them
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

NAMES = "patient admitted age temperature visits smoker arrival diagnosis".split()
DIAGNOSES = ("asthma", "fracture", "influenza", "measles")
SIGNS = (";", ",", "\t")  # between cells; the first hospital also has decimal commas
TRUTH, EMPTY = (("ja", "nein"), ("yes", "no"), ("1", "0")), ("", "NA", "none")
OWN_WAY = ("helicopter", "bus", "taxi")  # of arriving, known to one hospital each
FIRST, SHARE_EMPTY = np.datetime64("2024-01-01"), (0, 0.02, 0.08, 0, 0.05, 0.05, 0.1)


def patient_row(draws: np.random.Generator, number: int, c: int, rare: bool) -> list[str]:
    """What hospital ``number`` writes about a patient who has the illness ``c``."""
    day = str(FIRST + int(draws.integers(45 * (c == 2), 300)))
    fever = f"{draws.normal((37, 36.7, 38.6, 39.1)[c], 0.6):.1f}"
    if number == 0:
        day, fever = ".".join(reversed(day.split("-"))), fever.replace(".", ",")
    age = f"{min(20 + draws.gamma((3, 8, 5, 1)[c] + number, 5), 99):.0f}"
    visits, smoker = int(draws.pareto(1.5) * 3), TRUTH[number][int(draws.random() < 0.7)]
    arrival = str(draws.choice(["ambulance", "by foot", "referral", OWN_WAY[number]]))
    row = [day, age, fever, str(visits), smoker, arrival, "rabies" if rare else DIAGNOSES[c]]
    empty = draws.random(len(row)) < SHARE_EMPTY
    return [EMPTY[number] if gone else cell for cell, gone in zip(row, empty, strict=True)]


def write_hospital(folder: Path, number: int, num_patients: int = 240) -> None:
    """Patients, three of them with a rare illness, and who met whom for how many hours."""
    draws = np.random.Generator(np.random.PCG64(number))
    rare = (0.1, 0.01, 0)[number]
    ill = draws.choice(4, num_patients, p=(*[(1 - rare) / 3] * 3, rare))
    ids = [f"h{number}-{i:03}" for i in range(num_patients)]
    rows = [[ids[i], *patient_row(draws, number, c, i < 3)] for i, c in enumerate(ill)]
    pairs = draws.integers(num_patients, size=(1200, 2))
    same = pairs[ill[pairs[:, 0]] == ill[pairs[:, 1]]]  # patients of a ward meet
    links = ["from to room weight since".split()]
    for a, b in same:
        hours = f"{draws.gamma(2, 2) + 0.1:.1f}".replace(".", "," if number == 0 else ".")
        since = str(FIRST + int(draws.integers(300)))
        links.append([ids[a], ids[b], f"{a % 9}", hours, since])
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (("nodes.csv", [NAMES, *rows]), ("edges.csv", links)):
        (folder / name).write_text("".join(SIGNS[number].join(row) + "\n" for row in table))


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        for i in range(3):
            write_hospital(Path([*sys.argv, temporary][1]) / f"hospital-{i}", i)
            print(f"hospital-{i}: nodes.csv and edges.csv")
