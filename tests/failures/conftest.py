"""One nursery of workers for all tests of this folder."""

from __future__ import annotations

import pytest
from nursery import Nursery


@pytest.fixture(scope="session")
def nursery(tmp_path_factory):
    started = Nursery(tmp_path_factory.mktemp("workers"))
    yield started
    started.close()
