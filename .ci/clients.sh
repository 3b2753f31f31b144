# Sourced. Installs third-party Python clients into the cache, each in its own virtual environment.
source .ci/cache.sh

install_client() {
    python3 -m venv "$MCP_TEST_CACHE/clients/$1" &&
        "$MCP_TEST_CACHE/clients/$1/bin/pip" install -q -r "tests/interop/clients/$1.txt"
}

for client in mcp1 fastmcp frameworks1 frameworks2; do
    keep "clients/$client" "$(python_version; cat "tests/interop/clients/$client.txt")" install_client "$client"
done
