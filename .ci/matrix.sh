# The fast ring on the newest Python and Django, a site with unusual settings, and the core without
# extras.
set -euo pipefail

echo "-- Python 3.13, Django 6, oauthlib 3"
"$WORK/py313/bin/python" -m pytest -q -n auto --passed="$WORK/passed-fast" --cov=mcp_django --cov-report=
# A site of its own, since all tests would have the packages otherwise.
"$WORK/py313/bin/python" -m pytest -q --ring all --ds tests.sites.audit.settings tests/sites/audit \
    --cov=mcp_django --cov-append --cov-report=
echo "-- coverage of the package in percent"
"$WORK/py313/bin/coverage" report --precision=2 --fail-under=96.9 --format=total
echo "-- coverage of the protocol and the schemas"
"$WORK/py313/bin/coverage" report --precision=1 --fail-under=99.8 \
    --include='mcp_django/protocol/*,mcp_django/schema/*'

echo "-- the documentation, with [docs] alone"
"$WORK/docs/bin/sphinx-build" -q -W -n -b html docs "$WORK/docs/html"

echo "-- an awkward site"
# Its tables are created by the migrations, to test these with its settings.
.venv/bin/python -m pytest -q --migrations --ds tests.sites.awkward.settings tests/sites/awkward

echo "-- no extras"
(cd / && "$WORK/bare/bin/python" -W error -c "import mcp_django; print('mcp_django', mcp_django.__version__)")
# Tests that need a library of an extra are skipped; transports, interop and tasks need
# httpx and servers.
# import-linter checks that the protocol does not import an extra.
"$WORK/bare/bin/python" -m pytest -q -n auto --ring all tests/auth tests/checks tests/components \
    tests/execution tests/hosts tests/management tests/models tests/repository tests/schema \
    tests/spec tests/testing tests/docs/test_protocol.py tests/docs/test_schemas.py tests/test_*.py \
    | grep -v '^SKIPPED'
