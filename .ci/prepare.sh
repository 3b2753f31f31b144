# Makes the environments of the rings that are named, beside the tests of README.md.
set -euo pipefail

# A pyenv shim on PATH may be for a version that is not selected, so try to run it.
find_python() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        if "$candidate" -c "" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "Python $1 is not installed; the matrix needs it." >&2
    return 1
}

for ring in "$@"; do
    case $ring in
        matrix)
            python=$(find_python 3.13)
            "$python" -m venv "$WORK/py313"
            # django-oauth-toolkit supports two major versions of oauthlib; the other rings use the newer one.
            "$WORK/py313/bin/pip" install -q -e '.[test]' 'django>=6,<7' 'oauthlib<4'
            python3 -m venv "$WORK/docs"
            "$WORK/docs/bin/pip" install -q '.[docs]'
            # Installed from a wheel and not editable, to find files that are missing from the wheel.
            python3 -m venv "$WORK/bare"
            "$WORK/bare/bin/pip" install -q . \
                hypothesis pytest pytest-asyncio pytest-django pytest-randomly pytest-timeout pytest-xdist
            ;;
        outside)
            source .ci/node.sh
            source .ci/clients.sh
            source .ci/browser.sh
            ;;
    esac
done
