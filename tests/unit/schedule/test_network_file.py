"""cluster.json: what is written comes back, and what can't be a network is refused with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relaxc.errors import ModelError
from relaxc.schedule.network import Coding, Line, Network
from relaxc.schedule.network_file import decode_network, encode_network, read_network, require_workers

FULL = Network(
    Line(5e-5, 8e-9), 4, 2, Line(1e-5, 1e-10), {(0, 1): Line(1e-5, 1e-10), (3, 0): Line(2e-4, 9e-9)}, Line(1e-4, 2e-8),
    {"minmax(bits = 8, block = 512)": Coding(Line(1e-6, 2e-10), Line(2e-6, 1e-10))}, wire=Line(1e-6, 3e-10),
)  # fmt: skip


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_bytes(encode_network(FULL))
    read = read_network(path)
    assert read.source == str(path)
    for name in ("link", "workers", "per_machine", "inner", "pairs", "reduce", "codings", "wire"):
        assert getattr(read, name) == getattr(FULL, name)
    assert (
        read.between(0, 1) == FULL.pairs[0, 1] and read.between(1, 0) == FULL.inner and read.between(1, 2) == FULL.link
    )


def altered(**changes: Any) -> bytes:
    return json.dumps({**json.loads(encode_network(FULL)), **changes}, indent=2).encode()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not a network: input data was truncated"),
        (b"{", "truncated"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "expected `object`"),
        (b"{}", "required field `link`"),
        (altered(format=2), ":6 is not a network: its format is 2, not 1"),
        (altered(bandwidth=1), "unknown field `bandwidth`"),
        (altered(link={"fixed": 0.0, "each": 0.0}), ":2 is not a network: a link on which bytes take no time"),
        (altered(link={"fixed": -1.0, "each": 1e-9}), "no link costs -1 s"),
        (altered(link={"fixed": 1.0, "each": 2.0}), "2 s for each"),
        (altered(reduce={"fixed": 1e9, "each": 1e-9}), "no reduce costs"),
        (altered(wire={"fixed": 0.0, "each": 2.0}), "no wire costs 0 s and 2 s"),
        (altered(workers=0), "0 is not a number of workers"),
        (altered(workers=5), "5 workers don't fill machines of 2"),
        (altered(per_machine=0), "0 is not a number of workers of a machine"),
        (altered(workers=2), "no pair of workers 3 and 0"),
        (
            altered(pairs=[{"sender": 1, "receiver": 1, "link": {"fixed": 0.0, "each": 1e-9}}]),
            "no pair of workers 1 and 1",
        ),
        (altered(link={"fixed": "fast", "each": 1e-9}), "$.link.fixed"),
    ],
)
def test_what_is_no_network(raw: bytes, said: str) -> None:
    with pytest.raises(ModelError) as caught:
        decode_network(raw, Path("cluster.json"))
    assert caught.value.code == "RX0441"
    assert said in caught.value.message and "cluster.json" in caught.value.message
    assert "relaxc probe" in (caught.value.help or "")


def test_another_number_of_workers(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_bytes(encode_network(FULL))
    network = read_network(path)
    require_workers(network, 4)
    require_workers(Network(Line(0, 1e-9)), 7)
    with pytest.raises(ModelError) as caught:
        require_workers(network, 8)
    number = next(n for n, line in enumerate(path.read_text().splitlines(), 1) if "workers" in line)
    assert caught.value.code == "RX0442"
    assert caught.value.message == f"{path}:{number} is of 4 workers, not of 8"
