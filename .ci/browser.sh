# Sourced. Installs what the browser tests need: Chromium on PATH, axe-core and themes of the admin
# in the cache. Missing programs are reported, and the tests that need them are skipped or fail.
export CACHE=${CACHE:-$PWD/.ci/cache}

find_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; }

if ! find_chromium >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    # A fresh machine needs apt-get update first.
    for prepare in true "apt-get update -qq"; do
        $prepare >/dev/null 2>&1 || true
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium \
            >/dev/null 2>&1 && break
    done
fi
if ! find_chromium >/dev/null; then
    echo "-- Chromium is missing: the pages are not tested in a browser"
fi

axe=$CACHE/axe/node_modules/axe-core/axe.min.js
if [ ! -f "$axe" ] && command -v npm >/dev/null; then
    npm install --silent --no-audit --no-fund --prefix "$CACHE/axe" axe-core@4.10.3 || true
fi
if [ -f "$axe" ]; then
    export MCP_TEST_AXE=$axe
else
    echo "-- axe-core is missing: the pages are not tested for accessibility"
fi

themes=$CACHE/themes
if [ ! -d "$themes/unfold" ] || [ ! -d "$themes/jazzmin" ]; then
    # Outside the virtual environment, so that other tests do not import them.
    .venv/bin/pip install -q --no-deps --target "$themes" django-unfold==0.91.0 django-jazzmin==3.0.5 || true
fi
if [ -d "$themes/unfold" ] && [ -d "$themes/jazzmin" ]; then
    export MCP_TEST_THEMES=$themes
else
    echo "-- django-unfold or django-jazzmin is missing: the admin is not tested with other themes"
fi
