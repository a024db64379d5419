"""The cache's folder."""

import os
import pwd
from pathlib import Path

import pytest
from steadycast.errors import UserError
from steadycast.media import cache


def test_an_empty_home_or_a_relative_xdg_cache_home_counts_as_unset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STEADYCAST_CACHE", raising=False)
    own = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache" / "steadycast"
    of_home = tmp_path / "home" / ".cache" / "steadycast"
    for home, xdg, folder in (
        (f"{tmp_path}/home", f"{tmp_path}/xdg", tmp_path / "xdg" / "steadycast"),
        (f"{tmp_path}/home", "", of_home),
        (f"{tmp_path}/home", "relative", of_home),
        ("", "", own),
        ("relative", "./relative", own),
    ):
        monkeypatch.setenv("HOME", home)
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
        assert cache.folder() == folder


def test_a_user_without_a_home_is_told_to_name_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(user: int) -> None:
        raise KeyError(user)

    for name in ("STEADYCAST_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", absent)
    with pytest.raises(UserError, match="set STEADYCAST_CACHE"):
        cache.folder()
