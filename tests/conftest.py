"""What every test runs under: an object cache of the checkout's own, kept from run to run, and short collections."""

import gc
import os
import pathlib

import pytest

_FOLDER = "samebits-tests"


def pytest_configure(config: pytest.Config) -> None:
    """Point the object cache (and that of every subprocess) into pytest's own ignored directory.

    One that was chosen gets a folder of its own below, so that what a user tuned there plans no test.
    """
    chosen = os.environ.get("SAMEBITS_CACHE_DIR", str(config.rootpath / ".pytest_cache"))
    if chosen:
        folder = pathlib.Path(chosen)
        if folder.name != _FOLDER:
            folder /= _FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        os.environ["SAMEBITS_CACHE_DIR"] = str(folder)


def pytest_collection_finish() -> None:
    """Leave the tests and what they import out of every later collection: a full one took half a second."""
    gc.collect()
    gc.freeze()
