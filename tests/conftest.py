"""What every test runs under: an object cache of the checkout's own, kept from run to run."""

import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Point the object cache (and that of every subprocess) into pytest's own ignored directory."""
    if "SAMEBITS_CACHE_DIR" not in os.environ:
        folder = config.rootpath / ".pytest_cache" / "objects"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        os.environ["SAMEBITS_CACHE_DIR"] = str(folder)
