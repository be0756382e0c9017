"""A run on a terminal and in a pipe, as a user sees them."""

import os
import pathlib
import pty
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
FLAGS = (
    '--configs debug --random_agent True --run.steps 600 --run.envs 2 --logger.outputs jsonl '
    '--run.log_every -1 --logger.filter score --run.usage.psutil 0'
)


def command(folder):
    return [sys.executable, 'dreamerv3/main.py', *FLAGS.split(), '--logdir', str(folder)]


def on_a_terminal(command):
    """Everything that the command writes to a terminal of its own."""
    ours, theirs = pty.openpty()
    env = {**os.environ, 'TERM': 'xterm', 'COLUMNS': '160'}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        parts = []
        while True:
            try:
                parts.append(os.read(ours, 65536))
            except OSError:  # the process has ended
                break
    os.close(ours)
    assert process.returncode == 0
    return b''.join(parts).decode()


def test_a_terminal_shows_a_line_that_is_gone_at_the_end(tmp_path):
    text = on_a_terminal(command(tmp_path))
    assert '/ 600' in text
    assert 'env steps/s' in text
    assert 'episode/score' in text
    assert text.rindex('env steps/s') < text.rindex('\x1b[2K')  # erased


def test_a_pipe_gets_plain_lines(tmp_path):
    done = subprocess.run(command(tmp_path), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '\x1b' not in done.stdout + done.stderr
    assert 'env steps/s' not in done.stdout
    assert 'episode/score' in done.stdout
