"""What a new user types, line by line from the README, in a home of its own.

CI runs this in a fresh environment, after the README's install.
"""

import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import urllib.request

import av
import pytest

ROOT = pathlib.Path(__file__).parents[2]


def lines():
    text = (ROOT / 'README.md').read_text(encoding='utf-8')
    (block,) = re.findall(r'<!-- first run -->\n```bash\n(.*?)\n```', text, re.S)
    return block.splitlines()


@pytest.mark.timeout(600)
def test_the_first_run_of_the_readme(tmp_path):
    install, *commands, view = lines()
    assert install == 'pip install -e .'
    assert view == 'dreamerv3 view ~/logdir'
    folder = pathlib.Path(sys.executable).parent
    env = {
        **os.environ,
        'HOME': str(tmp_path),
        'PATH': f'{folder}:{os.environ["PATH"]}',
    }
    cache = tmp_path / '.cache' / 'dreamerv3' / 'jax'
    cache.parent.mkdir(parents=True)
    cache.symlink_to(os.environ['JAX_COMPILATION_CACHE_DIR'])  # compiles once for all tests
    for command in commands:
        done = subprocess.run(
            ['bash', '-c', command], cwd=ROOT, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, f'{command}\n{done.stdout}\n{done.stderr}'
        assert 'Warning' not in done.stdout, done.stdout

    logdir = tmp_path / 'logdir' / 'crafter'
    rows = [
        json.loads(x) for x in (logdir / 'debug' / 'metrics.jsonl').read_text().splitlines()
    ]
    assert any('train/loss/image' in row for row in rows)
    assert '<svg' in (tmp_path / 'logdir' / 'crafter.html').read_text()
    (video,) = (logdir / 'eval' / 'videos').glob('*-env0-image.mp4')
    with av.open(video) as container:
        assert sum(1 for _ in container.decode(video=0)) > 10

    process = subprocess.Popen(
        ['dreamerv3', *shlex.split(view.replace('~', str(tmp_path)))[1:], '--port', '0'],
        cwd=ROOT,
        env=env,
        executable=folder / 'dreamerv3',
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        address = re.search(r'http://\S+', process.stdout.readline())[0]
        with urllib.request.urlopen(f'{address}/api/exp/crafter', timeout=60) as answer:
            assert set(json.load(answer)['runs']) == {'crafter:debug', 'crafter:eval'}
        name = 'crafter:debug:scope:episode-score.float'
        with urllib.request.urlopen(f'{address}/api/col/{name}', timeout=60) as answer:
            assert len(json.load(answer)['values']) > 0
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
