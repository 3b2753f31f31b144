"""Print how many of 400 calls had rows of another tenant, or not exactly their own.

python -m tests.sites.tenants
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.sites.tenants.load import KINDS, Load
from tests.sites.tenants.sites import HTTP_MOUNTS, SITES, served

CALLS = 400


def main() -> None:
    print("| site | mount | function | foreign | wrong | calls |")
    print("|---|---|---|---|---|---|")
    for site in SITES:
        for mount in HTTP_MOUNTS:
            with (
                TemporaryDirectory() as directory,
                served(site, mount, Path(directory)) as server,
                closing(Load(server)) as load,
            ):
                for kind in KINDS:
                    outcome = load.run(kind, CALLS)
                    counts = f"{outcome.foreign} | {outcome.wrong} | {outcome.calls}"
                    print(f"| {site} | {mount} | {kind} | {counts} |", flush=True)


if __name__ == "__main__":
    main()
