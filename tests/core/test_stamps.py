"""Stamps: UTC, rising, and after the newest whatever the clock says."""

import datetime
import time

import pytest

from embodied.core import stamps


def test_stamps_are_utc(monkeypatch):
    monkeypatch.setenv('TZ', 'XXX-13:00')  # thirteen hours ahead of UTC
    time.tzset()
    try:
        found = stamps.parse(stamps.after())
    finally:
        monkeypatch.undo()
        time.tzset()
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    assert abs(now - found) < datetime.timedelta(minutes=5)


def test_stamps_go_on_after_the_newest():
    newest = '20991231T235959F999999'
    assert stamps.after(newest) == '21000101T000000F000000'
    assert stamps.after('20010101T000000F000000') > '2026'


@pytest.mark.parametrize('text', ['', 'x', '20269999T999999F000000', '99991231T235959F999999'])
def test_what_nothing_can_follow_does_not_count(text):
    assert '2026' < stamps.after(text) < '21'


@pytest.mark.parametrize('text', ['', 'agent', '20261129T142956F7', '20261399T142956F764654'])
def test_other_texts_are_no_stamps(text):
    assert stamps.parse(text) is None


def test_files_that_are_kept_beside_rise_too(tmp_path):
    path, found = tmp_path / 'a[1].yaml', []
    (tmp_path / 'a[1]-20991231T235959F999999.yaml').touch()
    (tmp_path / 'a[1]-zzz.yaml').touch()
    for _ in range(2):
        found.append(stamps.beside(path))
        found[-1].touch()
    names = ['a[1]-21000101T000000F000000.yaml', 'a[1]-21000101T000000F000001.yaml']
    assert [x.name for x in found] == names
    assert {x.parent for x in found} == {tmp_path}
