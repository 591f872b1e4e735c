"""Curves as a file: a picture or a page by matplotlib, or the numbers as JSON."""

from __future__ import annotations

import html
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from relaxc.errors import ModelError
from relaxc.simulate.outcome import Curve
from relaxc.usage import UsageError

PICTURES = (".png", ".svg", ".pdf")
STYLE = "body{font:16px sans-serif;max-width:70em;margin:2em auto;padding:0 1em} svg{max-width:100%;height:auto}"
KINDS = (*PICTURES, ".html", ".json")


def refuse_file(path: Path) -> None:
    """Raise UsageError, or ModelError (RX0453) without matplotlib, for what could not be written in the end."""
    if path.suffix not in KINDS:
        raise UsageError(f"-o takes a name that ends with {', '.join(KINDS)}, but got {str(path)!r}")
    if not path.resolve().parent.is_dir():
        raise UsageError(f"can't write {str(path)!r}: there is no folder {path.parent}")
    if path.suffix != ".json":
        _matplotlib()


def write(path: Path, curves: Sequence[Curve], said: Sequence[str], title: str) -> None:
    try:
        path.write_bytes(made(path.suffix, curves, said, title))
    except OSError as error:
        raise UsageError(f"can't write {str(path)!r}: {(error.strerror or str(error)).lower()}") from error


def made(kind: str, curves: Sequence[Curve], said: Sequence[str], title: str) -> bytes:
    """The bytes of a file of that kind."""
    if kind == ".json":
        return msgspec.json.format(msgspec.json.encode(_numbers(curves, said, title)), indent=1) + b"\n"
    if kind == ".html":
        return _page(_picture(".svg", curves, title).decode(), said, title).encode()
    return _picture(kind, curves, title)


def _numbers(curves: Sequence[Curve], said: Sequence[str], title: str) -> dict[str, Any]:
    return {
        "title": title,
        "said": list(said),
        "curves": [
            {"name": c.name, "seconds_of_an_iteration": c.seconds,
             "seeds": [[[look.iterations, look.loss, look.apart] for look in t.looks] for t in c.trainings]}
            for c in curves
        ],
    }  # fmt: skip


def _matplotlib() -> Any:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ModelError(
            "RX0453", "pictures take matplotlib, which is not installed",
            "pip install 'relaxc[plot]', or write the numbers with -o curves.json",
        ) from error  # fmt: skip
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "relaxc"  # the same curves make the same file
    return mpl


def _picture(kind: str, curves: Sequence[Curve], title: str) -> bytes:
    _matplotlib()
    from matplotlib.figure import Figure

    timed = all(curve.seconds is not None for curve in curves)
    figure = Figure(figsize=(11 if timed else 6, 4.2), layout="constrained")
    axes = figure.subplots(1, 2 if timed else 1, squeeze=False)[0]
    for place, by_time in zip(axes, (False, True), strict=False):
        for curve in curves:
            _line(place, curve, by_time)
        place.set_xlabel("predicted time, s" if by_time else "iterations")
        place.set_ylabel("loss of the workers' mean")
        place.grid(alpha=0.3)
        if _positive(curves):
            place.set_yscale("log")
    axes[0].legend()
    figure.suptitle(title)
    out = io.BytesIO()
    figure.savefig(out, format=kind[1:], metadata={"Date": None} if kind == ".svg" else None, dpi=150)
    return out.getvalue()


def _line(axes: Any, curve: Curve, by_time: bool) -> None:
    points = [p for p in curve.points if math.isfinite(p[1])]
    scale = (curve.seconds or 0.0) if by_time else 1.0
    xs = [iterations * scale for iterations, *_ in points]
    (drawn,) = axes.plot(xs, [mean for _, mean, _, _ in points], label=curve.name)
    if len(curve.trainings) > 1:
        lows, highs = [low for _, _, low, _ in points], [high for _, _, _, high in points]
        axes.fill_between(xs, lows, highs, alpha=0.2, color=drawn.get_color(), linewidth=0)


def _positive(curves: Sequence[Curve]) -> bool:
    return all(low > 0 for curve in curves for _, _, low, _ in curve.points)


def _page(picture: str, said: Sequence[str], title: str) -> str:
    lines = "".join(f"<li>{html.escape(line)}</li>" for line in said)
    name = html.escape(title)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title>'
        f"<style>{STYLE}</style>"
        f"<h1>{name}</h1>{picture[picture.index('<svg') :]}<ul>{lines}</ul></html>\n"
    )
