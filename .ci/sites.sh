# The tests of a site of another project, or of all of them, each in an environment of its own.
set -euo pipefail

source .ci/cache.sh
sites=($(.venv/bin/python -m tests.sites --list))
if [ "$TURN" != all ]; then
    sites=("${sites[COMMITS % ${#sites[@]}]}")
fi
.venv/bin/python -m tests.sites "${sites[@]}"
