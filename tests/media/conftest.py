"""A small clip for the tests of media."""

import pytest
from small_clips import write_clip


@pytest.fixture(scope="session")
def clip_path(tmp_path_factory):
    """A whole, small clip."""
    return write_clip(tmp_path_factory.mktemp("clips") / "whole.mkv")
