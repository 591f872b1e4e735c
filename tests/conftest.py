"""Options of the whole suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pool import Pool


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the expected texts; read the diff before you commit"
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Real workers, started once for all tests that train."""
    workers = Pool()
    yield workers
    workers.close()
