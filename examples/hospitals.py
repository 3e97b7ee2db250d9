"""Three made-up hospitals with tables of their own: a schema, a check, training, predictions.

python examples/hospitals.py [FOLDER]    (examples/hospitals holds what it writes)
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import fedsage as fs

DIAGNOSES = ("asthma", "fracture", "influenza")


def write_hospital(folder: Path, number: int, num_patients: int = 120) -> None:
    """Patients, a tenth of them without a diagnosis, and who met whom."""
    draws = np.random.Generator(np.random.PCG64(number))
    ill = draws.integers(3, size=num_patients)
    ids = [f"h{number}-{i:03}" for i in range(num_patients)]
    rows = [["id", "age", "temperature", "arrival", "label"]]
    for patient, c in zip(ids, ill, strict=True):
        age = f"{20 + draws.gamma((3, 8, 5)[c] + number, 5):.0f}"
        fever = "" if draws.random() < 0.05 else f"{draws.normal((37, 36.7, 38.6)[c], 0.6):.1f}"
        arrival = str(draws.choice(["ambulance", "by foot", "referral"]))
        known = DIAGNOSES[c] if draws.random() < 0.9 else ""
        rows.append([patient, age, fever, arrival, known])
    pairs = draws.integers(num_patients, size=(600, 2))
    same = pairs[ill[pairs[:, 0]] == ill[pairs[:, 1]]]  # patients of a ward meet
    folder.mkdir(parents=True, exist_ok=True)
    links = [["source", "target"], *([ids[a], ids[b]] for a, b in same)]
    for name, table in (("nodes.csv", rows), ("edges.csv", links)):
        (folder / name).write_text("".join(",".join(row) + "\n" for row in table))


def fedsage(*words: str) -> None:
    """What one would type."""
    print("$ fedsage", *words, flush=True)
    subprocess.run([sys.executable, "-m", "fedsage.cli.main", *words], check=True)


with TemporaryDirectory() as temporary:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
    for i in range(3):
        write_hospital(folder / f"hospital-{i}", i)
    schema = str(folder / "schema.toml")  # beside the folders: it serves all of them
    fedsage("data", "init", str(folder / "hospital-0"), "--out", schema, "--force")
    fedsage("data", "check", str(folder))
    owners, tables = fs.load_owners(folder), fs.load_owner_tables(folder)
    result = fs.run(owners, "fedsage", settings={"classifier": {"rounds_c": 20}})
    print(f"accuracy on test patients, each in its hospital: {result.accuracy['local']:.3f}")
    unknown = int(np.flatnonzero(tables[0].y < 0)[0])
    predicted = result.model.predict(owners.subgraphs[0])[unknown]
    print(f"patient {tables[0].ids[unknown]} has no diagnosis; perhaps {DIAGNOSES[predicted]}")
