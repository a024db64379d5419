"""Prints the calculations that check the papers' statements independently of our simulator.

python -m validation.calculate            # all of them
python -m validation.calculate averaged loss-trend
"""

from __future__ import annotations

import argparse
import sys

from papers.engine.calculate import ALL, calculation


def main(argv: list[str] | None = None) -> int:
    """Print calculations, one condition per line."""
    parser = argparse.ArgumentParser(prog="python -m validation.calculate")
    parser.add_argument("names", nargs="*", choices=[[], *(c.name for c in ALL)], metavar="NAME")
    for name in parser.parse_args(argv).names or [c.name for c in ALL]:
        each = calculation(name)
        print(f"{each.name}: {each.title}")
        for condition, value in each.values.items():
            print(f"  {condition:<32} {value:7.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
