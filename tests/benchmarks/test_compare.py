"""Ratios of two files of figures, also in proportion to the machine; what is refused."""

import json
import subprocess
import sys

import pytest

from benchmarks import compare

SPEED = {'matmul_f32': 200.0, 'matmul_bf16': 100.0, 'copy': 10.0, 'python': 20.0}
SLOW = {'matmul_f32': 100.0, 'matmul_bf16': 80.0, 'copy': 5.0, 'python': 5.0}


def write(path, *lines):
    path.write_text(''.join(x if isinstance(x, str) else json.dumps(x) + '\n' for x in lines))
    return str(path)


def line(figures, speed=SPEED, after=None, program='train', **flags):
    return {
        'program': program, 'flags': {'dtype': 'float32', **flags}, 'figures': figures,
        'before': speed, 'after': after or speed,
    }  # fmt: skip


def rows(text):
    """Words of each line by its first word."""
    return {x.split()[0]: x.split()[1:] for x in text.splitlines() if x.strip()}


@pytest.fixture
def files(tmp_path):
    return lambda old, new: (
        write(tmp_path / 'old', *old),
        write(tmp_path / 'new', *new),
    )


def test_ratios_plain_and_in_proportion(files):
    old = {'train_ms': 100.0, 'build_s': 8.0, 'train_gflop': 30.0}
    new = {'train_ms': 120.0, 'build_s': 4.0, 'train_gflop': 15.0}
    found = rows(compare.compare(*files([line(old)], [line(new, SLOW)])))
    assert found['train_ms'] == ['100', '120', '1.200', '0.600', 'matmul_f32']
    assert found['build_s'] == ['8', '4', '0.500', '0.125', 'python']
    assert found['train_gflop'] == ['30', '15', '0.500']
    assert found['calibrate/copy'] == ['10', '5', '0.500']


def test_the_calibration_is_the_mean_of_before_and_after_and_fits_the_dtype(files):
    old = line({'train_ms': 100.0}, dtype='bfloat16')
    new = line({'train_ms': 100.0}, SPEED, SLOW, dtype='bfloat16')
    found = rows(compare.compare(*files([old], [new])))
    assert found['train_ms'] == ['100', '100', '1.000', '0.900', 'matmul_bf16']


def test_which_calibration_fits():
    shares = {'host_share_1': 0.7, 'host_share_16': 0.2}
    fits = lambda name: compare.calibration(name, shares, 'float32')
    for name in ('train_ms_min', 'report_ms', 'compiled_1_ms', 'call_16_ms'):
        assert fits(name) == 'matmul_f32', name
    for name in ('call_1_ms', 'train_compile_s', 'cold_total_s', 'help_s'):
        assert fits(name) == 'python', name
    for name in ('host_share_1', 'train_loops', 'max_rss_mib', 'rate', 'calibrate/python'):
        assert fits(name) is None, name


def test_lines_belong_together_by_program_and_flags_and_several_by_their_median(files):
    old = [line({'x_ms': x}, kind='image') for x in (3.0, 1.0, 2.0)]
    new = [
        line({'x_ms': 5.0}, kind='vector'),
        'Some warning.\n',
        line({'x_ms': 4}, kind='image'),
    ]
    text = compare.compare(*(paths := files(old, new)))
    assert rows(text)['x_ms'][:3] == ['2', '4', '2.000']
    assert f'only in {paths[1]}: train --dtype float32 --kind vector' in text


def test_a_figure_of_zero_has_no_ratio(files):
    found = rows(compare.compare(*files([line({'n_loops': 0})], [line({'n_loops': 3})])))
    assert found['n_loops'] == ['0', '3', '-']


@pytest.mark.parametrize(
    ('old', 'new', 'words'),
    [
        (
            [line({}, kind='a')],
            [line({}, kind='b')],
            'no line of .*--kind a against .*--kind b',
        ),
        ([line({})], [line({}, program='policy')], 'train .* against policy'),
        ([line({})], ['no JSON\n'], 'new holds no line of JSON'),
        ([line({}), '{"rates": {}}\n'], [line({})], 'old, line 2, is not from train.py'),
        ([line({}), '{"rates": \n'], [line({})], 'old, line 2, is not from train.py'),
    ],
)
def test_files_that_do_not_match_are_refused(files, old, new, words):
    with pytest.raises(compare.Mismatch, match=words):
        compare.compare(*files(old, new))


def test_the_program_says_it_in_one_line(tmp_path):
    path = write(tmp_path / 'old', line({}))
    command = [sys.executable, compare.__file__, path, str(tmp_path / 'missing')]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, '')
    expected = f'Error: cannot read {tmp_path}/missing: No such file or directory\n'
    assert done.stderr == expected
    done = subprocess.run([*command[:3], path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, '')
    assert rows(done.stdout)['calibrate/python'] == ['20', '20', '1.000']
