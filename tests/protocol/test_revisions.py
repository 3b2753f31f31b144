"""The revisions as data, and which of them are advertised to whom."""

import dataclasses

import pytest

from mcp_django.protocol.revisions import (
    DEFAULT_HANDSHAKE,
    DRAFT_2026_V1,
    HANDSHAKE,
    LATEST,
    LATEST_HANDSHAKE,
    REVISIONS,
    STATELESS,
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
    Revision,
    advertised_versions,
)
from tests.spec import spec

A, B, C, D, E, X = (
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
    DRAFT_2026_V1,
)
EVERYTHING = [*REVISIONS]
OLD = [r.version for r in (D, C, B, A)]


def test_every_revision_is_listed_newest_first():
    assert [*REVISIONS.values()] == [E, X, D, C, B, A]
    assert all(version == revision.version for version, revision in REVISIONS.items())
    assert (LATEST, LATEST_HANDSHAKE, DEFAULT_HANDSHAKE) == (E, D, B)


def test_the_eras_are_disjoint_and_complete():
    assert all(revision.stateless for revision in STATELESS)
    assert not any(revision.stateless for revision in HANDSHAKE)
    assert {*STATELESS, *HANDSHAKE} == {*REVISIONS.values()}


FEATURES = {
    "stateless": (E, X),
    "is_alias": (X,),
    "batches": (B,),
    "version_header": (C, D, E, X),
    "progress_message": (B, C, D, E, X),
    "tool_annotations": (B, C, D, E, X),
    "titles": (C, D, E, X),
    "icons": (D, E, X),
    "audio": (B, C, D, E, X),
    "resource_links": (C, D, E, X),
    "object_meta": (C, D, E, X),
    "last_modified": (C, D, E, X),
    "schema_dialect": (D, E, X),
    "implementation_title": (C, D, E, X),
    "implementation_details": (D, E, X),
    "completions_capability": (B, C, D, E, X),
    "completion_context": (C, D, E, X),
    "elicitation_form": (C, D, E, X),
    "elicitation_url": (D, E, X),
    "sampling_tools": (D, E, X),
    "priming_event": (D,),
    "tasks": (D,),
    "elicitation_ids": (D,),
    "log_per_request": (E, X),
    "result_type": (E, X),
    "cache_hints": (E, X),
    "identity_in_meta": (E, X),
    "identity_in_discover": (X,),
    "string_subscription_ids": (X,),
    "extensions": (E, X),
}


@spec("BAT-1", "BAT-5", "BAT-6", "RSM-5", "CCH-6", "EXT-4")
@pytest.mark.parametrize(("feature", "having"), FEATURES.items())
def test_a_feature_is_in_the_revisions_that_define_it(feature, having):
    assert [r for r in (A, B, C, D, E, X) if getattr(r, feature)] == [*having]


def test_the_table_above_names_every_flag():
    flags = {f.name for f in dataclasses.fields(Revision) if f.type == "bool"}
    assert flags == {*FEATURES}


@spec("OUT-3")
def test_structured_output_grows_from_nothing_to_anything():
    forms = [r.structured_output for r in (A, B, C, D, E, X)]
    assert forms == ["none", "none", "object", "object", "any", "any"]


@spec("VER-9")
def test_modern_versions_are_advertised_before_handshake_ones():
    assert advertised_versions(EVERYTHING) == [E.version, *OLD]
    assert advertised_versions(reversed(EVERYTHING)) == [E.version, *OLD]
    assert advertised_versions(EVERYTHING, requested="1.0.0") == [E.version, *OLD]
    assert advertised_versions([C.version, E.version]) == [E.version, C.version]


@spec("VER-9")
@pytest.mark.parametrize("requested", OLD)
def test_a_handshake_version_in_an_envelope_is_told_of_modern_ones_only(requested):
    assert advertised_versions(EVERYTHING, requested=requested) == [E.version]


def test_without_a_modern_version_the_handshake_ones_are_all_there_is_to_tell():
    assert advertised_versions(OLD, requested=B.version) == OLD
    assert advertised_versions(OLD, requested=E.version) == OLD


@spec("ALS-4")
def test_the_alias_is_advertised_first_and_only_to_a_request_that_uses_it():
    assert X.version not in advertised_versions(EVERYTHING, requested=E.version)
    assert advertised_versions(EVERYTHING, requested=X.version) == [X.version, E.version, *OLD]
    assert advertised_versions([E.version, *OLD], requested=X.version) == [E.version, *OLD]
