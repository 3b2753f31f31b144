"""``provider_settings``: it needs only Python, and the site's values take precedence."""

import os
import pickle
import subprocess
import sys
from copy import deepcopy

import pytest
from django.core.checks import run_checks
from oauth2_provider.settings import DEFAULTS, oauth2_settings

from mcp_django.oauth import provider_settings
from tests.kit.processes import REPOSITORY

GATES = [name for name in DEFAULTS if name.startswith("COMPLIANT_BCP_RFC9700_")]


@pytest.mark.outside
def test_it_is_called_before_settings_exist_and_without_the_toolkit():
    program = (
        "import sys; sys.modules['oauth2_provider'] = sys.modules['oauthlib'] = None; "
        "from mcp_django.oauth import provider_settings; found = provider_settings(); "
        "from django.conf import settings; "
        "print(len(found) > 20, settings.configured)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert (result.stdout, result.stderr) == ("True False\n", "")


@pytest.mark.spec("AUT-21", "AUT-23")
def test_every_gate_of_the_toolkit_is_shut_but_one():
    options = provider_settings()
    # If a later release adds a gate, its value must be decided.
    assert len(GATES) == 10
    is_open = [name for name in GATES if not options.get(name)]
    assert is_open == ["COMPLIANT_BCP_RFC9700_REDIRECT_URI_SCHEME"]
    assert options.keys() <= DEFAULTS.keys()


@pytest.mark.spec("AUT-21", "AUT-23")
def test_the_toolkit_has_nothing_to_advise_but_about_loopback_addresses():
    messages = run_checks(tags=["security"], include_deployment_checks=True)
    message_ids = [
        str(message.id) for message in messages if str(message.id).startswith("oauth2_provider.")
    ]
    assert message_ids == ["oauth2_provider.W008"]


def test_the_site_has_the_last_word():
    options = provider_settings(PKCE_REQUIRED=False, OIDC_ENABLED=True, SCOPES={"a": "A"})
    assert (options["PKCE_REQUIRED"], options["OIDC_ENABLED"], options["SCOPES"]) == (
        False,
        True,
        {"a": "A"},
    )
    assert options["OAUTH2_VALIDATOR_CLASS"] == "mcp_django.oauth.validator.Validator"


def test_the_toolkit_reads_it(settings):
    assert oauth2_settings.DCR_ENABLED is False
    assert oauth2_settings.OIDC_ENABLED is False
    assert oauth2_settings.CIMD_ENABLED is True
    assert oauth2_settings.ROTATE_REFRESH_TOKEN is True
    assert dict(settings.MCP_DJANGO["SCOPES"]) == oauth2_settings.SCOPES


def test_it_can_be_copied_as_settings_are():
    options = provider_settings()
    for copy in (deepcopy(options), pickle.loads(pickle.dumps(options))):
        assert list(copy["ALLOWED_REDIRECT_URI_SCHEMES"]) == ["https", "http", "cursor"]
        assert dict(copy["SCOPES"]) == dict(options["SCOPES"])
