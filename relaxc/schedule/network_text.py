"""A network as `--network` says it: "1Gbps, 200us", "10 Gbit/s, 50us, per_machine=4, workers=16", or the path of a
file that `relaxc probe` wrote."""

from __future__ import annotations

from pathlib import Path

from relaxc.errors import ModelError
from relaxc.language.words import did_you_mean, listed
from relaxc.schedule.network import Line, Network
from relaxc.schedule.network_file import read_network
from relaxc.units import (
    LATENCY_WANTED,
    RATE_WANTED,
    measure,
    rate,
    seconds,
    shown_rate,
    shown_time,
    wrong_latency,
    wrong_rate,
    wrong_workers,
)

LATENCY = 50e-6
"""Of a message, in seconds, where nothing is said: that of a switch and two network stacks, about."""

BITS = 8
COUNTS = ("workers", "per_machine")
RATES = ("bandwidth", "inner")
KEYS = (*RATES, "latency", *COUNTS)
WANTED = "write it as --network '10Gbps, 50us, per_machine=4, workers=16', or name a file that `relaxc probe` wrote"


def parse_network(text: str) -> Network:
    """Raise ModelError (RX0440) for what is no network, or one that can't be, and RX0441 for a file that is none.

    A rate alone is the bandwidth and a time alone the latency, 50us where there is none; `inner` is the bandwidth
    within a machine.
    """
    given = text.strip()
    if given.endswith(".json") or (given and Path(given).exists()):
        return read_network(Path(given))
    found: dict[str, float] = {}
    for part in text.split(","):
        key, value = _part(part.strip(), text)
        if key in found:
            raise _wrong(text, f"{key} is given twice", WANTED)
        found[key] = value
    if "bandwidth" not in found:
        raise _wrong(text, "it has no bandwidth", f"add {RATE_WANTED}")
    if (absurd := wrong_workers(found.get("workers"), found.get("per_machine", 1))) is not None:
        raise _wrong(text, absurd, "give whole numbers from 1 up, of which per_machine divides workers")
    return described(
        found["bandwidth"],
        found.get("latency"),
        int(found["workers"]) if "workers" in found else None,
        int(found.get("per_machine", 1)),
        found.get("inner"),
        f"--network {given}",
    )


def described(
    bandwidth: float,
    latency: float | None = None,
    workers: int | None = None,
    per_machine: int = 1,
    inner: float | None = None,
    source: str = "",
) -> Network:
    """The network of links of so many bits per second, `inner` within a machine, and so many seconds a message."""
    fixed = LATENCY if latency is None else latency
    within = None if inner is None else Line(fixed, BITS / inner)
    return Network(Line(fixed, BITS / bandwidth), workers, per_machine, within, source=source)


def _part(part: str, text: str) -> tuple[str, float]:
    key, equals, value = (piece.strip() for piece in part.partition("="))
    if not equals:
        return _measured(part, text)
    if key not in KEYS:
        raise _wrong(text, f"`{key}` is not known of a network", did_you_mean(key, KEYS) or f"it has {listed(KEYS)}")
    if key in COUNTS:
        return key, _count(value, part, text)
    of, number = _measured(value, text)
    if (of == "latency") != (key == "latency"):
        raise _wrong(
            text, f"`{part}` has the wrong unit", f"give {LATENCY_WANTED if key == 'latency' else RATE_WANTED}"
        )
    return key, number


def _count(value: str, part: str, text: str) -> float:
    try:
        return float(int(value))
    except ValueError:
        raise _wrong(text, f"`{part}` is not a whole number", "write per_machine=4, workers=16") from None


def _measured(value: str, text: str) -> tuple[str, float]:
    """A rate or a time, and which of the two."""
    found = measure(value)
    bits = None if found is None else rate(*found)
    time = None if found is None else seconds(*found)
    if bits is not None:
        absurd, wanted = wrong_rate(bits), RATE_WANTED
    elif time is not None:
        absurd, wanted = wrong_latency(time), LATENCY_WANTED
    else:
        absurd, wanted = "neither a rate nor a time", f"give {RATE_WANTED}, and {LATENCY_WANTED}"
    if absurd is not None:
        raise _wrong(text, f"`{value}`: {absurd}", f"give {wanted}" if not wanted.startswith("give") else wanted)
    return ("bandwidth", bits) if bits is not None else ("latency", time or 0.0)


def _wrong(text: str, what: str, help: str) -> ModelError:
    return ModelError("RX0440", f"no network `{' '.join(text.split())}`: {what}", help)


def shown(network: Network) -> str:
    """10 Gbit/s, 50 us, 16 workers, 4 a machine"""
    link = shown_line(network.link)
    workers = f", {network.workers} workers" if network.workers else ""
    machine = f", {network.per_machine} a machine" if network.per_machine > 1 else ""
    return link + workers + machine


def shown_line(line: Line) -> str:
    """10 Gbit/s, 50 us"""
    rate_of = shown_rate(BITS / line.each) if line.each > 0 else "no time per byte"
    return f"{rate_of}, {shown_time(line.fixed)}"
