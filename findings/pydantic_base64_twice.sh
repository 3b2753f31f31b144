#!/bin/sh
# pydantic 2.14.4: with val_json_bytes="base64", Base64Bytes decodes its text twice, and with
# ser_json_bytes="base64" it encodes twice.
#
# The configuration is for plain bytes, and Base64Bytes is bytes with a decoder after them. A type
# that has both kinds of fields cannot be configured so that both are read as one would write them.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
    pydantic==2.14.4 pydantic-core==2.50.5 annotated-types==0.8.0 typing-extensions==4.16.0 \
    typing-inspection==0.4.5

cat > "$folder/run.py" <<'PYTHON'
from importlib.metadata import version

from pydantic import Base64Bytes, BaseModel, ConfigDict, ValidationError


class Plain(BaseModel):
    data: Base64Bytes


class Configured(BaseModel):
    model_config = ConfigDict(val_json_bytes="base64", ser_json_bytes="base64")
    data: Base64Bytes
    bare: bytes = b""


print("pydantic", version("pydantic"))
print("plain:", Plain.model_validate_json('{"data": "aGVsbG8="}').data)
try:
    Configured.model_validate_json('{"data": "aGVsbG8="}')
except ValidationError as exc:
    print("configured:", exc.errors()[0]["type"])
# The Base64 of "aGVsbG8=".
twice = Configured.model_validate_json('{"data": "YUdWc2JHOD0=", "bare": "aGVsbG8="}')
print("configured, encoded twice:", twice.data, twice.bare)
print("written:", twice.model_dump_json())
PYTHON
cat > "$folder/expected" <<'OUTPUT'
pydantic 2.14.4
plain: b'hello'
configured: base64_decode
configured, encoded twice: b'hello' b'hello'
written: {"data":"YUdWc2JHOD0=","bare":"aGVsbG8="}
OUTPUT
"$folder/venv/bin/python" "$folder/run.py" | tee "$folder/seen"
diff "$folder/expected" "$folder/seen"
