"""Checkpoints under kills, full disks, cut files, foreign files and planted code."""

import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest

from embodied.checkpoint import checkpoint, snapshot
from embodied.core.errors import UserError

ROOT = pathlib.Path(__file__).parent.parent.parent


class Part:
    """A part of a checkpoint: what it saves, and what was loaded into it."""

    def __init__(self, value):
        self.value = value

    def save(self):
        return self.value

    def load(self, data):
        self.value = data


def make(directory, value=0, keep=1):
    cp = checkpoint.Checkpoint(directory, keep)
    cp.parts['agent'] = Part({'w': np.full(1000, value, np.float32), 'n': value})
    cp.parts['step'] = Part(value)
    return cp


def save(directory, value, keep=1):
    return make(directory, value, keep).save()


def loaded(directory):
    cp = make(directory, value=-1)
    cp.load()
    assert (cp.parts['agent'].value['w'] == cp.parts['step'].value).all()
    return cp.parts['step'].value


def stamps(directory):
    return sorted(x.name for x in directory.iterdir() if x.name[0] == '2')


def test_save_and_load(tmp_path):
    folder = save(tmp_path / 'ckpt', 7)
    assert sorted(os.listdir(tmp_path / 'ckpt')) == [folder.name, 'latest']
    assert (tmp_path / 'ckpt' / 'latest').read_text() == folder.name
    assert sorted(os.listdir(folder)) == [
        'agent.json',
        'agent.npz',
        'done',
        'step.json',
        'step.npz',
    ]
    assert loaded(tmp_path / 'ckpt') == 7
    assert make(tmp_path / 'ckpt').load() == folder


def test_nothing_there(tmp_path):
    cp = make(tmp_path / 'ckpt')
    assert not cp.exists()
    with pytest.raises(UserError, match='No checkpoint in'):
        cp.load()


def test_names_choose_the_parts(tmp_path):
    save(tmp_path, 5)
    cp = make(tmp_path, -1)
    cp.load(names=['step'])
    assert (cp.parts['step'].value, cp.parts['agent'].value['n']) == (5, -1)
    assert checkpoint.read(tmp_path, ['step']) == {'step': 5}
    assert set(checkpoint.read(tmp_path)) == {'agent', 'step'}


def test_a_part_that_is_missing_is_named_before_anything_loads(tmp_path):
    save(tmp_path, 5)
    cp = make(tmp_path, -1)
    cp.parts['limiter'] = Part(None)
    with pytest.raises(UserError, match=r"\['agent', 'step'\] but not \['limiter'\]"):
        cp.load()
    assert cp.parts['step'].value == -1


@pytest.mark.parametrize('keep', [1, 3])
def test_keep(tmp_path, keep):
    for value in range(5):
        save(tmp_path, value, keep)
    assert len(stamps(tmp_path)) == keep
    assert loaded(tmp_path) == 4


@pytest.mark.parametrize('keep', [1, 2])
def test_permanent_ones_stay(tmp_path, keep):
    folders = [make(tmp_path, i, keep).save(permanent=i in (1, 3)) for i in range(7)]
    expected = {folders[1], folders[3], *folders[-keep:]}
    assert stamps(tmp_path) == sorted(x.name for x in expected)
    assert loaded(tmp_path) == 6
    assert checkpoint.read(folders[1])['step'] == 1


def test_a_permanent_one_serves_when_all_newer_are_damaged(tmp_path):
    make(tmp_path, 1).save(permanent=True)
    cut(save(tmp_path, 2) / 'agent.npz')
    assert loaded(tmp_path) == 1


def test_optional_parts_may_be_missing(tmp_path):
    save(tmp_path, 5)
    cp = make(tmp_path, -1)
    cp.parts['limiter'] = Part(None)
    cp.load(optional=['limiter', 'step'])
    assert [cp.parts[x].value for x in ('step', 'limiter')] == [5, None]


def test_keep_nothing_is_refused(tmp_path):
    with pytest.raises(UserError, match=r'run\.keep'):
        checkpoint.Checkpoint(tmp_path, keep=0)


def test_names_rise_when_the_clock_is_set_back(tmp_path):
    first = save(tmp_path, 1)
    first.rename(tmp_path / '20990101T000000F000000')
    for value in (2, 3):
        save(tmp_path, value)
        assert len(stamps(tmp_path)) == 1
        assert loaded(tmp_path) == value


def test_foreign_files_change_nothing(tmp_path):
    foreign = {
        'zzz_notes.txt': 'text',
        '20990101T000000F000000/agent.pkl': 'not ours',
        '20980101T000000F000000/done': '',
        '20970101T000000F000000/done': '[1, 2]',
        'backup/done': 'x',
        '.hidden/file': 'x',
        '20990102T000000F000000': 'a file',
    }
    for name, text in foreign.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert not make(tmp_path).exists()
    for value in range(3):
        save(tmp_path, value)
        assert loaded(tmp_path) == value
    assert {name: (tmp_path / name).read_text() for name in foreign} == foreign
    assert len(list(tmp_path.iterdir())) == len(foreign) + 2


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def alter(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize('damage', [cut, alter, os.remove], ids=lambda x: x.__name__)
@pytest.mark.parametrize('name', ['agent.npz', 'agent.json', 'done'])
def test_a_damaged_newest_one_falls_back(tmp_path, capsys, damage, name):
    save(tmp_path, 1, keep=2)
    damage(save(tmp_path, 2, keep=2) / name)
    if (damage, name) == (alter, 'done'):
        assert loaded(tmp_path) in (1, 2)  # one byte of the manifest may not matter
        return
    assert make(tmp_path).exists()
    assert loaded(tmp_path) == 1
    assert 'Warning' in capsys.readouterr().out
    save(tmp_path, 3, keep=1)
    assert loaded(tmp_path) == 3


def test_all_damaged_is_an_error_and_not_a_new_start(tmp_path):
    cut(save(tmp_path, 1) / 'agent.npz')
    cp = make(tmp_path)
    assert cp.exists()
    with pytest.raises(UserError, match=r'agent\.npz has \d+ bytes, not \d+'):
        cp.load()


@pytest.mark.parametrize(
    'content', ['', 'nonsense', '20990101T000000F000000', '../..', 'x' * 999]
)
def test_a_bad_latest_falls_back_to_the_newest(tmp_path, capsys, content):
    for value in range(2):
        save(tmp_path, value, keep=2)
    (tmp_path / 'latest').write_text(content)
    assert loaded(tmp_path) == 1
    assert 'latest names no complete checkpoint' in capsys.readouterr().out


@pytest.mark.parametrize('content', ['', 'nonsense'])
def test_a_bad_latest_alone_is_no_checkpoint(tmp_path, content):
    (tmp_path / 'latest').write_text(content)
    assert not make(tmp_path).exists()


def test_latest_decides(tmp_path):
    first = save(tmp_path, 1, keep=2)
    save(tmp_path, 2, keep=2)
    (tmp_path / 'latest').write_text(first.name)
    assert loaded(tmp_path) == 1


def test_another_format_under_latest_is_an_error_and_not_a_new_start(tmp_path):
    (tmp_path / '20261129T142956F764654').mkdir()
    (tmp_path / '20261129T142956F764654' / 'done').touch()
    (tmp_path / 'latest').write_text('20261129T142956F764654')
    cp = make(tmp_path)
    assert cp.exists()
    with pytest.raises(UserError, match='not a complete checkpoint of this package'):
        cp.load()


def test_a_newer_format_is_refused(tmp_path):
    folder = save(tmp_path, 1)
    manifest = json.loads((folder / 'done').read_text())
    (folder / 'done').write_text(json.dumps({**manifest, 'format': 99}))
    with pytest.raises(UserError, match='newer version'):
        make(tmp_path).load()


FINE = {'format': 1, 'files': {'step.json': 1}, 'crc32': {'step.json': 1}}
WRONG = {
    'list': [], 'text': 'x', 'number': 3, 'null': None, 'true': True, 'empty': {},
    'format': {**FINE, 'format': '1'}, 'format-list': {**FINE, 'format': [1]},
    'format-zero': {**FINE, 'format': 0}, 'files': {**FINE, 'files': 3},
    'files-list': {**FINE, 'files': ['step.json']}, 'crc32': {**FINE, 'crc32': None},
    'size': {**FINE, 'files': {'step.json': '9'}}, 'sizes': {**FINE, 'files': {'a.npz': [9]}},
    'check': {**FINE, 'crc32': {'step.json': {}}}, 'other': {**FINE, 'crc32': {'a.json': 1}},
    'outside': {**FINE, 'files': {'../step.json': 9}}, 'npz': {**FINE, 'crc32': {'a.npz': 1}},
    'permanent': {**FINE, 'permanent': 'no'},
}  # fmt: skip
WRONG = {k: json.dumps(v).encode() for k, v in WRONG.items()}
WRONG |= {'nested': b'[' * 20_000, 'cut': b'{"format": 1, "fi', 'binary': bytes(range(256))}


@pytest.mark.parametrize('content', WRONG.values(), ids=WRONG)
def test_a_manifest_of_wrong_types_falls_back_and_says_why(tmp_path, capsys, content):
    save(tmp_path, 1, keep=2)
    folder = save(tmp_path, 2, keep=2)
    (folder / 'done').write_bytes(content)
    assert make(tmp_path).exists()
    assert loaded(tmp_path) == 1
    assert f"{folder.name}', its file `done` is cut or altered: " in capsys.readouterr().out
    save(tmp_path, 3, keep=1)
    assert loaded(tmp_path) == 3


@pytest.mark.parametrize('content', WRONG.values(), ids=WRONG)
def test_a_manifest_of_wrong_types_alone_is_one_sentence(tmp_path, content):
    folder = save(tmp_path, 2)
    (folder / 'done').write_bytes(content)
    assert make(tmp_path).exists()
    with pytest.raises(UserError, match=rf'{folder}.*`done` is cut or altered: .*\w'):
        make(tmp_path).load()


def test_damage_never_has_an_empty_reason(tmp_path, monkeypatch):
    save(tmp_path, 2)
    for error, words in (
        (EOFError(), 'it ends too early'), (KeyError('keys'), "'keys' is missing"),
        (ValueError(), 'ValueError'), (RecursionError('deep'), 'it is nested too deeply'),
    ):  # fmt: skip
        monkeypatch.setattr('json.loads', raising(error))
        with pytest.raises(snapshot.Damaged, match=rf'is damaged: {words}\.$'):
            make(tmp_path).load()


def raising(error):
    """A json.loads that reads manifests alone."""

    def loads(text):
        if b'"format"' not in text:
            raise error
        return json.JSONDecoder().decode(text.decode())

    return loads


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (pathlib.Path.touch, (pathlib.Path(self.path),))


def test_planted_code_never_runs(tmp_path):
    folder = save(tmp_path / 'ckpt', 3)
    bomb = pickle.dumps(Bomb(tmp_path / 'trace'))
    for name in ('agent.pkl', 'step.pkl', 'other.pkl'):
        (folder / name).write_bytes(bomb)
    assert loaded(tmp_path / 'ckpt') == 3
    # In place of the arrays, with a manifest that agrees.
    (folder / 'agent.npz').write_bytes(bomb)
    manifest = json.loads((folder / 'done').read_text())
    manifest['files']['agent.npz'] = len(bomb)
    (folder / 'done').write_text(json.dumps(manifest))
    with pytest.raises(snapshot.Damaged):
        make(tmp_path / 'ckpt').load()
    assert not (tmp_path / 'trace').exists()
    pickle.loads(bomb)
    assert (tmp_path / 'trace').exists()  # the bomb does work


def test_a_failed_save_leaves_the_old_one(tmp_path, monkeypatch):
    save(tmp_path, 1)
    before = sorted(os.listdir(tmp_path))

    def full(*args, **kwargs):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(snapshot.serial, 'write_npz', full)
    with pytest.raises(OSError, match='No space'):
        save(tmp_path, 2)
    monkeypatch.undo()
    assert sorted(os.listdir(tmp_path)) == before
    assert loaded(tmp_path) == 1


def test_an_unwritable_value_leaves_the_old_one(tmp_path):
    save(tmp_path, 1)
    cp = make(tmp_path, 2)
    cp.parts['step'].value = {'x': {object()}}
    with pytest.raises(TypeError, match='x is a set'):
        cp.save()
    assert loaded(tmp_path) == 1


def test_what_the_disk_garbled_does_not_replace_the_old_one(tmp_path, monkeypatch):
    save(tmp_path, 1)
    write = snapshot.serial.write_npz

    def garbled(path, arrays, finish):
        write(path, arrays, finish)
        if path.name == 'agent.npz':
            alter(path)

    monkeypatch.setattr(snapshot.serial, 'write_npz', garbled)
    with pytest.raises(snapshot.Damaged):
        save(tmp_path, 2)
    assert loaded(tmp_path) == 1


KILLS = """
import os, sys
from tests.checkpoint import test_checkpoint as t

directory = t.pathlib.Path(sys.argv[1])
t.save(directory, 0)


def die_at(number):
    count = 0

    def hook(event, args):
        nonlocal count
        if event.startswith(('open', 'os.', 'shutil.')):
            count += 1
            if count == number:
                os._exit(9)

    sys.addaudithook(hook)


number, value = 0, 0
while True:
    number += 1
    child = os.fork()
    if not child:
        die_at(number)
        t.save(directory, value + 1)
        os._exit(0)
    done = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert t.make(directory).exists(), number
    found = t.loaded(directory)
    assert found in (value, value + 1), (number, value, found)
    assert (directory / 'latest').read_text(), number
    value = found + 1
    t.save(directory, value)
    assert t.loaded(directory) == value, number
    assert sorted(os.listdir(directory))[1:] == ['latest'], number
    if done:
        break
print('killed', number - 1)
"""


def test_a_kill_at_any_file_operation_leaves_a_checkpoint(tmp_path):
    command = [sys.executable, '-c', KILLS, str(tmp_path / 'ckpt')]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout.split()[-1]) > 20


@pytest.mark.parametrize('place', ['', 'ckpt', 'ckpt/STAMP'])
def test_find_takes_run_folder_ckpt_folder_and_checkpoint(tmp_path, place):
    folder = save(tmp_path / 'ckpt', 4)
    path = tmp_path / place.replace('STAMP', folder.name)
    assert checkpoint.find(path) == [folder]
    assert checkpoint.read(str(path))['step'] == 4


@pytest.mark.parametrize('place', ['', 'ckpt', 'ckpt/agent'])
def test_find_takes_runs_in_several_processes(tmp_path, place):
    folder = save(tmp_path / 'ckpt' / 'agent', 4)
    assert checkpoint.find(tmp_path / place) == [folder]


def test_a_checkpoint_copied_alone_serves(tmp_path):
    shutil.copytree(save(tmp_path / 'ckpt', 4), tmp_path / 'copy')
    assert checkpoint.read(tmp_path / 'copy')['step'] == 4


def test_read_falls_back_as_well(tmp_path, capsys):
    save(tmp_path, 1, keep=2)
    alter(save(tmp_path, 2, keep=2) / 'agent.npz')
    assert checkpoint.read(tmp_path, ['agent'])['agent']['n'] == 1
    assert 'damaged' in capsys.readouterr().out


@pytest.mark.parametrize('path', ['', 'missing'])
def test_find_nothing(tmp_path, path):
    with pytest.raises(UserError, match=r'expected a run folder.*run\.from_checkpoint'):
        checkpoint.find(path and tmp_path / path)
