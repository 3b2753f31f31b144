# Sourced. What is installed outside of the clone is kept from run to run in $MCP_TEST_CACHE: a
# directory for each name, with the pins it was installed from. Without it, or with other pins, it is
# installed anew.
export MCP_TEST_CACHE=${MCP_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mcp_django}
mkdir -p "$MCP_TEST_CACHE"

# keep NAME PINS COMMAND…: run the command, which installs into $MCP_TEST_CACHE/NAME, unless that was
# installed from the same pins. Only one run installs at a time.
keep() {
    local place=$MCP_TEST_CACHE/$1 pins=$2
    (
        exec 9>"$MCP_TEST_CACHE/.lock"
        flock 9 2>/dev/null || true
        [ "$(cat "$place/.pins" 2>/dev/null)" = "$pins" ] && exit 0
        rm -rf "$place"
        mkdir -p "$place"
        # Programs that it leaves running must not hold the lock.
        "${@:3}" 9>&- && printf '%s\n' "$pins" >"$place/.pins"
    )
}

# An environment that names another Python than there is now is of no use.
python_version() { python3 -c 'import sys; print(sys.base_prefix, sys.version)'; }
