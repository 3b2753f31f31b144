# The fenced block that README.md marks as its test line, run as it stands.
set -euo pipefail

line=$(sed -n '/<!-- test-line -->/,/<!-- \/test-line -->/p' README.md | sed '/^<!--/d; /^```/d; /^$/d')
if [ -z "$line" ]; then
    echo "README.md has no test line between <!-- test-line --> and <!-- /test-line -->." >&2
    exit 1
fi
echo "$line"
bash -euo pipefail -c "$line"
