"""What lands when it has arrived: the interpreter == paths, on drawn programs with arrivals by chance."""

from __future__ import annotations

from drawn_programs import Script, asynchronous_bodies, check_agreement
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relaxc.language.diagnostics import SpecError
from relaxc.program.ir import Body, Program

REFUSALS = {"RX0340", "RX0341", "RX0342", "RX0343"}


def agree(body: Body, workers: int, seed: int, drops: bool) -> None:
    try:
        check_agreement(
            Program((body,)), workers, seed, sizes=(9, 0, 17), iterations=8, arrivals=lambda: Script(seed, drops)
        )
    except SpecError as error:
        if not {d.code for d in error.diagnostics} <= REFUSALS:
            raise


SLOW = list(HealthCheck)


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(asynchronous_bodies(), st.integers(1, 4), st.integers(0, 2**20), st.booleans())
def test_known_partners(body: Body, workers: int, seed: int, drops: bool) -> None:
    agree(body, workers, seed, drops)


@settings(max_examples=12, deadline=None, suppress_health_check=SLOW)
@given(asynchronous_bodies(bounded=True), st.integers(1, 4), st.integers(0, 2**20))
def test_ages_are_bounded(body: Body, workers: int, seed: int) -> None:
    agree(body, workers, seed, False)


@settings(max_examples=16, deadline=None, suppress_health_check=SLOW)
@given(asynchronous_bodies(ready=True), st.integers(2, 4), st.integers(0, 2**20))
def test_partners_that_find_each_other(body: Body, workers: int, seed: int) -> None:
    agree(body, workers, seed, False)
