"""Run the tests of sites of other projects.

python -m tests.sites           all of them
python -m tests.sites NAME …    these
python -m tests.sites --list    print their names
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.kit.processes import CACHE, REPOSITORY

TREES = "django-mptt==0.18.0"
SITES = {
    # The folder of its tests, and the packages of its environment.
    "wagtail7": ("wagtail", ["wagtail==7.4.4", TREES]),
    "wagtail8": ("wagtail", ["wagtail==8.0.1", TREES]),
    "oscar": ("oscar", ["django-oscar==4.2.1", "sorl-thumbnail==12.11.0", "setuptools<81"]),
    "helpdesk": ("helpdesk", ["django-helpdesk==2.6.1", "setuptools<81"]),
}


def run_site(name: str, *arguments: str) -> int:
    """Install the environment of a site if it is missing or old, and run its tests."""
    folder, packages = SITES[name]
    environment = CACHE / "sites" / name
    python = environment / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*install, "-e", f"{REPOSITORY}[test]", *packages], check=True)
    command = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--ring",
        "all",
        "-W",
        "default",
    ]
    settings = ["--ds", f"tests.sites.{folder}.settings", f"tests/sites/{folder}"]
    kept = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    return subprocess.run(
        [*command, *settings, *arguments], cwd=REPOSITORY, env=kept, check=False
    ).returncode


def main(names: list[str]) -> int:
    """Run the named sites, or all, or list them; return the exit code."""
    if names == ["--list"]:
        print(*SITES)
        return 0
    unknown = [name for name in names if name not in SITES]
    if unknown:
        print(f"There is no site {unknown[0]!r}; there are {', '.join(SITES)}.", file=sys.stderr)
        return 2
    failed = []
    for name in names or SITES:
        print(f"== {name}", flush=True)
        if run_site(name):
            failed.append(name)
    print(f"== failed: {', '.join(failed)}" if failed else "== all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
