# Sourced. Installs third-party Python clients into the cache, each in its own virtual environment.
export CACHE=${CACHE:-$PWD/.ci/cache}

export MCP_TEST_CLIENTS=$CACHE/clients
for client in mcp1 fastmcp frameworks1 frameworks2; do
    if [ ! -x "$MCP_TEST_CLIENTS/$client/bin/python" ]; then
        python3 -m venv "$MCP_TEST_CLIENTS/$client"
    fi
    "$MCP_TEST_CLIENTS/$client/bin/pip" install -q -r "tests/interop/clients/$client.txt"
done
