"""The tests of a module are where a reader of the package looks for them.

Tests of `auth/limits.py` are `auth/test_limits.py`, `auth/test_limits_….py`, or a folder
`auth/limits`. Tests about a whole folder, and not about a module of it, are listed here.
"""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PACKAGE = TESTS.parent / "mcp_django"

# Folders about the whole package, about the repository, or with code that other tests import.
WHOLE = {
    "benchmarks",
    "conformance",
    "demo",
    "docs",
    "e2e",
    "interop",
    "kit",
    "matrix",
    "published",
    "repository",
    "sites",
    "spec",
    "typing",
}
# Folders of a subject with several modules, and the place of these modules.
SUBJECTS = {
    "oauth/browser": "the pages of oauth/ in Chromium",
    "oauth/live": "all of oauth/ in a process of its own",
}
# Files about several modules of their folder.
SPANNING = {
    "": {"test_exported"},
    "admin": {
        "test_ending_elsewhere",
        "test_hostile_parameters",
        "test_hostile_rows",
        "test_languages",
        "test_meanwhile",
        "test_permission_table",
        "test_safe_requests",
        "test_security",
    },
    "checks": {"test_checks"},
    "integrations/models": {"test_non_interference", "test_odd_models", "test_on_postgresql"},
    "models": {"test_models"},
    "oauth": {
        "test_hostile_clients",
        "test_lookalikes",
        "test_races",
        "test_secrets",
        "test_session_binding",
        "test_threats",
    },
    "oauth/upstream": {"test_fail_closed", "test_on_postgresql"},
    "overrides": {"test_live"},
    "schema": {"test_hostile"},
    "storage": {"test_other_databases"},
    "tasks": {"test_processes"},
    "transports": {"test_hostile", "test_mount_matrix", "test_mounts"},
}
# Folders of the package whose tests are files of the folder above.
WITHOUT_FOLDER = {"auth/backends", "execution/handlers", "management/commands", "templatetags"}


def folders_with_tests() -> dict[str, set[str]]:
    folders: dict[str, set[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        folder = path.parent.relative_to(TESTS).as_posix().removeprefix(".")
        if folder.partition("/")[0] not in WHOLE:
            folders.setdefault(folder, set()).add(path.stem)
    return folders


def modules_of(folder: str) -> set[str]:
    inside = PACKAGE / folder
    files = {path.stem for path in inside.glob("*.py")} - {"__init__"}
    return files | {path.name for path in inside.iterdir() if (path / "__init__.py").exists()}


def is_about(stem: str, module: str) -> bool:
    return f"{stem}_".startswith(f"test_{module}_")


def test_each_file_is_named_for_a_module():
    astray = []
    for folder, stems in folders_with_tests().items():
        if folder in SUBJECTS or (PACKAGE / f"{folder}.py").exists():
            continue
        assert (PACKAGE / folder / "__init__.py").exists(), f"the package has no {folder}"
        modules = modules_of(folder)
        astray += [
            f"tests/{folder}/{stem}.py"
            for stem in stems - SPANNING.get(folder, set())
            if not any(is_about(stem, module) for module in modules)
        ]
    assert not astray, f"named for no module of their folder: {sorted(astray)}"


def test_each_folder_of_the_package_has_one_of_tests():
    tested = folders_with_tests()
    packages = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    own = {
        folder
        for folder in packages - WITHOUT_FOLDER - {"."}
        if "migrations" not in folder and not folder.startswith("oauth/management")
    }
    assert own <= tested.keys(), f"without a folder of tests: {sorted(own - tested.keys())}"


def test_what_is_listed_here_exists():
    tested = folders_with_tests()
    assert tested.keys() >= SUBJECTS.keys()
    for folder, stems in SPANNING.items():
        modules = modules_of(folder)
        assert stems <= tested[folder]
        named = {stem for stem in stems if any(is_about(stem, module) for module in modules)}
        assert not named, f"tests/{folder}: {named} are named for a module"
    assert all((TESTS / folder).is_dir() for folder in WHOLE)
    assert all((PACKAGE / folder).is_dir() for folder in WITHOUT_FOLDER)
