"""Imports polars when it is first used, because its import takes longer than many commands."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["pl"]

if TYPE_CHECKING:
    import polars as pl
else:

    class _Later:
        def __getattr__(self, name: str) -> Any:
            return getattr(import_module("polars"), name)

    pl = _Later()
