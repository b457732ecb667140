"""Data sets: against scikit-learn, against the encoded files, along each way a file is found, and a known optimum."""

import csv
import gzip
import hashlib
import http.server
import io
import itertools
import os
import pathlib
import subprocess
import sys
import tarfile
import threading
import urllib.error
import zipfile
from collections.abc import Iterator

import numpy as np
import pytest
import sklearn.datasets

from fedpact import datasets
from fedpact.datasets import bundled, cifar, encodings, images, store, uci
from fedpact.datasets.propublica import COMPAS

BESIDE = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
GIVEN = pathlib.Path(os.environ.get("FEDPACT_DATA") or BESIDE)
ENCODED = {
    "breast-cancer-wisc": ("breast-cancer-wisc", uci.WISC, encodings.breast_cancer_wisc),
    "monks-1": ("monks-1", uci.MONKS, encodings.monks_1),
    "adult-a": ("adult", uci.ADULT, encodings.adult_a),
    "adult-b": ("adult", uci.ADULT, encodings.adult_b),
    "adult": ("adult", uci.ADULT, encodings.adult),
    "compas": ("compas_two_years", COMPAS, encodings.compas),
    "crime": ("crime", uci.CRIME, encodings.crime),
}


@pytest.fixture
def data() -> pathlib.Path:
    if not GIVEN.is_dir():
        pytest.skip(f"needs the data files: neither FEDPACT_DATA nor {BESIDE} is a folder")
    return GIVEN


@pytest.fixture(autouse=True)
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Every test has an empty cache, no folder of its own and no internet."""
    monkeypatch.delenv("FEDPACT_DATA", raising=False)
    monkeypatch.setenv("FEDPACT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "_fetch", no_internet)
    return tmp_path / "cache" / "data"


def no_internet(url: str) -> bytes:
    raise urllib.error.URLError("no route")


def needed(path: pathlib.Path) -> pathlib.Path:
    if not path.is_file():
        pytest.skip(f"needs {path}, which is not there")
    return path


def raw_columns(path: pathlib.Path) -> dict[str, np.ndarray]:
    with gzip.open(needed(path), "rt", newline="") as file:
        names, *rows = csv.reader(file)
    columns = {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    if path.name.startswith("crime"):  # the copy has blanks for UCI's question marks, and a type behind one name
        columns = {name.split()[0]: np.where(column == "", "?", column) for name, column in columns.items()}
    return columns


def arrays_of(path: pathlib.Path) -> dict[str, np.ndarray]:
    with np.load(needed(path)) as file:
        return dict(file)


def zipped(files: dict[str, str]) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return body.getvalue()


def as_published(raw: dict[str, np.ndarray], archive: store.Source) -> bytes:
    """The zip that UCI has, with its oddities: blanks, a comment line, dots after test labels, ids, an empty line."""
    if not isinstance(archive, uci.Archive):
        return as_csv(raw)
    split = raw.get("split", np.full(len(next(iter(raw.values()))), "all"))
    files = {"Index": "not data\n"}
    for part, (name, _) in archive.parts.items():
        chosen = {key: column[split == part] for key, column in raw.items() if key != "split"}
        if archive is uci.MONKS:
            chosen["id"] = np.array([f"data_{i}" for i in range(len(chosen["class"]))])
        if name == "adult.test":
            chosen["income"] = np.strings.add(chosen["income"], ".")
        gap = {uci.WISC.url: ",", uci.MONKS.url: " ", uci.ADULT.url: ", ", uci.CRIME.url: ","}[archive.url]
        lines = [gap.join(row) for row in zip(*(chosen[key] for key in archive.columns), strict=True)]
        before = "|1x3 Cross validator\n" if name == "adult.test" else ""
        start = " " if archive is uci.MONKS else ""
        files[name] = before + "".join(f"{start}{line}\n" for line in lines) + "\n"
    return zipped(files)


def as_csv(raw: dict[str, np.ndarray]) -> bytes:
    """ProPublica's file: names with commas, and two columns twice under one name, the second time emptied here."""
    again = {"decile_score.1": "decile_score", "priors_count.1": "priors_count"}
    rows = zip(*(column if name not in again else [""] * len(column) for name, column in raw.items()), strict=True)
    body = io.StringIO(newline="")
    lines = csv.writer(body)
    lines.writerow(["name", *(again.get(name, name) for name in raw)])
    lines.writerows(["doe, jane", *row] for row in rows)
    return body.getvalue().encode()


def robots() -> dict[str, np.ndarray]:
    """Monks-1 by its rule; the 124 training rows are the first 62 of each class."""
    every = np.array(list(itertools.product(*(range(1, k + 1) for k in encodings.MONK_VALUES.values()))))
    true = (every[:, 0] == every[:, 1]) | (every[:, 4] == 1)
    train = np.sort(np.concatenate([np.flatnonzero(true)[:62], np.flatnonzero(~true)[:62]]))
    order = np.concatenate([train, np.arange(len(every))])
    raw = {name: every[order, j].astype(str) for j, name in enumerate(encodings.MONK_VALUES)}
    split = np.array(["train"] * len(train) + ["test"] * len(every))
    return {"class": true[order].astype(int).astype(str), **raw, "split": split}


# Bundled with scikit-learn


def test_breast_cancer_is_scikit_learns_standardised_and_flipped():
    x, y = sklearn.datasets.load_breast_cancer(return_X_y=True)
    table = datasets.breast_cancer()
    assert table.columns == ("x", "y")
    np.testing.assert_allclose(table["x"], (x - x.mean(axis=0)) / x.std(axis=0), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(table["y"], 1 - y)
    assert table["y"].sum() == 212
    np.testing.assert_allclose(table["x"].std(axis=0), 1)


def test_digits_are_scikit_learns_in_unit_range():
    x, y = sklearn.datasets.load_digits(return_X_y=True)
    table = datasets.digits()
    np.testing.assert_array_equal(table["x"], x / 16)
    np.testing.assert_array_equal(table["y"], y)
    assert table["y"].dtype.kind == "i"
    assert table["x"].min() == 0
    assert table["x"].max() == 1


def test_bundled_files_are_read_without_importing_scikit_learn():
    script = """
import sys
from fedpact import datasets
before = "sklearn" in sys.modules
datasets.breast_cancer(), datasets.digits()
sys.exit("sklearn" in sys.modules and not before)
"""
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", script], env=known, check=False).returncode == 0


@pytest.mark.parametrize("name", ["breast_cancer", "digits"])
def test_a_moved_bundled_file_comes_from_the_loader(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path):
    usual = getattr(datasets, name)()
    monkeypatch.setattr(bundled, "_folder", lambda: tmp_path)
    moved = getattr(datasets, name)()
    np.testing.assert_array_equal(moved["x"], usual["x"])
    np.testing.assert_array_equal(moved["y"], usual["y"])


# The encoded files


@pytest.mark.parametrize("name", list(ENCODED))
def test_encodings_give_the_files(name: str, data: pathlib.Path):
    source, _, encode = ENCODED[name]
    made, kept = encode(raw_columns(data / f"{source}_raw.csv.gz")), arrays_of(data / f"{name}.npz")
    assert set(made) == set(kept)
    for key in kept:
        assert made[key].dtype == kept[key].dtype
        assert made[key].shape == kept[key].shape
        if key not in ("train_idx", "server_idx"):
            np.testing.assert_array_equal(made[key], kept[key])


def test_tables_from_a_folder(data: pathlib.Path):
    needed(data / "adult-b.npz")
    for table, shape, positive in (
        (datasets.breast_cancer_wisc(folder=data), (699, 20), 241),
        (datasets.monks_1(folder=str(data)), (556, 17), 278),
        (datasets.adult_a(folder=data), (32561, 21), 7841),
    ):
        assert table["x"].shape == shape
        assert table["y"].sum() == positive
        assert set(np.unique(table["y"])) == {0, 1}
    clients, server = datasets.adult_b(folder=data)
    assert (clients.rows, server.rows) == (22654, 5659)
    for table in (clients, server):
        assert table.columns == ("x", "y", "sex")
        assert table["x"].shape[1] == 38
        np.testing.assert_array_equal(table["x"][:, -1], table["sex"])


@pytest.mark.parametrize(
    ("name", "shape", "positive", "ones", "numbers"),
    [
        ("adult", (45_222, 104), 11_208, 30_527, list(range(6))),
        ("compas", (5_278, 26), 2_795, 2_103, [2, 6, 7, 8, 9, 12, 13, 20, 21]),
        ("crime", (1_994, 99), 413, 970, []),
    ],
)
def test_tables_with_groups(
    name: str, shape: tuple[int, int], positive: int, ones: int, numbers: list[int], data: pathlib.Path
):
    needed(data / f"{name}.npz")
    table = getattr(datasets, name)(folder=data)
    assert table.columns == ("x", "y", "group")
    assert table["x"].shape == shape
    assert set(np.unique(table["y"])) == {-1, 1}
    assert set(np.unique(table["group"])) == {0, 1}
    assert ((table["y"] == 1).sum(), table["group"].sum()) == (positive, ones)
    scaled = np.zeros(shape[1], bool)
    scaled[numbers] = True
    np.testing.assert_allclose(table["x"][:, scaled].mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(table["x"][:, scaled].std(axis=0), 1)
    kept = table["x"][:, ~scaled]
    assert (kept.min(), kept.max()) == (0, 1)
    if name != "crime":
        assert np.isin(kept, (0, 1)).all()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "not the table with the column 'two_year_recid'"),
        (b"two_year_recid\n1\n0\n", r"the classes in column 'two_year_recid' are \{'0': 1, '1': 1\}"),
        (b"two_year_recid,sex\n1,Male\n0\n", "not the table"),
    ],
    ids=["empty", "other classes", "cut off"],
)
def test_a_wrong_compas_file_is_refused(body: bytes, told: str, cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "_fetch", lambda url: body)
    with pytest.raises(FileNotFoundError, match=told):
        datasets.compas()
    assert not cache.exists()


def test_adult_b_draws_disjoint_rows():
    kinds = [
        (r, s, o) for r in encodings.RELATIONSHIP_CODES for s in ("Male", "Female") for o in encodings.OCCUPATION_CODES
    ]
    rows = [kinds[i % len(kinds)] for i in range(30_000)]
    relationship, sex, occupation = (np.array(column) for column in zip(*rows, strict=True))
    raw = {name: np.arange(len(rows)).astype(str) for name in encodings.ADULT_NUMBERS}
    raw |= {"relationship": relationship, "sex": sex, "occupation": occupation}
    same = {
        "marital-status": "Divorced",
        "race": "Black",
        "workclass": "Private",
        "native-country": "Peru",
        "income": ">50K",
    }
    raw |= {name: np.full(len(rows), value) for name, value in same.items()}
    made = encodings.adult_b(raw)
    assert (len(made["train_idx"]), len(made["server_idx"])) == (22654, 5659)
    assert len(np.union1d(made["train_idx"], made["server_idx"])) == 22654 + 5659
    np.testing.assert_array_equal(encodings.adult_b(raw)["train_idx"], made["train_idx"])


def test_an_unknown_value_is_named():
    raw = robots()
    raw["a3"][5] = "7"
    with pytest.raises(ValueError, match="column 'a3' has the value '7', which is none of 1, 2"):
        encodings.monks_1(raw)


# Ways to a file


def test_download_is_encoded_kept_and_not_repeated(
    cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asked = []
    monkeypatch.setattr(store, "_fetch", lambda url: asked.append(url) or as_published(robots(), uci.MONKS))
    first, second = datasets.monks_1(), datasets.monks_1()
    assert asked == ["https://archive.ics.uci.edu/static/public/70/monk+s+problems.zip"]
    assert first["x"].shape == (556, 17)
    assert (first["x"].sum(axis=1) == 6).all()
    np.testing.assert_array_equal(first["x"], second["x"])
    np.testing.assert_array_equal(first["y"], second["y"])
    assert [path.name for path in cache.iterdir()] == ["monks-1.npz"]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"fedpact: fetching monks-1 from {asked[0]}"
    assert len(lines) == 2


@pytest.mark.parametrize("name", list(ENCODED))
def test_published_archives_give_the_files(
    name: str, data: pathlib.Path, cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    source, archive, encode = ENCODED[name]
    body = as_published(raw_columns(data / f"{source}_raw.csv.gz"), archive)
    monkeypatch.setattr(store, "_fetch", lambda url: body)
    kept = arrays_of(data / f"{name}.npz")
    made = store.load(name, tuple(kept), archive, encode, None)
    stored = arrays_of(cache / f"{name}.npz")
    for key in kept:
        np.testing.assert_array_equal(stored[key], made[key])
        if key not in ("train_idx", "server_idx"):
            np.testing.assert_array_equal(made[key], kept[key])


def test_own_folder_comes_before_the_cache(
    tmp_path: pathlib.Path, cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder, value in ((mine, 1.0), (other, 2.0), (cache, 3.0)):
        folder.mkdir(parents=True)
        np.savez(folder / "monks-1.npz", X=np.full((2, 17), value), y=np.zeros(2, np.int8))
    assert datasets.monks_1()["x"][0, 0] == 3
    monkeypatch.setenv("FEDPACT_DATA", str(mine))
    assert datasets.monks_1()["x"][0, 0] == 1
    assert datasets.monks_1(folder=other)["x"][0, 0] == 2
    (mine / "monks-1.npz").unlink()
    assert datasets.monks_1()["x"][0, 0] == 3


def test_nothing_found_names_every_place_and_the_ways_out(
    tmp_path: pathlib.Path, cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(FileNotFoundError, match=r"adult-a\.npz: FEDPACT_DATA is not set"):
        datasets.adult_a()
    monkeypatch.setenv("FEDPACT_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError) as caught:
        datasets.adult_a()
    told = str(caught.value)
    assert f"{tmp_path / 'adult-a.npz'}: not there (FEDPACT_DATA)" in told
    assert f"{cache / 'adult-a.npz'}: not there" in told
    assert f"{uci.ADULT.url}: <urlopen error no route>" in told
    assert "set FEDPACT_DATA to a folder that has adult-a.npz" in told
    assert f"put adult-a.npz into {cache}" in told
    assert "with an internet connection" in told


def test_a_folder_that_is_none_is_said_plainly(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(NotADirectoryError, match=r"folder= says .*nowhere"):
        datasets.monks_1(folder=tmp_path / "nowhere")
    monkeypatch.setenv("FEDPACT_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError, match=r"FEDPACT_DATA says .*nowhere.* is not a folder"):
        datasets.monks_1()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"<html>moved</html>", "not a zip file"),
        (zipped({"monks-2.train": ""}), "no file monks-1.train; it has monks-2.train"),
        (
            zipped({"monks-1.train": " 1 1 1 1 1 3 1 data_5\n"}),
            "monks-1.train is not the table of 124 rows and 8 columns",
        ),
        (as_published(robots() | {"class": robots()["a3"]}, uci.MONKS), "the classes in column 'class'"),
        (as_published(robots(), uci.MONKS)[:-300], "not a zip file"),
    ],
    ids=["page", "other file", "short file", "other classes", "cut off"],
)
def test_a_wrong_download_is_refused(body: bytes, told: str, cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "_fetch", lambda url: body)
    with pytest.raises(FileNotFoundError, match=told):
        datasets.monks_1()
    assert not cache.exists()


def test_a_broken_file_is_named(cache: pathlib.Path):
    cache.mkdir(parents=True)
    (cache / "monks-1.npz").write_bytes(b"PK half a file")
    with pytest.raises(ValueError, match=r"monks-1\.npz is not an npz file with the arrays X, y"):
        datasets.monks_1()
    np.savez(cache / "monks-1.npz", X=np.zeros((2, 17)))
    with pytest.raises(ValueError, match="remove or replace it"):
        datasets.monks_1()


def test_a_cache_that_cannot_be_written_costs_only_the_keeping(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDPACT_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(store, "_fetch", lambda url: as_published(robots(), uci.MONKS))
    assert datasets.monks_1().rows == 556
    assert "could not save monks-1" in capsys.readouterr().err


class Handler(http.server.BaseHTTPRequestHandler):
    agents: list[str] = []

    def do_GET(self) -> None:
        self.agents.append(self.headers["User-Agent"])
        self.send_response(200 if self.path == "/there" else 404)
        self.end_headers()
        self.wfile.write(b"the body")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.undo()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_fetching_over_http(address: str, monkeypatch: pytest.MonkeyPatch):
    assert store._fetch(f"{address}/there") == b"the body"
    assert Handler.agents[-1].startswith("fedpact")
    with pytest.raises(urllib.error.HTTPError, match="404") as caught:
        store._fetch(f"{address}/gone")
    caught.value.close()
    monkeypatch.setattr(store, "LARGEST_BYTES", 4)
    with pytest.raises(ValueError, match="cannot be this data set"):
        store._fetch(f"{address}/there")


# MNIST


def idx_file(array: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """A public source with 3 + 2 images; their files have the md5 sums that are asked for."""
    pixels = np.random.default_rng(0).integers(0, 256, (5, 28, 28), np.uint8)
    digits = np.array([5, 0, 4, 9, 1], np.uint8)
    arrays = {"x_train": pixels[:3], "y_train": digits[:3], "x_test": pixels[3:], "y_test": digits[3:]}
    bodies = {name: gzip.compress(idx_file(array)) for name, array in arrays.items()}
    files = {name: (images.FILES[name][0], hashlib.md5(body).hexdigest()) for name, body in bodies.items()}
    addresses = {images.SITE + file: bodies[name] for name, (file, _) in files.items()}
    monkeypatch.setattr(images, "FILES", files)
    monkeypatch.setattr(store, "_fetch", addresses.pop)
    return arrays


def test_idx_by_hand():
    images_of_2x3 = bytes.fromhex("00000803 00000002 00000002 00000003") + bytes(range(12))
    np.testing.assert_array_equal(images.idx(images_of_2x3), np.arange(12).reshape(2, 2, 3))
    labels = bytes.fromhex("00000801 00000003 050004")
    assert images.idx(labels).tolist() == [5, 0, 4]
    assert images.idx(labels).dtype == np.uint8


@pytest.mark.parametrize(
    "body",
    ["", "000008", "00000801 00000003 0500", "00000801 00000003 05000404", "00000d01 00000000", "1f8b0801 00000000"],
    ids=["empty", "cut header", "short", "long", "floats", "still packed"],
)
def test_what_is_no_idx_file_is_refused(body: str):
    with pytest.raises(ValueError, match="no idx file of unsigned bytes"):
        images.idx(bytes.fromhex(body))


def test_mnist_is_downloaded_kept_and_not_repeated(few_digits: dict[str, np.ndarray], cache: pathlib.Path):
    downloaded, kept = datasets.mnist(), datasets.mnist()
    for part, again, name in zip(downloaded, kept, ("train", "test"), strict=True):
        assert part.columns == ("x", "y")
        assert (part["x"].dtype, part["y"].dtype.kind) == (np.float32, "i")
        np.testing.assert_allclose(part["x"] * 255, few_digits[f"x_{name}"].reshape(-1, 784), rtol=1e-6)
        np.testing.assert_array_equal(part["y"], few_digits[f"y_{name}"])
        np.testing.assert_array_equal(part["x"], again["x"])
    assert [path.name for path in cache.iterdir()] == ["mnist.npz"]


@pytest.mark.usefixtures("few_digits")
def test_an_mnist_file_with_another_md5_sum_is_refused(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(images.FILES, "x_test", (images.FILES["x_test"][0], "0" * 32))
    with pytest.raises(FileNotFoundError, match=r"t10k-images-idx3-ubyte\.gz came with the md5 sum .*, not 0000"):
        datasets.mnist()
    assert not cache.exists()


def test_mnist_where_it_cannot_be_had():
    with pytest.raises(FileNotFoundError) as caught:
        datasets.mnist()
    for words in ("mnist.npz: FEDPACT_DATA is not set", f"{images.SITE}: <urlopen error no route>", "Either set"):
        assert words in str(caught.value)


def test_mnist_from_a_folder(data: pathlib.Path):
    needed(data / "mnist.npz")
    train, test = datasets.mnist(folder=data)
    assert (train["x"].shape, test["x"].shape) == ((60_000, 784), (10_000, 784))
    for table in (train, test):
        assert (table["x"].min(), table["x"].max()) == (0, 1)
    assert np.bincount(train["y"]).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(test["y"]).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


# CIFAR-10


def few_pictures() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    counts = {"train": 5, "test": 2}
    pixels = {f"x_{part}": rng.integers(0, 256, (n, 3, 32, 32)).astype(np.uint8) for part, n in counts.items()}
    return pixels | {f"y_{part}": np.arange(n, dtype=np.uint8) for part, n in counts.items()}


def cifar_archive(arrays: dict[str, np.ndarray], leave_out: str = "") -> bytes:
    records = {
        part: np.column_stack([arrays[f"y_{part}"], arrays[f"x_{part}"].reshape(-1, 3072)])
        for part in ("train", "test")
    }
    files = {f"data_batch_{place + 1}.bin": records["train"][[place]] for place in range(5)}
    files["test_batch.bin"] = records["test"]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, lines in files.items():
            if name != leave_out:
                member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
                member.size = lines.size
                archive.addfile(member, io.BytesIO(lines.astype(np.uint8).tobytes()))
    return packed.getvalue()


def served(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    monkeypatch.setattr(cifar, "MD5", hashlib.md5(body).hexdigest())
    monkeypatch.setattr(store, "_fetch", {cifar.ARCHIVE: body}.pop)


def test_cifar10_is_downloaded_kept_and_not_repeated(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    arrays = few_pictures()
    served(monkeypatch, cifar_archive(arrays))
    for _ in range(2):
        for table, part in zip(datasets.cifar10(), ("train", "test"), strict=True):
            np.testing.assert_allclose(table["x"] * 255, arrays[f"x_{part}"].reshape(-1, 3072), rtol=1e-6)
            assert table["y"].tolist() == arrays[f"y_{part}"].tolist()
    assert [path.name for path in cache.iterdir()] == ["cifar10.npz"]


def test_a_broken_archive_of_cifar10_is_refused(monkeypatch: pytest.MonkeyPatch):
    served(monkeypatch, cifar_archive(few_pictures(), leave_out="data_batch_3.bin"))
    with pytest.raises(FileNotFoundError, match=r"the archive has no data_batch_3\.bin"):
        datasets.cifar10()
    served(monkeypatch, b"something else")
    monkeypatch.setattr(cifar, "MD5", "0" * 32)
    with pytest.raises(FileNotFoundError, match="came with the md5 sum"):
        datasets.cifar10()
    with pytest.raises(ValueError, match="no batch of CIFAR-10"):
        cifar.batch(b"1234")


def test_cifar10_from_jpeg_images(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    image = pytest.importorskip("PIL.Image")
    arrays, shades = {}, {"train": [10, 200, 90], "test": [120]}
    for part, levels in shades.items():
        bodies = []
        for level in levels:
            flat = np.full((32, 32, 3), level, np.uint8)
            flat[:, :, 2] = 255 - level  # blue
            packed = io.BytesIO()
            image.fromarray(flat).save(packed, "JPEG", quality=95)
            bodies.append(packed.getvalue())
        arrays[f"jpeg_{part}"] = np.frombuffer(b"".join(bodies), np.uint8)
        arrays[f"offsets_{part}"] = np.cumsum([0, *map(len, bodies)])
        arrays[f"y_{part}"] = np.arange(len(levels), dtype=np.uint8)
    np.savez(tmp_path / "cifar10_jpeg.npz", **arrays)
    train, test = datasets.cifar10(folder=tmp_path)
    for table, levels in ((train, shades["train"]), (test, shades["test"])):
        red, blue = table["x"][:, :1024].mean(1) * 255, table["x"][:, 2048:].mean(1) * 255
        np.testing.assert_allclose(red, levels, atol=4)
        np.testing.assert_allclose(blue, 255 - np.array(levels), atol=4)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match="pip install 'pillow"):
        datasets.cifar10(folder=tmp_path)


# The quadratic programme


@pytest.mark.parametrize("n", [1, 5, 10])
def test_lcqp_is_the_published_instance(n: int, data: pathlib.Path):
    made, kept = datasets.lcqp(100, n, 1), arrays_of(data / f"lcqp_d100_n{n}_m1.npz")
    for key in kept:
        assert np.shape(getattr(made, key)) == kept[key].shape
        np.testing.assert_allclose(getattr(made, key), kept[key], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("d", "n", "m", "value"), [(100, 1, 1, -0.2324583), (300, 1, 3, -0.3716794), (300, 5, 3, 8.4659068)]
)
def test_lcqp_has_the_values_of_table_4(d: int, n: int, m: int, value: float):
    assert datasets.lcqp(d, n, m).f_star == pytest.approx(value, abs=3e-4)


@pytest.mark.parametrize(("d", "n", "m", "seed"), [(12, 1, 1, 10), (30, 4, 3, 0), (20, 4, 4, 7)])
def test_lcqp_is_as_the_paper_says_and_its_optimum_optimal(d: int, n: int, m: int, seed: int):
    made = datasets.lcqp(d, n, m, seed=seed)
    assert (made.A.shape, made.b.shape, made.C.shape, made.d.shape) == ((n, d, d), (n, d), (n + 1, m, d), (n + 1, m))
    eigenvalues = np.linalg.eigvalsh(made.A)
    assert eigenvalues.min() >= 0.5 - 1e-12
    assert eigenvalues.max() <= 1 + 1e-12
    for vectors in (made.b, made.d[1:], made.w0):
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1)
    assert not made.d[0].any()
    w, J = made.w_star, made.C.reshape(-1, d)
    gradient = made.A.sum(axis=0) @ w + made.b.sum(axis=0)
    np.testing.assert_allclose(J @ w + made.d.ravel(), 0, atol=1e-9)
    multipliers = np.linalg.lstsq(J.T, -gradient)[0]
    np.testing.assert_allclose(gradient + J.T @ multipliers, 0, atol=1e-8 * (1 + np.abs(gradient).max()))
    assert made.f_star == pytest.approx(sum(w @ A @ w / 2 + b @ w for A, b in zip(made.A, made.b, strict=True)))


def test_lcqp_trials_and_seeds():
    made, one = datasets.lcqp(8, 2, 1), datasets.lcqp(8, 2, 1, trial=3)
    np.testing.assert_array_equal(one.w0, made.w0[3])
    np.testing.assert_array_equal(one.A, made.A)
    assert not np.allclose(datasets.lcqp(8, 2, 1, seed=11).A, made.A)


@pytest.mark.parametrize(
    ("sizes", "trial", "told"),
    [
        ((0, 1, 1), None, "d must be"),
        ((5, 5, 1), None, r"\(n \+ 1\) m must be at most d"),
        ((5, 1, 1), 10, "trials are 0 to 9"),
    ],
)
def test_lcqp_refuses_what_has_no_meaning(sizes: tuple[int, int, int], trial: int | None, told: str):
    with pytest.raises(ValueError, match=told):
        datasets.lcqp(*sizes, trial=trial)
