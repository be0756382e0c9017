"""Which runs share a line of a plot, and what is said where they should not."""

import pytest

from dreamerv3 import config as configs
from dreamerv3 import curves, grouping, plot
from embodied import UserError
from tests.dreamerv3.test_plot import make_run

OLD = '{task: crafter_reward, batch_size: 16.0, run: {envs: 1, train_ratio: 512}}'


def save(folder, *blocks, **flags):
    """A run with a whole config."""
    make_run(folder, [(10, 1.0), (20, 2.0)])
    flags = {k.replace('__', '.'): v for k, v in flags.items()}
    configs.save(configs.load(['crafter', *blocks], {**flags, 'logdir': str(folder)}))


def lines(tmp_path, *by):
    """Methods with their number of runs, as `dreamerv3 plot` groups them."""
    flags = [x for key in by for x in ('--by', key)]
    plot.main([str(tmp_path), '--out', str(tmp_path / 'plot.svg'), *flags])
    runs = grouping.trained(curves.read(x) for x in curves.find([tmp_path]))
    (methods,) = grouping.group(runs, by).values()
    return {name: len(runs) for name, runs in methods.items()}


def test_evaluations_are_left_out_with_a_line_each(tmp_path, capsys):
    save(tmp_path / 'a')
    save(tmp_path / 'b', script='eval_only')
    assert lines(tmp_path) == {'name': 1}
    assert f'Left out: {tmp_path}/b is an evaluation' in capsys.readouterr().out
    with pytest.raises(UserError, match='evaluations alone'):
        plot.main([str(tmp_path / 'b'), '--out', str(tmp_path / 'plot.svg')])
    assert not (tmp_path / 'b' / 'plot.svg').exists()


def test_random_agents_are_a_method_of_their_own(tmp_path, capsys):
    save(tmp_path / 'a')
    save(tmp_path / 'b', random_agent=True)
    save(tmp_path / 'c', random_agent=True, seed=1)
    assert lines(tmp_path) == {'name': 1, 'name, random agent': 2}
    assert 'Warning' not in capsys.readouterr().out


def test_runs_that_learned_alike_make_a_line_without_a_warning(tmp_path, capsys):
    save(tmp_path / 'a')
    save(
        tmp_path / 'b', seed=1, run__steps=5, run__log_every=3, jax__platform='cpu',
        logger__outputs=['jsonl'], replay__storage='disk', script='train_eval',
        run__replay_addr='localhost:3', env__dmc__repeat=2, env__crafter__logs=True,
    )  # fmt: skip
    with (tmp_path / 'b' / 'config.yaml').open('a') as file:
        file.write('ipv6: true\n')  # as of the reference
    make_run(tmp_path / 'c', [(3, 1.0)], method='name')  # before most keys came
    (tmp_path / 'c' / 'config.yaml').write_text(OLD)
    make_run(tmp_path / 'crafter_reward', [(3, 1.0)])
    (tmp_path / 'crafter_reward' / 'config.yaml').unlink()
    assert lines(tmp_path) == {'name': 4}
    assert 'Warning' not in capsys.readouterr().out


def test_runs_that_did_not_are_named_by_their_keys_and_split_by_one(tmp_path, capsys):
    save(tmp_path / 'a')
    save(tmp_path / 'b', batch_size=8)
    save(tmp_path / 'c', batch_size=8, env__crafter__size=[32, 32])
    assert lines(tmp_path) == {'name': 3}
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith('Warning')]
    assert line == (
        'Warning: the runs of crafter_reward, name differ in batch_size (16, 8), '
        'env.crafter.size (64,64, 32,32); --by KEY splits them.'
    )
    assert lines(tmp_path, 'batch_size') == {
        'name, batch_size=16': 1, 'name, batch_size=8': 2,
    }  # fmt: skip
    assert 'differ in env.crafter.size (' in capsys.readouterr().out
    assert len(lines(tmp_path, 'batch_size', 'env.crafter.size')) == 3
    assert 'Warning' not in capsys.readouterr().out


def test_a_size_block_changes_many_keys_and_makes_one_line(tmp_path, capsys):
    save(tmp_path / 'a', 'size1m')
    save(tmp_path / 'b', 'size12m')
    assert lines(tmp_path) == {'name': 2}
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith('Warning')]
    assert 'agent.dec.simple.depth (4, 16)' in line
    assert line.endswith(' more keys; --by KEY splits them.')
    assert len(line) < 300


def test_what_changes_learning_counts():
    keys = configs.blocks()['defaults']
    learned = {key for key in keys if not grouping.INERT.fullmatch(key)}
    assert {
        'batch_size', 'batch_length', 'replay_context', 'replay.size', 'replay.fracs.uniform',
        'run.train_ratio', 'run.envs', 'run.from_checkpoint', 'jax.compute_dtype',
        'agent.opt.lr', 'agent.imag_length', 'env.crafter.size', 'env.atari.repeat',
    } <= learned  # fmt: skip
    assert not {key for key in learned if key.startswith(('logger.', 'clock', 'run.usage'))}
