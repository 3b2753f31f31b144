#!/bin/sh
# pydantic 2.14.4 and jsonschema 4.26.0: the flags of a compiled pattern are not in the JSON Schema.
#
# pydantic accepts a value by re.compile(..., re.IGNORECASE), and its schema has the text of the
# pattern alone, by which a client rejects the same value.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    pydantic==2.14.4 pydantic-core==2.50.5 annotated-types==0.8.0 typing-extensions==4.16.0 \
    typing-inspection==0.4.5 jsonschema==4.26.0 jsonschema-specifications==2025.9.1 \
    referencing==0.37.0 rpds-py==2026.9.1 attrs==26.1.0

cat > "$folder/run.py" <<'PYTHON'
import re
from importlib.metadata import version
from typing import Annotated

from jsonschema import Draft202012Validator
from pydantic import Field, TypeAdapter

print("pydantic", version("pydantic"))
adapter = TypeAdapter(Annotated[str, Field(pattern=re.compile("^[a-z]+$", re.IGNORECASE))])
schema = adapter.json_schema()
print(schema)
for value in ("abc", "ABC"):
    print(adapter.validate_python(value), Draft202012Validator(schema).is_valid(value))
PYTHON
cat > "$folder/expected" <<'OUTPUT'
pydantic 2.14.4
{'pattern': '^[a-z]+$', 'type': 'string'}
abc True
ABC False
OUTPUT
"$folder/venv/bin/python" "$folder/run.py" | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
