# Sourced. Installs what the tests with third-party programs need: Node 22 on PATH, the pinned
# conformance suite in the cache, and nginx.
source .ci/cache.sh

install_from_npm() { npm install --silent --no-audit --no-fund --prefix "$MCP_TEST_CACHE/$1" "${@:2}"; }

major=$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/' || true)
if [ "${major:-0}" -lt 22 ]; then
    keep node 22 install_from_npm node node@22
    export PATH="$MCP_TEST_CACHE/node/node_modules/node/bin:$PATH"
fi
echo "-- node $(node --version)"

install_conformance() {
    cp tests/conformance/package.json tests/conformance/package-lock.json "$MCP_TEST_CACHE/conformance"
    npm ci --silent --no-audit --no-fund --prefer-offline --prefix "$MCP_TEST_CACHE/conformance"
}
keep conformance "$(cat tests/conformance/package-lock.json)" install_conformance

if ! command -v nginx >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get install -y -qq --no-install-recommends nginx-light >/dev/null 2>&1 || true
fi
