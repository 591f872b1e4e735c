"""A network as text: what is read, and what is said of what is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relaxc.errors import ModelError
from relaxc.language.check import check
from relaxc.language.parse import parse
from relaxc.language.source import Source
from relaxc.schedule.network import Line
from relaxc.schedule.network_clause import network_of
from relaxc.schedule.network_file import encode_network
from relaxc.schedule.network_text import LATENCY, parse_network, shown
from relaxc.units import shown_rate, shown_time


@pytest.mark.parametrize(
    ("text", "fixed", "each"),
    [
        ("1Gbps, 200us", 200e-6, 8e-9),
        ("200us,1Gbps", 200e-6, 8e-9),
        ("100Mbps", LATENCY, 8e-8),
        ("10 Gbit/s, 50 us", 50e-6, 8e-10),
        ("1.25GB/s, 0s", 0.0, 1 / 1.25e9),
        ("bandwidth=2.5gbit, latency = 1ms", 1e-3, 3.2e-9),
        ("1e3 Mb/s, 2e2 us", 200e-6, 8e-9),
        ("125MBps, 200us", 200e-6, 8e-9),
    ],
)
def test_rates_and_times(text: str, fixed: float, each: float) -> None:
    network = parse_network(text)
    assert network.link == Line(pytest.approx(fixed), pytest.approx(each))
    assert (network.workers, network.per_machine, network.inner) == (None, 1, None)


def test_machines() -> None:
    network = parse_network("10 Gbit/s, 50us, per_machine=4, workers=16, inner=80Gbps")
    assert (network.workers, network.per_machine) == (16, 4)
    assert network.between(0, 3).each == pytest.approx(1e-10)
    assert network.between(3, 4).each == pytest.approx(8e-10)
    assert shown(network) == "10 Gbit/s, 50 us, 16 workers, 4 a machine"


@pytest.mark.parametrize(
    ("text", "said", "advised"),
    [
        ("0Gbps", "`0Gbps`: a link that carries nothing", "100Mbps"),
        ("-1Gbps, 1us", "carries nothing", "100Mbps"),
        ("1bps", "slower than", "100Mbps"),
        ("1e9Tbps", "faster than", "100Mbps"),
        ("1e999Gbps", "faster than", "100Mbps"),
        ("1Gbps, -5us", "before it is sent", "50us"),
        ("1Gbps, 11s", "longer than 10 s", "50us"),
        ("1Gbps, 5 parsec", "neither a rate nor a time", "50us"),
        ("fast", "neither a rate nor a time", "100Mbps"),
        ("", "neither a rate nor a time", "100Mbps"),
        ("50us", "no bandwidth", "100Mbps"),
        ("1Gbps, 2Gbps", "bandwidth is given twice", "per_machine=4"),
        ("1Gbps, worker=4", "`worker` is not known", "did you mean `workers`?"),
        ("1Gbps, workers=four", "not a whole number", "workers=16"),
        ("1Gbps, workers=4, per_machine=0", "0 is not a number of workers of a machine", "from 1 up"),
        ("1Gbps, workers=0", "not a number of workers", "from 1 up"),
        ("1Gbps, workers=-4", "not a number of workers", "from 1 up"),
        ("1Gbps, workers=6, per_machine=4", "6 workers don't fill machines of 4", "divides"),
        ("bandwidth=5us", "`bandwidth=5us` has the wrong unit", "100Mbps"),
        ("1Gbps, latency=5Gbps", "wrong unit", "50us"),
    ],
)
def test_what_is_no_network(text: str, said: str, advised: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_network(text)
    assert caught.value.code == "RX0440"
    assert said in caught.value.message and advised in (caught.value.help or "")
    assert text.strip() in caught.value.message


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    network = parse_network("1Gbps, 200us, workers=4")
    path.write_bytes(encode_network(network))
    assert parse_network(str(path)).link == network.link and parse_network(f" {path} ").source == str(path)
    with pytest.raises(ModelError, match="RX0441") as caught:
        parse_network(str(tmp_path / "absent.json"))
    assert "probe" in (caught.value.help or "")


def test_a_clause_says_what_a_text_says() -> None:
    text = "relax gradients\ncluster { workers = 16, per_machine = 4, bandwidth = 10Gbps, latency = 50us }"
    cluster = check(parse(Source("t.relax", text))).cluster
    assert cluster is not None
    made, same = network_of(cluster), parse_network("10Gbps, 50us, workers=16, per_machine=4")
    assert made.source == "the cluster in t.relax:2"
    assert replace(made, source="") == replace(same, source="")


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (1e9, "1 Gbit/s"),
        (8 / (8 / 1e9), "1 Gbit/s"),
        (9.999e8, "1 Gbit/s"),
        (2.5e6, "2.5 Mbit/s"),
        (4e13, "40 Tbit/s"),
        (10, "10 bit/s"),
    ],
)
def test_rates_shown(bits: float, text: str) -> None:
    assert shown_rate(bits) == text


@pytest.mark.parametrize(
    ("time", "text"), [(2.0, "2 s"), (2e-4, "200 us"), (3e-3, "3 ms"), (5e-9, "5 ns"), (0, "0 ns")]
)
def test_times_shown(time: float, text: str) -> None:
    assert shown_time(time) == text
