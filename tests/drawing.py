"""How many examples a test draws: in each run as many as it says, in `make exhaustive` ten times as many new ones."""

from hypothesis import HealthCheck, settings

for _name, _same, _count in (("same", True, 100), ("new", False, 1000)):
    # An example may take as long as it takes; one that fails is printed with what draws it again.
    settings.register_profile(
        _name,
        max_examples=_count,
        derandomize=_same,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )
settings.load_profile("same")  # `--hypothesis-profile` then loads the one that it names


def examples(count: int) -> settings:
    """Settings of a test that draws `count` examples where others draw 100."""
    return settings(max_examples=count * settings.default.max_examples // 100)
