"""Tables as Excel and databases write them."""

from __future__ import annotations

import datetime
import os
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from fedsage.data.load import load
from fedsage.data.npz import content_sha256
from fedsage.data.owned import read_owned
from fedsage.errors import DataError, DataErrors
from fedsage.tables.files import find_separator
from fedsage.tables.guess import guess_schema
from fedsage.tables.tables import read_tables
from tests.tables.test_tables import FINE, folder_of

SCHEMA = """classes = ["ill", "well"]
[features]
age = { kind = "number" }
seen = { kind = "date" }
"""
ROWS = [("p1", 30.5, "2024-01-02", "ill"), ("p2", 1234.0, "2024-02-03", "well"),
        ("p3", 7.25, "2024-03-04", None)]  # fmt: skip


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """The rows above with commas and points."""
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "schema.toml").write_text(SCHEMA)
    lines = [f"{i},{a},{d},{c or ''}" for i, a, d, c in ROWS]
    (folder / "nodes.csv").write_text("\n".join(["id,age,seen,label", *lines, ""]))
    (folder / "edges.csv").write_text("source,target\np1,p2\np3,p1\n")
    return folder


def beside(plain: Path, name: str) -> Path:
    """A folder for the same rows, written in another way."""
    folder = plain.parent / name
    folder.mkdir()
    (folder / "schema.toml").write_text(SCHEMA)
    return folder


def same(one: Path, two: Path) -> bool:
    return content_sha256(load(str(one))) == content_sha256(load(str(two)))


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separator_and_decimal_comma_are_found(plain: Path, separator: str) -> None:
    folder = beside(plain, "other")
    lines = ["id,age,seen,label", "p1,30#5,02.01.2024,ill", "p2,1.234#0,03.02.2024,well",
             "p3,7#25,04.03.2024,"]  # fmt: skip
    text = "\n".join(lines).replace(",", separator).replace("#", ",") + "\n"
    (folder / "nodes.csv").write_text(text)
    (folder / "edges.csv").write_text(f"source{separator}target\np1{separator}p2\n"
                                      f"p3{separator}p1\n")  # fmt: skip
    assert find_separator(folder / "nodes.csv") == separator and same(folder, plain)


def test_a_decimal_point_stays_one_beside_semicolons(plain: Path) -> None:
    folder = beside(plain, "other")
    for name in ("nodes.csv", "edges.csv"):
        (folder / name).write_text((plain / name).read_text().replace(",", ";"))
    assert same(folder, plain)


def test_separator_decimal_and_encoding_are_settings_of_the_owner(plain: Path) -> None:
    folder = beside(plain, "other")
    text = "id~age~seen~label\np1~30,5~2024-01-02~ill\np2~1.234~2024-02-03~well\n"
    (folder / "nodes.csv").write_text(text + "p3~7,25~2024-03-04~\n")
    (folder / "edges.csv").write_text("source~target\np1~p2\np3~p1\n")
    with pytest.raises(DataErrors, match="has no column 'id'"):
        read_tables(folder)
    settings = 'separator = "~"\ndecimal = ","\nencoding = "cp1252"\n'
    (folder / "source.toml").write_text(settings)
    assert same(folder, plain)
    (folder / "nodes.csv").write_bytes((text + "p3~7,25~2024-03-04~\n").replace("p1~", "é~")
                                       .encode("cp1252"))  # fmt: skip
    (folder / "edges.csv").write_text("source~target\n")
    assert read_tables(folder).ids[0] == "é"


def test_a_comma_that_may_be_a_thousands_separator_is_not_guessed(plain: Path) -> None:
    folder = beside(plain, "other")
    text = (plain / "nodes.csv").read_text().replace("1234.0", '"1,234"')
    (folder / "nodes.csv").write_text(text)
    shutil.copy(plain / "edges.csv", folder)
    with pytest.raises(DataErrors, match=r"'1,234' is not a number. .*decimal = \",\" into"):
        read_tables(folder)
    other = "id;age;seen;label\np1;1,234;2024-01-02;ill\np2;30;2024-01-02;ill\n"
    (folder / "nodes.csv").write_text(other)
    (folder / "edges.csv").write_text("source;target\np1;p2\n")
    with pytest.raises(DataErrors, match="'1,234' is not a number"):
        read_tables(folder)
    (folder / "source.toml").write_text('decimal = ","')
    assert read_tables(folder).numbers[:, 0].tolist() == [1.234, 30]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('seperator = ";"', "unknown key 'seperator'. Did you mean 'separator'?"),
        ('separator = ";;"', "Write a single sign"),
        ('decimal = "x"', 'Write "." or ","'),
        ('encoding = "latin-99"', "Write a known one"),
        ('url = "sqlite:///x"', "has only a part of url, nodes and edges"),
        ("separator = 3", "Write it in quotes"),
        ("separator =", "cannot be read"),
    ],
)
def test_a_wrong_source_is_refused(plain: Path, text: str, says: str) -> None:
    (plain / "source.toml").write_text(text)
    with pytest.raises(DataErrors) as caught:
        read_tables(plain)
    assert says in str(caught.value)


def test_row_numbers_of_pandas_are_ignored_if_the_schema_says_so(plain: Path) -> None:
    pandas = pytest.importorskip("pandas")
    for format in ("csv", "parquet"):
        folder = beside(plain, format)
        (folder / "schema.toml").unlink()
        for name in ("nodes", "edges"):
            table = pandas.read_csv(plain / f"{name}.csv")
            table.index = table.index.map(str)  # so that it is kept
            getattr(table, f"to_{format}")(folder / f"{name}.{format}")
        guess = guess_schema(folder, fewest=1)
        index = "Unnamed: 0" if format == "csv" else "__index_level_0__"
        assert guess.schema.ignored == (index,) == guess.schema.ignored_in_edges
        assert guess.seen[index] == "it numbers the rows"
        assert any(f"{index} ignored" in said for said in guess.said)
        assert read_tables(folder, guess.schema).num_nodes == 3
        (folder / "schema.toml").write_text(SCHEMA)
        with pytest.raises(DataErrors, match=r"is not in the schema. Add it to"):
            read_tables(folder)


def test_a_workbook_is_read_as_a_table(plain: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    folder = beside(plain, "excel")
    book = openpyxl.Workbook()
    sheet = book.active
    for row in (("id", "age", "seen", "label"), *ROWS):
        sheet.append(row)
    for row in range(2, 5):
        sheet.cell(row, 3).value = datetime.datetime.fromisoformat(ROWS[row - 2][2])
    book.save(folder / "nodes.xlsx")
    book = openpyxl.Workbook()
    book.active.append(("nothing",))
    sheet = book.create_sheet("edges")
    for row in (("source", "target"), ("p1", "p2"), ("p3", "p1")):
        sheet.append(row)
    book.save(folder / "edges.xlsx")
    assert same(folder, plain)
    sheet.cell(3, 2).value = "p9"
    book.save(folder / "edges.xlsx")
    with pytest.raises(
        DataErrors, match=r"edges.xlsx, row 3, column target: 'p9' is not the id"
    ):
        read_tables(folder)
    (folder / "edges.xlsx").write_bytes(b"no workbook")
    with pytest.raises(DataErrors, match=r"edges.xlsx: cannot be read as a workbook"):
        read_tables(folder)


QUERIES = """
nodes = "select id, age, seen, label from patients order by id"
edges = "select source, target from met"
"""
MADE = (
    "create table patients (id text, age {real}, seen date, label text)",
    "create table met (source text, target text)",
    *(
        f"insert into patients values ('{i}', {a}, '{d}', {repr(c) if c else 'null'})"
        for i, a, d, c in ROWS
    ),
    "insert into met values ('p1', 'p2'), ('p3', 'p1')",
)


def test_tables_come_from_an_sqlite_file(plain: Path) -> None:
    pytest.importorskip("sqlalchemy")
    folder = beside(plain, "sqlite")
    with sqlite3.connect(folder / "ward.db") as connection:
        for words in MADE:
            connection.execute(words.format(real="real"))
    connection.close()
    for path in (folder / "ward.db", "ward.db"):  # its name, or where it is
        (folder / "source.toml").write_text(f'url = "sqlite:///{path}"{QUERIES}')
        assert same(folder, plain)
    (folder / "source.toml").write_text(f'url = "sqlite:///other.db"{QUERIES}')
    with pytest.raises(DataError, match=r"the SQLite file .*other.db, which is not there"):
        read_tables(folder)
    assert not (folder / "other.db").exists()
    (folder / "source.toml").write_text(
        f'url = "sqlite:///{folder}/ward.db"{QUERIES.replace("met", "meets")}'
    )
    with pytest.raises(DataErrors, match=r"source.toml, edges: failed .*no such table: meets"):
        read_tables(folder)


def test_a_password_is_taken_from_the_environment_alone(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sqlalchemy")
    source = plain / "source.toml"
    source.write_text(f'url = "postgresql+psycopg://me:secret@localhost:1/x"{QUERIES}')
    with pytest.raises(DataError, match=r"holds a password. Take it out") as caught:
        read_tables(plain)
    assert "secret" not in str(caught.value)
    source.write_text(f'url = "postgresql+psycopg://me:${{WARD}}@localhost:1/x"{QUERIES}')
    monkeypatch.delenv("WARD", raising=False)
    with pytest.raises(DataError, match="needs the environment variable WARD"):
        read_tables(plain)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a PostgreSQL server with a user 'ward' who needs a password."""
    pytest.importorskip("psycopg")
    if not shutil.which("initdb") or not shutil.which("pg_ctl"):
        pytest.skip("PostgreSQL is not installed")
    place = tmp_path_factory.mktemp("pg")
    secret = place / "secret"
    secret.write_text("pass/word@1")
    account: dict[str, int | str] = {}
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        account = {"user": "postgres"}
        try:
            for path in (place, *list(place.parents)[:3]):
                if path != Path("/tmp"):
                    os.chmod(path, 0o755)
            shutil.chown(place, "postgres")
        except (LookupError, PermissionError):
            pytest.skip("there is no account that PostgreSQL may run under")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    data = str(place / "data")
    begin = ["initdb", "-D", data, "-U", "ward", "-A", "scram-sha-256", f"--pwfile={secret}"]
    options = f"-p {port} -k {place} -c listen_addresses=127.0.0.1 -c fsync=off"
    start = ["pg_ctl", "-D", data, "-o", options, "-w", "-l", str(place / "log"), "start"]
    for words in (begin, start):
        done = subprocess.run(words, capture_output=True, text=True, cwd=place, **account)  # type: ignore[call-overload]
        if done.returncode:
            pytest.skip(f"PostgreSQL does not start here: {done.stderr[-200:]}")
    yield port
    stop = ["pg_ctl", "-D", data, "-m", "immediate", "stop"]
    subprocess.run(stop, capture_output=True, check=True, cwd=place, **account)  # type: ignore[call-overload]


@pytest.mark.slow
def test_tables_come_from_a_postgresql_server(
    plain: Path, postgres: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    psycopg = pytest.importorskip("psycopg")
    settings = {"host": "127.0.0.1", "port": postgres, "user": "ward", "dbname": "postgres"}
    with psycopg.connect(password="pass/word@1", **settings) as connection:
        for words in MADE:
            connection.execute(words.format(real="numeric"))
    folder = beside(plain, "postgres")
    url = f"postgresql+psycopg://ward:${{WARD}}@127.0.0.1:{postgres}/postgres"
    (folder / "source.toml").write_text(f'url = "{url}"{QUERIES}')
    monkeypatch.setenv("WARD", "pass/word@1")
    assert same(folder, plain)
    monkeypatch.setenv("WARD", "wrong-word")
    with pytest.raises(DataErrors, match=r"source.toml, .*failed .*authentication") as caught:
        read_tables(folder)
    assert "wrong-word" not in str(caught.value)


def test_an_owner_notices_that_its_database_has_changed(plain: Path, tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    folder, base = beside(plain, "sqlite"), tmp_path / "ward.db"
    with sqlite3.connect(base) as connection:
        for words in MADE:
            connection.execute(words.format(real="real"))
    (folder / "source.toml").write_text(f'url = "sqlite:///{base}"{QUERIES}')
    before = read_owned(folder).content
    assert read_owned(folder).content == before
    with connection:
        connection.execute("update patients set age = 31 where id = 'p1'")
    connection.close()
    assert read_owned(folder).content != before


def test_a_parquet_file_with_dates_and_truth_is_read(plain: Path) -> None:
    folder = beside(plain, "parquet")
    table = pa.table(
        {
            "id": [row[0] for row in ROWS],
            "age": [row[1] for row in ROWS],
            "seen": [datetime.date.fromisoformat(row[2]) for row in ROWS],
            "label": pa.array([row[3] for row in ROWS]),
        }
    )
    pa.parquet.write_table(table, folder / "nodes.parquet")
    shutil.copy(plain / "edges.csv", folder)
    assert same(folder, plain)


def test_old_tables_keep_their_comma(tmp_path: Path) -> None:
    for name in FINE:
        if name.endswith(".csv"):
            path = folder_of(tmp_path) / name
            assert find_separator(path) == ","
