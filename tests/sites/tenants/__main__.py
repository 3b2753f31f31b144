"""Print how many of 400 calls had rows of another tenant, or not exactly their own.

python -m tests.sites.tenants
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.sites.tenants.load import KINDS, OPENERS, Load, ask_older, hear
from tests.sites.tenants.sites import MOUNTS, SITES, served

CALLS = 400


def main() -> None:
    print("| site | mount | function | foreign | wrong | calls |")
    print("|---|---|---|---|---|---|")
    for site in SITES:
        for mount in MOUNTS:
            with (
                TemporaryDirectory() as directory,
                served(site, mount, Path(directory)) as server,
                closing(Load(server, can_stream=mount != "WSGI")) as load,
            ):
                kinds = {kind: partial(load.run, kind) for kind in KINDS}
                if mount != "WSGI":
                    kinds |= {kind: partial(hear, server, kind) for kind in OPENERS}
                    kinds["HTTP+SSE"] = partial(ask_older, server)
                for kind, run in kinds.items():
                    outcome = run(CALLS)
                    counts = f"{outcome.foreign} | {outcome.wrong} | {outcome.calls}"
                    print(f"| {site} | {mount} | {kind} | {counts} |", flush=True)


if __name__ == "__main__":
    main()
