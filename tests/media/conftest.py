"""What the tests of media share: a cache of their own."""

import pytest
from small_clips import write_clip


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory):
    """No test reads or writes the user's own cache."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEADYCAST_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session")
def clip_path(tmp_path_factory):
    """A whole, small clip."""
    return write_clip(tmp_path_factory.mktemp("clips") / "whole.mkv")
