"""The official TypeScript client is asked by a server in another process, at 2026-07-28.

`typescript/questions.mjs` answers every kind of question once, in Node; each test checks a part.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop import node
from tests.interop.conftest import MOUNTS
from tests.spec import spec

INVALID_PARAMS = -32602
MISSING_CAPABILITY = -32021

pytestmark = [
    pytest.mark.requires("node", "npm"),
    # The first test waits for the installation and the script.
    pytest.mark.timeout(node.INSTALL_SECONDS + 2 * node.SCRIPT_SECONDS),
]
# What the script saw at one mount, by the names of its functions.
Seen = dict[str, Any]


@pytest.fixture(scope="module")
def mounts(installed, asking_urls):
    """Return what the script printed."""
    return node.run("questions.mjs", asking_urls)


@pytest.fixture(params=MOUNTS)
def seen(request, mounts):
    """Return what the script saw at each mount."""
    return mounts[request.param]


def text(talk: Seen) -> tuple[bool, str]:
    """Return whether a tool failed, and what it said."""
    assert "failed" not in talk, talk["failed"]
    (block,) = talk["result"]["content"]
    return talk["result"].get("isError", False), block["text"]


def messages(talk: Seen) -> list[str]:
    """Return the messages that the user has read."""
    return [
        question["params"]["message"]
        for question in talk["asked"]
        if "message" in question["params"]
    ]


@spec("ASK-1")
def test_client_declares_what_it_can_be_asked(seen):
    kinds = ("elicitation", "elicitation.url", "sampling", "sampling.tools", "roots")
    assert seen["offers"]["result"]["structuredContent"] == dict.fromkeys(kinds, True)
    assert seen["poorer"]["empty_form"]["result"]["structuredContent"] == {
        kind: kind == "elicitation" for kind in kinds
    }


@spec("ASK-11", "ASK-14", "MRT-2", "MRT-7")
def test_user_fills_in_a_form(seen):
    talk = seen["forms"]["accepted"]
    assert text(talk) == (False, "7: refunded, late")
    (question,) = talk["asked"]
    assert question["params"] == {
        "mode": "form",
        "message": "Refund order 7?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "confirmed": {"type": "boolean", "description": "Yes, give it back"},
                "reason": {
                    "type": "string",
                    "enum": ["damaged", "late", "unwanted"],
                    "default": "unwanted",
                },
            },
            "required": ["confirmed"],
        },
    }
    # The introduction, the call, and the call that has the answer.
    assert talk["statuses"] == [200, 200, 200]


@spec("ASK-14", "MRT-14")
def test_user_says_no(seen):
    forms = seen["forms"]
    assert text(forms["declined"]) == (True, "The user declined to answer.")
    assert text(forms["canceled"]) == (True, "The user dismissed the question.")
    assert text(forms["caught"]) == (False, "Hello, stranger (cancel).")


def test_question_without_fields_is_accepted(seen):
    assert text(seen["forms"]["empty"]) == (False, "agreed")


@spec("ASK-11")
def test_form_has_a_field_of_every_kind(seen):
    assert seen["forms"]["every_kind"]["result"]["structuredContent"] == {
        "traveler": "Ada Lovelace",
        "seats": 2,
        "cabin": "business",
        "leaves": "2026-08-01",
        "boards": "2026-08-01T10:00:00Z",
        "is_flexible": True,
        "budget": 120.5,
        "extras": ["wifi", "meal"],
        "remark": None,
    }


@spec("ASK-11")
def test_form_of_the_site_shows_labels_and_takes_values(seen):
    talk = seen["forms"]["labels"]
    assert talk["result"]["structuredContent"]["about"] == "seat"
    (question,) = talk["asked"]
    about = question["params"]["requestedSchema"]["properties"]["about"]
    assert [choice["title"] for choice in about["oneOf"]] == ["The crew", "The seat"]


@spec("ASK-14", "MRT-8")
def test_user_corrects_what_does_not_fit(seen):
    talk = seen["forms"]["corrected"]
    assert text(talk) == (False, "Hello, Ada.")
    first, again = messages(talk)
    assert again.startswith("Please correct this:\nvalue: must have at least 2 characters")
    assert again.endswith(first)


def test_client_fills_in_defaults_that_the_form_declares(seen):
    assert text(seen["forms"]["defaults"]) == (False, "8: refunded, unwanted")


@spec("ASK-5")
def test_answer_that_never_fits_ends_the_call(seen):
    talk = seen["forms"]["hopeless"]
    failed, message = text(talk)
    assert failed
    assert message.startswith("The answers did not fit")
    assert len(talk["asked"]) < 20


@spec("ASK-7", "ASK-8", "ASK-10")
def test_model_answers(seen):
    talk = seen["model"]["said"]
    assert talk["result"]["structuredContent"] == {
        "text": "Short.",
        "model": "small",
        "stop": "endTurn",
    }
    (question,) = talk["asked"]
    assert question["params"] == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Summarize: Long."}}],
        "maxTokens": 50,
        "systemPrompt": "Be brief.",
        "temperature": 0.5,
        "stopSequences": ["END"],
        "modelPreferences": {"hints": [{"name": "small"}], "speedPriority": 0.9},
    }


@spec("ASK-9", "ASK-10")
def test_model_uses_tools_and_gets_their_results(seen):
    talk = seen["model"]["tools"]
    assert text(talk) == (False, "2 looked up: Zurich.")
    first, second = (request["params"] for request in talk["asked"])
    assert (first["toolChoice"], second["toolChoice"]) == ({"mode": "required"}, {"mode": "none"})
    question, reply, results = second["messages"]
    assert [question] == first["messages"]
    assert [block["id"] for block in reply["content"]] == ["call-0", "call-1"]
    assert [(block["toolUseId"], block["content"][0]["text"]) for block in results["content"]] == [
        ("call-0", "432"),
        ("call-1", "-3"),
    ]


def test_client_names_its_folders(seen):
    folders = seen["folders"]["result"]["structuredContent"]
    assert folders == [{"name": "Papers", "folder": "/home/ada/my papers"}]


@spec("MRT-2")
def test_several_questions_are_asked_in_one_round(seen):
    talk = seen["rounds"]["one"]
    assert text(talk) == (False, "Ada hears hello in my papers, metric")
    keys = {question["key"] for question in talk["asked"]}
    assert len(keys) == len(talk["asked"]) == 4
    assert {"who", "units"} < keys
    assert talk["statuses"] == [200, 200, 200]


@spec("MRT-7", "MRT-13")
def test_several_rounds_build_on_one_another(seen):
    talk = seen["rounds"]["several"]
    assert text(talk) == (False, "Welcome Ada, metric, Papers")
    assert messages(talk) == ["Who are you?", "Ada, which units?"]
    # The introduction, the call, and one call for each answer.
    assert talk["statuses"] == [200] * 6


@spec("HDR-12", "HDR-15")
def test_every_round_mirrors_arguments_into_headers(seen):
    talk = seen["rounds"]["headers"]
    assert text(talk) == (False, "shipped to the north")
    # The introduction, the list, the call, and the call that has the answer.
    assert talk["statuses"] == [200] * 4


@spec("ASK-13", "ASK-16", "MRT-12")
def test_user_visits_a_page_before_or_after_consenting(seen):
    pages = seen["pages"]
    for talk in (pages["visited"], pages["later"]):
        question = talk["asked"][-1]["params"]
        assert question["mode"] == "url"
        interaction_id = question["url"].rpartition("/")[2]
        assert text(talk) == (False, f"connected {interaction_id}")
    first, again = pages["later"]["asked"]
    assert (first["key"], first["params"]["url"]) == (again["key"], again["params"]["url"])
    assert again["params"]["message"].startswith("The page is not completed yet.")
    assert text(pages["declined"]) == (True, "The user declined to answer.")


@spec("MRT-1", "CCH-1")
def test_prompts_and_resources_ask(seen):
    others = seen["others"]
    (message,) = others["prompt"]["result"]["messages"]
    assert message["content"]["text"] == "Write a warm letter about fog."
    assert others["declined"]["failed"]["code"] == INVALID_PARAMS
    assert [result["contents"][0]["text"] for result in others["resource"]["result"]] == [
        "Fog in Oslo",
        "Fog in Rome",
    ]
    (room,) = others["template"]["result"]["contents"]
    assert room["text"] == "Room 7, imperial"


@spec("PRG-2", "LOG-4", "MRT-11", "MRT-13")
@pytest.mark.parametrize("tool", ["pack", "pack_later"])
def test_streamed_call_asks_in_the_middle_and_says_everything_once(seen, tool):
    talk = seen[tool]
    assert text(talk) == (False, "packed the large box")
    steps = [{"progress": n, "total": 4, "message": f"step {n}"} for n in range(1, 5)]
    # The client reports rounds of its own through the same function, without a total.
    mine = {"progress": 1, "message": "Fulfilling input required by 'tools/call' (round 1)"}
    assert talk["heard"] == [*steps[:2], mine, *steps[2:]]
    assert talk["logged"] == [step["message"] for step in steps]


@spec("ASK-1", "MRT-3")
@pytest.mark.parametrize(
    ("client", "missing"),
    [
        ("nothing", {"elicitation": {}}),
        ("only_pages", {"elicitation": {}}),
        ("only_forms", {"elicitation": {"url": {}}}),
        ("no_tools", {"sampling": {"tools": {}}}),
    ],
)
def test_client_is_not_asked_what_it_did_not_declare(seen, client, missing):
    talk = seen["poorer"][client]
    assert talk["asked"] == []
    assert talk["failed"]["code"] == MISSING_CAPABILITY
    assert talk["failed"]["data"] == {"requiredCapabilities": missing}
    assert talk["statuses"][-1] == 400


@spec("MRT-4", "MRT-7")
def test_another_client_goes_on_at_the_other_mount(seen):
    by_hand = seen["by_hand"]
    assert by_hand["first"]["result"]["resultType"] == "input_required"
    assert text(by_hand["second"]) == (False, "Hello, Ada.")
    assert by_hand["forged"]["failed"]["code"] == INVALID_PARAMS


def test_client_met_no_other_errors(seen):
    def every(value: Any) -> list[str]:
        if isinstance(value, list):
            return [error for element in value for error in every(element)]
        if not isinstance(value, dict):
            return []
        return [
            *value.get("errors", []),
            *(error for element in value.values() for error in every(element)),
        ]

    assert every(seen) == []
