# Runs the two lines of README.md unchanged: the tests pass, and the demo answers its own curl.
set -euo pipefail

line() {
    sed -n "/<!-- $1-line -->/,/<!-- \\/$1-line -->/p" README.md | sed '/^<!--/d; /^```/d; /^$/d'
}

tests=$(line test)
demo=$(line demo)
if [ -z "$tests" ] || [ -z "$demo" ]; then
    echo "README.md has no command between <!-- test-line --> or <!-- demo-line --> and its end marker." >&2
    exit 1
fi

echo "$tests"
bash -euo pipefail -c "$tests"

echo "$demo"
git clone --quiet --no-hardlinks . "$WORK/demo"
(cd "$WORK/demo" && exec setsid bash -euo pipefail -c "$demo") >"$WORK/demo.log" 2>&1 &
trap 'kill -- -"$(cat "$WORK/demo.pid" 2>/dev/null || echo $!)" 2>/dev/null || true' EXIT
echo $! >"$WORK/demo.pid"
for _ in $(seq 300); do
    grep -q '^Serving on' "$WORK/demo.log" && break
    kill -0 $! 2>/dev/null || break
    sleep 1
done
before=$(sed '/^Addresses$/,$d; /^WARNING: Location /d' "$WORK/demo.log")
if grep -iqE 'warning|error|traceback|hidden|unknown' <<<"$before"; then
    printf 'The demo printed a warning or an error before its addresses:\n%s\n' "$before" >&2
    exit 1
fi
answer=$(bash -c "$(sed -n '/curl -sS/,/--data/p' "$WORK/demo.log")" || true)
case $answer in
    *'"icao'*'EGLC'*) echo "-- the demo answers: ${answer:0:120} …" ;;
    *) cat "$WORK/demo.log"; echo "The demo did not answer its own curl: $answer" >&2; exit 1 ;;
esac
