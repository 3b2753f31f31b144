# Sourced. Installs what the browser tests need: Chromium on PATH, axe-core and themes of the admin
# in the cache. Missing programs are reported, and the tests that need them are skipped or fail.
source .ci/cache.sh

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

install_axe() { npm install --silent --no-audit --no-fund --prefix "$MCP_TEST_CACHE/axe" "axe-core@$1"; }
if ! command -v npm >/dev/null || ! keep axe 4.10.3 install_axe 4.10.3; then
    echo "-- axe-core is missing: the pages are not tested for accessibility"
fi

# Outside a virtual environment, so that other tests do not import them.
install_themes() { python3 -m pip install -q --no-deps --target "$MCP_TEST_CACHE/themes" "$@"; }
themes=(django-unfold==0.91.0 django-jazzmin==3.0.5)
if ! keep themes "${themes[*]}" install_themes "${themes[@]}"; then
    echo "-- django-unfold or django-jazzmin is missing: the admin is not tested with other themes"
fi
