"""Five made-up banks that know which accounts at other banks were paid: tables to alarms.

python examples/banks.py [FOLDER]    (bank_tables.py makes the tables)
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from bank_tables import write_banks

import fedsage as fs

FALSE_ALARMS = 0.01  # of usual accounts
BALANCED = {"classifier": {"class_weights": "balanced"}}  # few accounts are suspicious


def recall(run: Path) -> float:
    """The share of suspicious test accounts that are found with so few false alarms."""
    scores: dict[str, list[float]] = {"usual": [], "suspicious": []}
    for path in run.glob("owners/*/predictions.csv"):
        with path.open() as file:
            for row in csv.DictReader(file):
                if row["split"] == "test":
                    scores[row["label"]].append(float(row["probability_suspicious"]))
    threshold = np.quantile(scores["usual"], 1 - FALSE_ALARMS)
    return float(np.mean(np.array(scores["suspicious"]) > threshold))


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        write_banks(folder / "banks", seed=0)
        banks = fs.load_owners(folder / "banks")
        for method in ("fedsage", "fedsage+links"):
            fs.run(banks, method, seed=0, settings=BALANCED, out=folder / method)
            print(f"{method}: {recall(folder / method):.0%} of suspicious accounts found")
