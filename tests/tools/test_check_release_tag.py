"""The guard of releases: tag, version and changelog agree, or one sentence says how they do not."""

import importlib.metadata
import pathlib

import check_release_tag
import pytest

import samebits


@pytest.fixture
def checkout(tmp_path):
    package = tmp_path / "src" / "samebits"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""Doc."""\n__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2030-01-31\n")
    return tmp_path


def test_equal_tag_passes(checkout, capsys):
    assert check_release_tag.main(["v1.2.3"], checkout) == 0
    assert capsys.readouterr().out == "v1.2.3 is the version and is in the changelog\n"


@pytest.mark.parametrize("tag", ["v1.2.4", "1.2.3", "v1.2.3rc1", "v01.2.3", ""])
def test_other_tag_is_refused(checkout, capsys, tag):
    assert check_release_tag.main([tag], checkout) == 1
    assert (
        capsys.readouterr().err
        == f"check_release_tag: tag is {tag}, must be v1.2.3; tag the commit that sets __version__\n"
    )


@pytest.mark.parametrize("section", ["## [Unreleased]", "## [1.2.3]", "## [1.2.30] - 2030-01-31"])
def test_version_missing_from_the_changelog_is_refused(checkout, capsys, section):
    (checkout / "CHANGELOG.md").write_text(f"# Changelog\n\n{section}\n")
    assert check_release_tag.main(["v1.2.3"], checkout) == 1
    assert capsys.readouterr().err == (
        "check_release_tag: CHANGELOG.md has no section '## [1.2.3] - YYYY-MM-DD'; rename its section Unreleased\n"
    )


def test_two_versions_are_refused(checkout):
    (checkout / "src" / "samebits" / "__init__.py").write_text('__version__ = "1.2.3"\n__version__ = "1.2.4"\n')
    with pytest.raises(ValueError, match=r"sets __version__ 2 times, must set it once"):
        check_release_tag.fault("v1.2.3", checkout)


def test_version_has_one_source():
    root = pathlib.Path(__file__).parent.parent.parent
    assert check_release_tag.package_version(root) == samebits.__version__


def test_installed_version_is_the_packages():
    assert importlib.metadata.version("samebits") == samebits.__version__
