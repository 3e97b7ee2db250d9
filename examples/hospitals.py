"""Three made-up hospitals with untidy tables: schemas, training, predictions.

python examples/hospitals.py [FOLDER]    (examples/hospitals holds what it writes)
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hospital_tables import write_hospital

import fedsage as fs


def fedsage(*words: object) -> None:
    """What one would type."""
    print("$ fedsage", *words, flush=True)
    subprocess.run([sys.executable, "-m", "fedsage", *map(str, words)], check=True)


with TemporaryDirectory() as temporary:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
    drafts = [folder / f"hospital-{i}.toml" for i in range(3)]
    for i, draft in enumerate(drafts):  # every hospital for itself
        write_hospital(folder / f"hospital-{i}", i)
        fedsage("data", "init", folder / f"hospital-{i}", "--out", draft, "--force")
    schema = folder / "schema.toml"  # beside the folders: it serves all of them
    fedsage("data", "merge", *drafts, "--out", schema, "--force")
    fedsage("data", "check", folder)
    owners, tables = fs.load_owners(folder), fs.load_owner_tables(folder)
    result = fs.run(owners, "fedsage", settings={"classifier": {"rounds_c": 20}})
    print(f"accuracy on test patients, each in its hospital: {result.accuracy['local']:.3f}")
    unknown = int(np.flatnonzero(tables[0].y < 0)[0])
    predicted = result.model.predict(owners.subgraphs[0])[unknown]
    diagnosis = tables[0].schema.class_names[predicted]
    print(f"patient {tables[0].ids[unknown]} has no diagnosis; perhaps {diagnosis}")
