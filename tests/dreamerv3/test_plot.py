"""`dreamerv3 plot`: curves by hand-computed numbers, and what it writes."""

import csv
import json
import os
import re

import numpy as np
import PIL.Image
import pytest

from dreamerv3 import curves, plot
from dreamerv3.main import main
from embodied import UserError


def make_run(folder, points, task='crafter_reward', method='ours', more=(), **env):
    folder.mkdir(parents=True)
    lines = [json.dumps({'step': step, 'episode/score': score}) for step, score in points]
    (folder / 'scores.jsonl').write_text('\n'.join([*lines, '']))
    config = {'task': task, 'method': method, 'env': {'dmc': env}, **dict(more)}
    (folder / 'config.yaml').write_text(json.dumps(config))
    rows = [{'step': 5, 'train/loss/rec': 3.0, 'x': 1}, {'step': 9, 'train/loss/rec': None}]
    (folder / 'metrics.jsonl').write_text(''.join(json.dumps(x) + '\n' for x in rows))
    return folder


def array(*values):
    return np.array(values, float)


def test_a_band_by_hand():
    one = array(1, 2, 4, 8), array(1, 3, 5, 7)  # bins of 2: 2, 5, -, 7
    two = array(2, 3), array(4, 9)  # 4, 9
    found = curves.band([one, two], 4)
    assert found.steps.tolist() == [1, 3, 5, 7]
    assert found.mean.tolist() == [3, 7, 6, 7]
    assert found.deviation.tolist() == [1, 2, 0, 0]
    assert found.runs == 2


def test_a_band_before_the_first_value_and_of_nothing():
    found = curves.band([(array(8), array(5)), (array(), array())], 4)
    assert np.isnan(found.mean).tolist() == [True, True, True, False]
    assert found.runs == 1
    assert np.isnan(curves.band([], 3).mean).all()


def test_the_final_score_is_of_the_last_tenth():
    assert curves.final((array(1, 89, 90, 100), array(0, 0, 4, 8))) == 6
    assert np.isnan(curves.final((array(), array())))


@pytest.mark.parametrize(
    ('task', 'env', 'score'),
    [
        ('atari_alien', {}, 10893.41),
        ('atari100k_alien', {}, 980.98),
        ('atari100k_james_bond', {}, 520.83),
        ('dmc_cup_catch', {'proprio': True, 'image': False}, 964.36),
        ('dmc_ball_in_cup_catch', {'proprio': False, 'image': True}, 973.06),
        ('dmc_ball_in_cup_catch', {'proprio': True, 'image': True}, None),
        ('dmlab_explore_goal_locations_small', {}, 383.06),
        ('minecraft_diamond', {}, 8.9),
        ('procgen_bigfish', {}, 8.41),
        ('crafter_reward', {}, None),
    ],
)
def test_published_scores(tmp_path, task, env, score):
    run = curves.read(make_run(tmp_path / 'x', [], task, **env))
    found = curves.published(run)
    assert (found and found.score) == score


def test_published_scores_have_a_source_and_are_numbers():
    lines = curves.PUBLISHED.read_text().splitlines()
    assert 'Nature, 2025' in lines[0]
    rows = list(csv.DictReader(x for x in lines if not x.startswith('#')))
    assert len(rows) == 168
    assert all(np.isfinite(float(x['score'])) and int(x['env_steps']) > 1e5 for x in rows)
    assert len({(x['domain'], x['task']) for x in rows}) == len(rows)


@pytest.fixture
def runs(tmp_path):
    for seed in range(2):
        points = [(step, step / 100 + seed) for step in range(10, 400, 10)]
        make_run(tmp_path / 'runs' / 'a' / str(seed), points, 'atari100k_pong', 'ours')
    make_run(tmp_path / 'runs' / 'b', [(50, 2.0)], 'crafter_reward', 'big')
    return tmp_path / 'runs'


def test_runs_are_found_and_grouped(runs):
    found = curves.find([runs, runs / 'b'])
    assert [str(x.relative_to(runs)) for x in found] == ['a/0', 'a/1', 'b']
    groups = plot.group(curves.read(x) for x in found)
    assert {t: {m: len(r) for m, r in x.items()} for t, x in groups.items()} == {
        'atari100k_pong': {'ours': 2},
        'crafter_reward': {'big': 1},
    }


def test_lines_bands_and_the_published_score(runs):
    groups = plot.group(curves.read(x, losses=True) for x in curves.find([runs]))
    axes = plot.draw(groups, 10).axes
    assert [x.get_title() for x in axes[:4]] == [
        'atari100k_pong',
        'atari100k_pong: train/loss/rec',
        'crafter_reward',
        'crafter_reward: train/loss/rec',
    ]
    pong, loss, crafter, *_ = axes
    curve, dashed = pong.get_lines()
    np.testing.assert_allclose(curve.get_ydata()[-1], 3.75 + 0.5, atol=0.1)
    assert dashed.get_linestyle() == '--'
    assert dashed.get_ydata()[0] == -4.65
    assert len(pong.collections) == 1  # the band of two seeds
    assert pong.get_legend().get_texts()[0].get_text() == 'ours (2 runs)'
    assert (len(crafter.get_lines()), len(crafter.collections)) == (1, 0)
    assert np.nanmax(loss.get_lines()[0].get_ydata()) == 3


def test_png(runs, capsys):
    out = runs / 'made' / 'plot.png'
    main(['plot', str(runs), '--out', str(out)])
    assert '3 runs of atari100k_pong, crafter_reward' in capsys.readouterr().out
    image = np.asarray(PIL.Image.open(out).convert('L'))
    assert image.shape[1] > 900
    assert image.std() > 5


def test_html_is_one_file_without_scripts(runs):
    out = runs / 'plot.html'
    main(['plot', str(runs / 'a'), str(runs / 'b'), '--out', str(out), '--losses'])
    text = out.read_text()
    assert text.count('<svg') == 1
    assert not re.search(r'<script|src=|href="http', text)
    assert '<td>atari100k_pong</td><td>ours</td><td>2</td><td>390</td>' in text
    assert '<td>-4.65 ± 2.92 at 397,784</td>' in text
    assert '<td>2</td><td></td></tr>' in text


def test_a_run_that_is_being_written(tmp_path):
    folder = make_run(tmp_path / 'x', [(1, 2.0)])
    with open(folder / 'scores.jsonl', 'a') as file:
        file.write('{"step": 2, "epi')
    (folder / 'config.yaml').unlink()
    run = curves.read(folder)
    assert (run.task, run.curves['episode/score'][0].tolist()) == ('x', [1])


DAMAGED = [
    b'\0' * 30, b'', b'{"step": 3, "episode/sc', b'[1, 2]', b'3', b'{"episode/score": 3}',
    b'{"step": null, "episode/score": 3}', b'{"step": "5", "episode/score": 3}', b'\xff\xfe',
    b'[' * 20000, b'{"step": 1' + b'0' * 400 + b', "episode/score": 3}',
]  # fmt: skip
ODD = [b'"high"', b'null', b'NaN', b'[1]', b'true', b'1' + b'0' * 400]


def test_damaged_lines_are_skipped_with_one_warning(tmp_path, capsys):
    folder = make_run(tmp_path / 'x', [(1, 2.0)])
    values = [b'{"step": 2, "episode/score": %b}' % x for x in ODD]
    lines = [*DAMAGED, *values, b'{"step": 4, "episode/score": 7}', b'']
    for name in ('scores.jsonl', 'metrics.jsonl'):
        with open(folder / name, 'ab') as file:
            file.write(b'\n'.join(lines))
    run = curves.read(folder, losses=True)
    steps, scores = run.curves['episode/score']
    assert (steps.tolist(), scores.tolist()) == ([1, 4], [2, 7])
    assert run.curves['train/loss/rec'][1].tolist() == [3]
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2
    assert out[0] == (
        f'Warning: skipped {len(DAMAGED)} damaged lines of {folder}/scores.jsonl, first line 2.'
    )


@pytest.mark.parametrize('name', ['config.yaml', 'metrics.jsonl', 'scores.jsonl'])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    folder = make_run(tmp_path / 'x', [(1, 2.0)])
    (folder / name).unlink()
    os.mkfifo(folder / name)
    run = curves.read(folder, losses=True)
    assert run.task == ('x' if name == 'config.yaml' else 'crafter_reward')
    assert (len(run.curves['episode/score'][0]) == 0) == (name == 'scores.jsonl')
    assert ('train/loss/rec' in run.curves) == (name != 'metrics.jsonl')


@pytest.mark.parametrize('text', ['[', 'a: b: c', '\0', '3', '{task: 1, task: 2}'])
def test_a_damaged_config_leaves_the_name_of_the_folder(tmp_path, capsys, text):
    folder = make_run(tmp_path / 'x', [(1, 2.0)])
    (folder / 'config.yaml').write_text(text)
    assert curves.read(folder).task == 'x'
    (line,) = capsys.readouterr().out.splitlines()
    assert re.match(r'Warning: .*x/config\.yaml', line)


def test_names_that_yaml_reads_as_numbers_and_names_of_formulas(tmp_path):
    names = [7, r'$\frac{$', '{0}', '_x', '--><b>', '日本']
    for i, name in enumerate(names):
        make_run(tmp_path / f'run{i}', [(1, 2.0), (5, 3.0)], name, name)
    for suffix in ('PNG', 'Html'):
        out = tmp_path / f'plot.{suffix}'
        main(['plot', str(tmp_path), '--out', str(out)])
        assert out.stat().st_size > 1000
    assert '<b>' not in out.read_text()
    groups = plot.group(curves.read(x) for x in curves.find([tmp_path]))
    axes = plot.draw(groups, 3).axes
    titles = [x.get_title() for x in axes if x.get_title()]
    legends = [x.get_legend().get_texts()[0].get_text() for x in axes if x.get_title()]
    assert {'7', r'$\frac{$', '{0}', '_x'} <= set(titles)
    assert legends == [f'{x} (1 run)' for x in titles]


@pytest.mark.parametrize('name', [2.5, None, True, [1]])
def test_names_of_other_types_are_text(tmp_path, name):
    run = curves.read(make_run(tmp_path / 'x', [(1, 2.0)], name, name))
    assert (run.task, run.method) == (str(name), str(name))


@pytest.mark.parametrize(
    ('line', 'words'),
    [
        ('{0}/run --by agent.opt.rl --out x.png', r'--by agent\.opt\.rl .*agent\.opt\.lr'),
        ('{0}/nothing --out x.png', 'nothing is no folder'),
        ('{0}/empty --out x.png', 'no scores.jsonl'),
        ('{0}/run --out x.jpeg', r'must end in one of \.png'),
        ('{0}/run --out x.png --bins 0', 'at least 1'),
        ('{0}/run --out {0}/run/scores.jsonl/x.png', 'Cannot write --out'),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, line, words):
    make_run(tmp_path / 'run', [(1, 2.0)])
    (tmp_path / 'empty').mkdir()
    with pytest.raises(UserError, match=words):
        plot.main(line.format(tmp_path).split())


@pytest.mark.parametrize('line', ['plot', 'plot x', 'view', 'view x --port abc'])
def test_missing_arguments_exit_with_2(line, capsys):
    with pytest.raises(SystemExit) as caught:
        main(line.split())
    assert caught.value.code == 2
    assert 'usage: dreamerv3' in capsys.readouterr().err
