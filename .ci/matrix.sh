# The fast ring on the newest Python and Django, a site that does nothing as usual, and the core
# where no extra is installed.
set -euo pipefail

# A shim on PATH may stand for a version that is not selected, so ask it to run.
find_python() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        if "$candidate" -c "" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "Python $1 is not on this machine, and the matrix needs it." >&2
    return 1
}

python=$(find_python 3.13)
echo "-- Python 3.13, Django 6, oauthlib 3"
"$python" -m venv "$WORK/py313"
# The toolkit takes two major versions of oauthlib; the other rings have the newer one.
"$WORK/py313/bin/pip" install -q -e '.[test]' 'django>=6,<7' 'oauthlib<4'
"$WORK/py313/bin/python" -m pytest -q -n auto --passed="$WORK/passed-fast" --cov=mcp_django --cov-report=
echo "-- coverage of the package in percent"
"$WORK/py313/bin/coverage" report --precision=2 --fail-under=96.9 --format=total
echo "-- of it, the protocol and the schemas"
"$WORK/py313/bin/coverage" report --precision=1 --fail-under=99.8 \
    --include='mcp_django/protocol/*,mcp_django/schema/*'

echo "-- the documentation, with [docs] alone"
python3 -m venv "$WORK/docs"
"$WORK/docs/bin/pip" install -q '.[docs]'
"$WORK/docs/bin/sphinx-build" -q -W -n -b html docs "$WORK/docs/html"

echo "-- an awkward site"
# Its tables come from the migrations, which have to stand its settings.
.venv/bin/python -m pytest -q --migrations --ds tests.awkward.settings tests/awkward

echo "-- no extras"
# Installed as a stranger gets it, not editable: what the wheel lacks is missed here.
python3 -m venv "$WORK/bare"
"$WORK/bare/bin/pip" install -q . \
    hypothesis pytest pytest-asyncio pytest-django pytest-randomly pytest-timeout pytest-xdist
(cd / && "$WORK/bare/bin/python" -W error -c "import mcp_django; print('mcp_django', mcp_django.__version__)")
# What needs a library of an extra skips itself; transports and interop need httpx and servers. The
# protocol may import no extra, as the linter of imports sees to.
"$WORK/bare/bin/python" -m pytest -q -n auto --ring all tests/schema tests/components tests/auth tests/questions \
    tests/runtime tests/management tests/spec tests/test_*.py | grep -v '^SKIPPED'
