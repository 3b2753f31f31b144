"""Every program of the page about clients and frameworks, against a site in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.interop import clients, node
from tests.interop.framework_site import SITE
from tests.interop.programs import (
    FRAMEWORKS,
    SECONDS,
    SIGN_IN,
    Program,
    code_of_sections,
    environment_of,
    of_both_sdks,
    output,
    output_of_elicitation,
    requests_in,
    run_python,
    signing_in,
    table,
)
from tests.interop.test_oauth_extensions import SECRET, site_of_machines
from tests.kit.processes import REPOSITORY, START_SECONDS, serving
from tests.oauth.live.site import running_site

PROGRAMS = (
    Program(client="Python SDK 2", section="Python SDK", package="mcp", environment="frameworks2"),
    Program(
        client="Python SDK 1",
        section="Python SDK",
        number=1,
        package="mcp",
        environment="frameworks1",
    ),
    Program(
        client="TypeScript SDK 1",
        section="TypeScript SDK",
        package="@modelcontextprotocol/sdk",
        project=FRAMEWORKS,
    ),
    Program(
        client="TypeScript SDK 2",
        section="TypeScript SDK",
        number=1,
        package="@modelcontextprotocol/client",
        project=node.PROJECT,
    ),
    Program(client="FastMCP", section="FastMCP", package="fastmcp", environment="fastmcp"),
    Program(
        client="LangChain",
        section="LangChain",
        package="langchain-mcp-adapters",
        environment="frameworks1",
    ),
    Program(
        client="OpenAI Agents SDK",
        section="OpenAI Agents SDK",
        package="openai-agents",
        environment="frameworks2",
    ),
    Program(
        client="Pydantic AI",
        section="Pydantic AI",
        package="pydantic-ai-slim",
        environment="frameworks2",
    ),
    Program(
        client="LlamaIndex",
        section="LlamaIndex",
        package="llama-index-tools-mcp",
        environment="frameworks2",
    ),
    Program(
        client="Semantic Kernel",
        section="Semantic Kernel",
        package="semantic-kernel",
        environment="frameworks1",
    ),
    Program(client="AI SDK", section="Vercel AI SDK", package="@ai-sdk/mcp", project=FRAMEWORKS),
    Program(client="mcp-use", section="mcp-use", package="mcp-use", environment="frameworks1"),
)
# A configuration for a host, and not a program.
BRIDGE = Program(
    client="mcp-remote", section="mcp-remote", package="mcp-remote", project=FRAMEWORKS
)
SERVICE_ACCOUNT = "A program without a user"
ELICITATION = of_both_sdks("Answer elicitation")
# Code of the programs, and its replacement for a revision before 2026-07-28.
LEGACY = {
    "elicitation_callback=answer": 'elicitation_callback=answer, mode="legacy"',
    'mode: "auto"': 'mode: "legacy"',
}

# What the components of the site return, by the columns of the table.
FEATURES = {
    "resources": "Nothing new.",
    "prompts": "Write a letter about books.",
    "elicitation": "Hello, Ada.",
    "sampling": "Short.",
    "list changes": "changed",
    "tasks": "A report.",
}
# The scripts that use them, with their environments; other tests use what no script uses.
SCRIPTS = {
    "LangChain": ("features_langchain.py", "frameworks1"),
    "OpenAI Agents SDK": ("features_openai.py", "frameworks2"),
    "Pydantic AI": ("features_pydantic_ai.py", "frameworks2"),
    "LlamaIndex": ("features_llama_index.py", "frameworks2"),
    "Semantic Kernel": ("features_semantic_kernel.py", "frameworks1"),
    "mcp-use": ("features_mcp_use.py", "frameworks1"),
    "AI SDK": ("features.mjs", ""),
}

pytestmark = [
    pytest.mark.outside,
    pytest.mark.heavy,
    pytest.mark.timeout(START_SECONDS + node.INSTALL_SECONDS + 2 * SECONDS),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """The running site: its address, a token, and the file with the requests."""

    url: str
    token: str
    record: Path

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables that the programs read."""
        return {"MCP_URL": f"{self.url}/mcp", "MCP_TOKEN": self.token}

    @property
    def features(self) -> dict[str, str]:
        """The input of the scripts."""
        return {"url": f"{self.url}/features/mcp", "token": self.token}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Yield the site, started once."""
    directory = tmp_path_factory.mktemp("shop")
    record = directory / "requests.jsonl"
    record.touch()
    environ = {
        "DJANGO_SETTINGS_MODULE": f"{SITE}.settings",
        "MCP_TEST_DATABASE": str(directory / "shop.sqlite3"),
        "MCP_TEST_REQUESTS": str(record),
    }
    prepared = subprocess.run(
        [sys.executable, "-m", f"{SITE}.prepare"],
        cwd=REPOSITORY,
        env=environment_of(directory) | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=START_SECONDS,
    )
    assert prepared.returncode == 0, prepared.stderr
    settings = environ.pop("DJANGO_SETTINGS_MODULE")
    with serving(
        "uvicorn", f"{SITE}.asgi:application", directory, settings=settings, **environ
    ) as server:
        yield Shop(url=server.url, token=prepared.stdout, record=record)


def needs(*, environment: str) -> list[pytest.MarkDecorator]:
    """Return markers for the services of a Python environment, or of Node."""
    if not environment:
        return [pytest.mark.requires("node", "npm")]
    is_framework = environment in clients.FRAMEWORKS
    return [pytest.mark.requires("frameworks" if is_framework else "clients")]


def in_this_environment(programs: Iterable[Program]) -> list[Any]:
    """Return parameters for programs of the tests' own Python environment, or of Node."""
    return [
        pytest.param(
            program, id=program.client, marks=needs(environment="") if program.project else []
        )
        for program in programs
    ]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, id=program.client, marks=needs(environment=program.environment))
        for program in PROGRAMS
    ],
)
def test_a_program_of_the_page_calls_the_tool(program, shop, tmp_path):
    before = len(requests_in(shop.record))
    assert program.run(tmp_path, **shop.environ) == output()
    requests = requests_in(shop.record)[before:]
    posted = [request for request in requests if request["http"] == "POST"]
    called = [request["revision"] for request in posted if request["method"] == "tools/call"]
    row = table("revision")[program.client]
    assert called == [row["revision"]]
    assert len(posted) == int(row["requests"])
    # A session is ended by the client that opened it.
    has_session = any(request["method"] == "initialize" for request in posted)
    assert any(request["http"] == "DELETE" for request in requests) == has_session
    assert {request["status"] for request in requests} <= {200, 202, 204}


@pytest.mark.requires("node", "npm")
@pytest.mark.parametrize(("mode", "revision"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_a_host_calls_the_tool_through_the_bridge(mode, revision, shop, tmp_path):
    node.install(FRAMEWORKS)
    text = BRIDGE.code.replace("https://shop.example.com/mcp", shop.environ["MCP_URL"])
    config = json.loads(text.replace("YOUR_TOKEN", shop.token))["mcpServers"]["shop"]
    # The package is found from the working directory.
    parameters = StdioServerParameters(
        command=config["command"],
        args=config["args"],
        env=environment_of(tmp_path) | config["env"],
        cwd=FRAMEWORKS,
    )
    before = len(requests_in(shop.record))
    with (tmp_path / "stderr.txt").open("w", encoding="utf-8") as errors:
        async with Client(stdio_client(parameters, errlog=errors), mode=mode) as client:
            assert client.protocol_version == revision
            names = [tool.name for tool in (await client.list_tools()).tools]
            result = await client.call_tool("signups", {"since": "2026-01-01"})
    assert [*names, result.content[0].text] == output().split()
    requests = requests_in(shop.record)[before:]
    posted = [request for request in requests if request["http"] == "POST"]
    called = [request["revision"] for request in posted if request["method"] == "tools/call"]
    assert called == [revision]
    if mode == "auto":
        assert len(posted) == int(table("revision")[BRIDGE.client]["requests"])
    # The session of the bridge, which does not end it.
    assert posted[0]["method"] == "initialize"
    assert not any(request["http"] == "DELETE" for request in requests)
    assert 405 in {request["status"] for request in requests if request["http"] == "GET"}


def test_a_service_account_calls_with_its_own_credentials(tmp_path):
    (code,) = code_of_sections()[SERVICE_ACCOUNT]
    with site_of_machines(tmp_path) as (site, ids):
        credentials = {"CLIENT_ID": ids["secret"], "CLIENT_SECRET": SECRET}
        printed = run_python(code, None, tmp_path, MCP_URL=site.mcp, **credentials)
    assert printed == "robot\n"


@pytest.mark.parametrize("program", in_this_environment(SIGN_IN))
def test_a_program_of_the_page_signs_in(program, tmp_path):
    with running_site(tmp_path) as site, signing_in(program, site, tmp_path / "home") as visitor:
        assert visitor.run() == "ada\n"
        (request,) = visitor.requests()
        # The scopes of the challenge; the server ignores `offline_access`.
        assert {*request["scope"].split()} - {"offline_access"} == {"mcp"}
        assert visitor.stored()
        assert visitor.modes() == {0o600}
        # The next run uses the stored token.
        assert visitor.run() == "ada\n"
        assert visitor.requests() == []
        # When that has expired, one client refreshes it, and the other has its user sign in.
        site.expire_access_tokens()
        assert visitor.run() == "ada\n"
        assert len(visitor.requests()) == (program.client == "Python SDK 2")
        # A scope that the program names itself is not requested.
        visitor.forget()
        assert visitor.run(scope="mcp:write") == "ada\n"
        (request,) = visitor.requests()
        assert "mcp:write" not in request["scope"].split()
    assert table("OAuth")[program.client]["OAuth"] == "yes"


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize("program", in_this_environment(ELICITATION))
def test_a_program_of_the_page_answers_elicitation(program, revision, shop, tmp_path):
    edits = LEGACY if revision == "2025-11-25" else {}
    before = len(requests_in(shop.record))
    environ = {**shop.environ, "MCP_URL": shop.features["url"]}
    assert program.run(tmp_path, edits, **environ) == output_of_elicitation()
    requests = requests_in(shop.record)[before:]
    called = {request["revision"] for request in requests if request["method"] == "tools/call"}
    assert called == {revision}
    assert table("elicitation")[program.client]["elicitation"] == "yes"


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(client, marks=needs(environment=environment))
        for client, (_, environment) in SCRIPTS.items()
    ],
)
def test_a_client_has_the_features_of_the_table(client, shop, monkeypatch, tmp_path):
    for name, value in environment_of(tmp_path).items():
        monkeypatch.setenv(name, value)
    row = table("elicitation")[client]
    seen = use_features(client, shop)
    declared = seen.pop("declared")
    assert declared == {name: row[name] == "yes" for name in ("elicitation", "sampling")}
    if "agent" in seen:
        # Its test model repeats the result of the tool.
        assert json.loads(seen.pop("agent")) == {"declared": declared}
    assert seen == {name: value for name, value in FEATURES.items() if row[name] == "yes"}


def use_features(client: str, shop: Shop) -> dict[str, Any]:
    """Return what a client got from the server with all features."""
    script, environment = SCRIPTS[client]
    if environment:
        return clients.run(script, shop.features, environment=environment)
    node.install(FRAMEWORKS)
    return node.run(script, shop.features, project=FRAMEWORKS)


@pytest.mark.requires("clients")
def test_the_python_client_runs_a_task(shop):
    seen = clients.run("features_tasks.py", shop.features, environment="mcp1")
    assert seen == {"tasks": FEATURES["tasks"]}
    assert table("tasks")["Python SDK 1"]["tasks"] == "yes"


@pytest.mark.requires("node", "npm")
def test_the_typescript_client_runs_a_task(shop):
    node.install(FRAMEWORKS)
    seen = node.run("tasks.mjs", shop.features, project=FRAMEWORKS)
    assert seen == {"created": True, "tasks": FEATURES["tasks"]}
    assert table("tasks")["TypeScript SDK 1"]["tasks"] == "yes"


def test_the_page_names_the_versions_that_are_run():
    shown = {client: row["version"] for client, row in table("version").items()}
    assert shown == {program.client: program.version for program in (*PROGRAMS, BRIDGE)}
    assert table("tasks").keys() == shown.keys()


def test_all_code_of_the_page_is_run():
    run = dict.fromkeys(code_of_sections(), 0)
    for program in (*PROGRAMS, BRIDGE, *ELICITATION, *SIGN_IN):
        run[program.section] += 1
    run[SERVICE_ACCOUNT] += 1
    assert run == {section: len(code) for section, code in code_of_sections().items()}
