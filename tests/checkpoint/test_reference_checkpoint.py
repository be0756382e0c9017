"""Pickled checkpoints of the reference: arrays come out of them, and nothing else does."""

import collections
import os
import pathlib
import pickle
import shutil

import numpy as np
import pytest

from embodied.checkpoint import checkpoint, reference_checkpoint
from embodied.core.errors import UserError

RUN = pathlib.Path(__file__).parent.parent / 'golden' / 'reference_run'
STAMP = '20261129T142956F764654'
HUGE = b'\x80\x04\x8e' + b'\xff' * 7 + b'\0'  # announces more bytes than any memory has


def dump(tmp_path, data, protocol=4):
    path = tmp_path / 'agent.pkl'
    path.write_bytes(pickle.dumps(data, protocol))
    return path


@pytest.mark.parametrize('place', ['', 'ckpt', f'ckpt/{STAMP}'])
def test_find_takes_run_folder_ckpt_folder_and_checkpoint(place):
    assert reference_checkpoint.find(RUN / place) == RUN / 'ckpt' / STAMP


@pytest.mark.parametrize('place', ['', 'ckpt', 'ckpt/agent'])
def test_find_takes_runs_in_several_processes(tmp_path, place):
    shutil.copytree(RUN / 'ckpt', tmp_path / 'ckpt' / 'agent')
    assert reference_checkpoint.find(tmp_path / place) == tmp_path / 'ckpt' / 'agent' / STAMP


@pytest.mark.parametrize('place', ['', 'typo', 'empty'])
def test_find_nothing(tmp_path, place):
    (tmp_path / 'empty').mkdir()
    assert reference_checkpoint.find(place and tmp_path / place) is None


def test_a_file_of_the_reference():
    data = reference_checkpoint.read(RUN / 'ckpt' / STAMP / 'agent.pkl')
    assert data['counters'] == {'updates': 30, 'batches': 33, 'actions': 195}
    kinds = {(type(x), x.dtype.name) for x in data['params'].values()}
    assert kinds == {(np.ndarray, 'float32'), (np.ndarray, 'int32')}
    assert reference_checkpoint.read(RUN / 'ckpt' / STAMP / 'step.pkl') == 390


@pytest.mark.parametrize('protocol', range(pickle.HIGHEST_PROTOCOL + 1))
def test_all_protocols(tmp_path, protocol):
    data = {
        'a': np.arange(6.0).reshape(2, 3), 'b': (np.float32(1.5), b'bytes', {1, 2}),
        'c': collections.OrderedDict(x=[None, True]), 'd': np.asfortranarray(np.ones((2, 3))),
    }  # fmt: skip
    found = reference_checkpoint.read(dump(tmp_path, data, protocol))
    np.testing.assert_array_equal(found.pop('a'), data.pop('a'))
    np.testing.assert_array_equal(found.pop('d'), data.pop('d'))
    assert found == data


class Bomb:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ('bomb', 'name'),
    [
        (Bomb(os.mkdir, ('trace',)), 'mkdir'),
        (Bomb(eval, ('__import__("os").mkdir("trace")',)), 'eval'),
        (Bomb(getattr, ({}, 'pop')), 'getattr'),
        (Bomb(pathlib.Path, ('x',)), 'Path'),
        (Bomb(np.fromfile, ('x',)), 'fromfile'),
        (Bomb(np.testing.assert_equal, (1, 1)), 'assert_equal'),
    ],
)
def test_code_is_named_and_does_not_run(tmp_path, monkeypatch, bomb, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=rf'agent\.pkl was not loaded: it asks for .*{name}'):
        reference_checkpoint.read(dump(tmp_path, {'params': {'a': np.ones(2)}, 'x': bomb}))
    assert not (tmp_path / 'trace').exists()


def test_a_damaged_file_is_one_sentence(tmp_path):
    path = dump(tmp_path, list(range(999)))
    os.truncate(path, 500)
    with pytest.raises(UserError, match=r'agent\.pkl cannot be read'):
        reference_checkpoint.read(path)


@pytest.mark.parametrize(
    'content', [b'', b'.', b'\x80', b'\x80\x04', b'(', b'I', b'\x80\x04]\x94e.', HUGE]
)
def test_a_damaged_file_has_a_reason_in_words(tmp_path, content):
    path = tmp_path / 'agent.pkl'
    path.write_bytes(content)
    with pytest.raises(UserError, match=r'agent\.pkl cannot be read: \w.+\.'):
        reference_checkpoint.read(path)


@pytest.mark.parametrize('content', [bytes(range(256)), b'\0', b'x' * 9999, b'/'])
def test_a_damaged_latest_stands_for_the_folder_itself(tmp_path, content):
    (tmp_path / 'latest').write_bytes(content)
    assert reference_checkpoint.find(tmp_path) is None
    shutil.copy(RUN / 'ckpt' / STAMP / 'agent.pkl', tmp_path)
    assert reference_checkpoint.find(tmp_path) == tmp_path


@pytest.mark.parametrize('place', ['', 'ckpt', f'ckpt/{STAMP}'])
def test_without_permission_the_flag_is_named(place):
    with pytest.raises(UserError, match=r'run\.from_checkpoint .* --run\.trust_pickle True'):
        checkpoint.read(RUN / place)


def test_a_run_does_not_start_anew_over_one_of_the_reference(tmp_path):
    shutil.copytree(RUN / 'ckpt', tmp_path / 'ckpt')
    cp = checkpoint.Checkpoint(tmp_path / 'ckpt')
    assert cp.exists()
    with pytest.raises(UserError, match=r'reference implementation.*a new --logdir'):
        cp.load()
