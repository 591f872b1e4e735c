"""Rates of links and times as people write them: `10Gbps`, `100 Mbit/s`, `1.25GB/s`, `50us`. What is absurd is
refused in one place, wherever it was written."""

from __future__ import annotations

import re

MEASURE = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]+(?:/s)?)\s*")
RATE = re.compile(r"([kKmMgGtT]?)(bps|bit/s|bit|b/s|Bps|B/s)")
PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}

SLOWEST, FASTEST = 1e3, 1e14
LONGEST = 10.0
MOST_WORKERS = 2**20

NEARLY = 0.9995
"""What is shown with three digits is rounded up to the next unit from here on."""

RATE_WANTED = "a rate such as 100Mbps, 10 Gbit/s or 1.25GB/s"
LATENCY_WANTED = "a time such as 50us or 0.2ms"
RATE_WANTED_IN_SPECS = "a rate such as 100Mbps or 10Gbps"


def measure(text: str) -> tuple[float, str] | None:
    """A number and the unit behind it, as written."""
    found = MEASURE.fullmatch(text)
    return (float(found[1]), found[2]) if found else None


def rate(value: float, unit: str) -> float | None:
    """Bits per second; None where `unit` is not one of a rate. A capital B is a byte."""
    found = RATE.fullmatch(unit)
    if found is None:
        return None
    return value * PREFIXES[found[1].lower()] * (8 if found[2].startswith("B") else 1)


def seconds(value: float, unit: str) -> float | None:
    """None where `unit` is not one of time."""
    return value * TIMES[unit] if unit in TIMES else None


def wrong_rate(bits: float) -> str | None:
    """What is absurd about a link of so many bits per second; None where one can be so."""
    if not bits > 0:
        return "a link that carries nothing is no link"
    if bits < SLOWEST:
        return "slower than 1 kbit/s"
    return "faster than 100 Tbit/s" if bits > FASTEST else None


def wrong_latency(time: float) -> str | None:
    """What is absurd about a message that takes so many seconds to arrive."""
    if not time >= 0:
        return "nothing arrives before it is sent"
    return "longer than 10 s" if time > LONGEST else None


def wrong_workers(count: float | None, per_machine: float) -> str | None:
    """What is absurd about `count` workers, None where that is not said, `per_machine` of them on each machine."""
    for number, what in ((count, "workers"), (per_machine, "workers of a machine")):
        if number is not None and (number != int(number) or not 1 <= number <= MOST_WORKERS):
            return f"{number:g} is not a number of {what}"
    if count is not None and count % per_machine:
        return f"{count:g} workers don't fill machines of {per_machine:g}"
    return None


def shown_rate(bits: float) -> str:
    """10 Gbit/s"""
    for prefix in ("T", "G", "M", "k"):
        if bits >= NEARLY * PREFIXES[prefix.lower()]:
            return f"{bits / PREFIXES[prefix.lower()]:.3g} {prefix}bit/s"
    return f"{bits:.3g} bit/s"


def shown_time(time: float) -> str:
    """50 us"""
    for unit in ("s", "ms", "us"):
        if abs(time) >= NEARLY * TIMES[unit]:
            return f"{time / TIMES[unit]:.3g} {unit}"
    return f"{time * 1e9:.3g} ns"
