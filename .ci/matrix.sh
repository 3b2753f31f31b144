# The same suite on the newest Python and Django, and the core where no extra is installed.
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
}

python=$(find_python 3.13)
if [ -n "$python" ]; then
    # The toolkit takes two major versions of oauthlib; the other rings have the newer one.
    echo "-- Python 3.13, Django 6, oauthlib 3"
    "$python" -m venv "$WORK/py313"
    "$WORK/py313/bin/pip" install -q -e '.[test]' 'django>=6,<7' 'oauthlib<4'
    # Programs of others, pages and benchmarks were run by the README's line; they are the same here.
    # What needs services is run twice already, by the README's line and by the outside ring.
    # What is asked of every mount was asked of every mount by the README's line; here one will do.
    # Tests wait for databases and processes half of their time, so one more than there are cores.
    MCP_TEST_MOUNTS=one "$WORK/py313/bin/python" -m pytest -q -n "$(($(nproc) + 1))" -m "not requires" \
        --ignore=tests/{benchmarks,conformance,docs,interop,oauth/browser,oauth/live} \
        --ignore-glob='tests/transports/test_stdio_*'
elif [ "$DEMANDED" = all ]; then
    echo "Python 3.13 is missing (MCP_TEST_REQUIRE=all)." >&2
    exit 1
else
    echo "-- Python 3.13 is missing: leg not run"
fi

echo "-- an awkward site"
.venv/bin/python -m pytest -q --ds tests.awkward.settings tests/awkward

echo "-- no extras"
# Installed as a stranger gets it, not editable: what the wheel lacks is missed here.
python3 -m venv "$WORK/bare"
"$WORK/bare/bin/pip" install -q . \
    hypothesis pytest pytest-asyncio pytest-django pytest-randomly pytest-timeout pytest-xdist
(cd / && "$WORK/bare/bin/python" -W error -c "import mcp_django; print('mcp_django', mcp_django.__version__)")
# What needs a library of an extra skips itself; transports and interop need httpx and servers. The
# protocol may import no extra, as the linter of imports sees to.
"$WORK/bare/bin/python" -m pytest -q -n auto tests/schema tests/components tests/auth tests/questions \
    tests/runtime tests/management tests/spec tests/test_*.py | grep -v '^SKIPPED'
