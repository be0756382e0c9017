"""What the names of logger.outputs stand for, and that all outputs of a run agree."""

import json
import os
import subprocess
import sys

import elements
import numpy as np
import pytest
import scope
from tensorboard.backend.event_processing import event_accumulator

from dreamerv3 import config as configs
from dreamerv3 import factories, outputs
from dreamerv3 import main as cli
from embodied import logging
from tests.logging import wandbfile

ALL = 'jsonl,tensorboard,scope'
FLAGS = (
    '--configs debug --random_agent 1 --run.envs 2 --run.steps 300 --run.log_every -1 '
    '--run.usage.psutil 0'
)


def load(folder, **flags):
    flags = {f'logger.{key}': value for key, value in flags.items()}
    return configs.load(['debug'], {'logdir': str(folder), **flags})


def tables(folder):
    """Name -> {step: value} of the scalars of each output."""
    lines = [json.loads(x) for x in (folder / 'metrics.jsonl').read_text().splitlines()]
    found = {'jsonl': {}, 'tensorboard': {}, 'scope': {}}
    for line in lines:
        step = line.pop('step')
        for name, value in line.items():
            found['jsonl'].setdefault(name, {})[step] = value
    reader = event_accumulator.EventAccumulator(str(folder), size_guidance={'scalars': 0})
    reader.Reload()
    for name in reader.Tags()['scalars']:
        found['tensorboard'][name] = {x.step: x.value for x in reader.Scalars(name)}
    reader = scope.Reader(folder)
    for path in (folder / 'scope').glob('*.float'):
        name = path.stem.replace('-', '/')
        found['scope'][name] = dict(zip(*map(list, reader[name]), strict=True))
    return found


def check_equal(theirs, ours):
    assert theirs.keys() == ours.keys()
    for name, values in ours.items():
        assert theirs[name].keys() == values.keys(), name
        for step, value in values.items():
            assert theirs[name][step] == pytest.approx(value, rel=1e-6), (name, step)


def test_scalars_of_all_outputs_agree_and_go_on(tmp_path):
    """TensorBoard stores 32 bits, and a resume repeats nothing in any of them."""
    cli.main([*FLAGS.split(), '--logdir', str(tmp_path), '--logger.outputs', ALL])
    for path in (tmp_path / 'metrics.jsonl', tmp_path / 'scores.jsonl'):
        with open(path, 'a') as file:
            file.write('{"step": 304, "late": 1.0}\n')
    late = [logging.TensorBoard(tmp_path), logging.Scope(tmp_path)]
    for output in late:
        output.write([(304, 'episode/score', np.asarray(1e6))])
        output.close()
    cli.main(
        [
            *FLAGS.split(),
            '--logdir',
            str(tmp_path),
            '--logger.outputs',
            ALL,
            '--run.steps',
            '400',
        ]
    )
    found = tables(tmp_path)
    assert len(found['jsonl']) > 10
    assert max(found['jsonl']['fps/policy']) == 400
    check_equal(found['tensorboard'], found['jsonl'])
    check_equal(found['scope'], found['jsonl'])


@pytest.mark.suites
def test_wandb_agrees_with_jsonl_and_the_process_ends(tmp_path):
    pytest.importorskip('wandb', reason='the package wandb is not installed')
    flags = f'{FLAGS} --logdir {tmp_path} --logger.outputs jsonl,wandb'
    done = subprocess.run(
        [sys.executable, '-m', 'dreamerv3.main', *flags.split()],
        env={**os.environ, 'WANDB_MODE': 'offline'},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert 'Warning' not in done.stdout
    found = {}
    for row in wandbfile.history(tmp_path):
        for name, value in row.items():
            found.setdefault(name, {})[row['_step']] = value
    ours = {}
    for line in map(json.loads, (tmp_path / 'metrics.jsonl').read_text().splitlines()):
        step = line.pop('step')
        for name, value in line.items():
            ours.setdefault(name, {})[step] = value
    check_equal({k: v for k, v in found.items() if k in ours}, ours)


def test_every_name_has_its_output(tmp_path, capsys):
    names = [x for x in outputs.MAKERS if x not in ('wandb', 'mlflow', 'expa')]
    made = outputs.make(load(tmp_path, outputs=names, videos=True))
    assert [x.name for x in made] == [
        'terminal', 'metrics.jsonl', 'scores.jsonl', 'tensorboard', 'scope', 'videos',
    ]  # fmt: skip
    assert capsys.readouterr().out == ''


@pytest.mark.parametrize('name', ['tensorboard', 'wandb', 'mlflow', 'expa', 'scope'])
def test_a_missing_package_is_one_warning_and_the_others_go_on(
    name, tmp_path, monkeypatch, capsys
):
    module = 'tensorboard.compat.proto' if name == 'tensorboard' else name
    monkeypatch.setitem(sys.modules, module, None)
    logger = factories.make_logger(load(tmp_path, outputs=[name, 'jsonl']))
    logger.add({'x': 1})
    logger.close()
    assert (tmp_path / 'metrics.jsonl').read_text() == '{"step": 0, "x": 1.0}\n'
    warnings = [x for x in capsys.readouterr().out.splitlines() if x.startswith('Warning')]
    assert len(warnings) == 1
    assert f'output {name}' in warnings[0]
    assert warnings[0].endswith('The other outputs go on.')


def test_a_file_in_the_place_of_a_folder_stops_nothing(tmp_path, capsys):
    (tmp_path / 'scope').write_text('in the way')
    (tmp_path / 'metrics.jsonl').mkdir()
    logger = factories.make_logger(load(tmp_path, outputs=['scope', 'jsonl', 'tensorboard']))
    for index in range(3):
        logger.add({'episode/score': index})
        logger.write()
    logger.close()
    assert len((tmp_path / 'scores.jsonl').read_text().splitlines()) == 1
    assert len(list(tmp_path.glob('events.out.tfevents.*'))) == 1
    out = capsys.readouterr().out
    assert out.count('Warning: the logger output scope failed') == 1
    assert out.count('Warning: the logger output metrics.jsonl failed') == 1


def test_a_run_with_outputs_that_fail_ends_well(tmp_path, capsys):
    """One cannot make its files, as in a folder that cannot be written; one has no file."""
    (tmp_path / 'scope').symlink_to('/proc/self')
    (tmp_path / 'metrics.jsonl').mkdir()
    cli.main([*FLAGS.split(), '--logdir', str(tmp_path), '--logger.outputs', ALL])
    assert (tmp_path / 'ckpt' / 'latest').exists()
    assert len((tmp_path / 'scores.jsonl').read_text().splitlines()) == 2
    assert list(tmp_path.glob('events.out.tfevents.*'))
    lines = capsys.readouterr().out.splitlines()
    for name in ('scope', 'metrics.jsonl'):
        assert sum(f'Warning: the logger output {name} failed' in x for x in lines) == 1


@pytest.mark.parametrize('on', [True, False])
def test_timers_can_be_turned_off(on, tmp_path, monkeypatch):
    own = elements.Timer()
    monkeypatch.setattr(elements.timer, 'global_timer', own)
    monkeypatch.setattr(elements.timer, 'stats', own.stats)
    factories.make_logger(load(tmp_path, timer=on, outputs=['jsonl']))
    with own.section('x'):
        pass
    assert ('x/count' in logging.timer_stats()) == on
