"""The demo's secret key is created once, and only its owner can read it."""

import stat

from demo_project.secret_key import read_or_create


def test_key_is_made_at_the_first_start_and_kept(tmp_path):
    path = tmp_path / "var" / "secret_key.txt"
    key = read_or_create(path)
    assert len(key) >= 50
    assert read_or_create(path) == key


def test_two_installations_have_two_keys(tmp_path):
    assert read_or_create(tmp_path / "one") != read_or_create(tmp_path / "two")


def test_only_the_owner_can_read_the_key(tmp_path):
    path = tmp_path / "secret_key.txt"
    read_or_create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
