"""Weights & Biases offline and MLflow in a local database, each read back.

Their packages are large, so that these tests run beside those of the suites.
"""

import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

from embodied import logging
from embodied.core.errors import UserError

from . import wandbfile

ROOT = pathlib.Path(__file__).parents[2]
METRICS = {
    'Train/Loss': 0.5,
    'nan': np.nan,
    'text': 'a < b',
    'vector': np.array([0, 1, np.nan]),
    'odd': np.zeros(2) * np.nan,
    'gray': np.random.default_rng(0).random((5, 7)),
    'rgba': np.zeros((5, 7, 4), np.uint8),
    'video': np.zeros((3, 5, 7, 3), np.uint8),
    'empty': np.zeros(0),
}


def write(output, scale=1, steps=(1, 2)):
    for step in steps:
        values = {k: v if isinstance(v, str) else np.asarray(v) for k, v in METRICS.items()}
        values['Train/Loss'] = np.asarray(scale * step)
        output.write([(step, name, value) for name, value in values.items()])
    output.close()


def program(folder, env):
    """Write from a process of its own, since the package leaves a service to the exit."""
    code = (
        'import sys\n'
        'from embodied import logging\n'
        'from tests.logging.test_services import write\n'
        "write(logging.Background(logging.WandB(sys.argv[1], 'name', {'seed': 1})))\n"
    )
    done = subprocess.run(
        [sys.executable, '-c', code, folder],
        env={'PATH': '', 'HOME': str(folder), 'PYTHONPATH': str(ROOT), **env},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.suites
def test_wandb_offline(tmp_path):
    pytest.importorskip('wandb', reason='the package wandb is not installed')
    for _ in range(2):  # the second one goes on with the run of the first
        assert program(tmp_path, {}) == (
            'wandb: no API key (wandb login), so this run is kept offline\n'
        )
    rows = wandbfile.history(tmp_path)
    assert [(x['_step'], x['Train/Loss']) for x in rows] == [(1, 1), (2, 2)] * 2
    assert rows[0]['vector/_type'] == 'histogram'
    assert sum(rows[0]['vector/values']) == 2
    assert (rows[0]['video/_type'], rows[0]['gray/_type']) == ('video-file', 'image-file')
    assert (rows[0]['rgba/width'], rows[0]['rgba/height']) == (7, 5)
    assert not any(key.startswith(('empty', 'odd')) for key in rows[0])
    (media, _) = sorted(tmp_path.glob('wandb/offline-run-*/files/media/html/text_0*.html'))
    assert '<pre>a &lt; b</pre>' in media.read_text()
    assert len(list(tmp_path.glob('wandb/offline-run-*'))) == 2
    identity = (tmp_path / 'wandb' / 'id').read_text()
    assert all(x.name.endswith(identity) for x in tmp_path.glob('wandb/offline-run-*'))


@pytest.mark.suites
def test_wandb_without_its_network_goes_on_offline(tmp_path):
    """The service is a port that nobody listens on."""
    pytest.importorskip('wandb', reason='the package wandb is not installed')
    with socket.create_server(('127.0.0.1', 0)) as free:
        url = f'http://127.0.0.1:{free.getsockname()[1]}'
    env = {'WANDB_BASE_URL': url, 'WANDB_API_KEY': 'a' * 40}
    found = program(tmp_path, env)
    assert found.endswith('; this run is kept offline\n')
    assert found.count('\n') == 1
    rows = wandbfile.history(tmp_path)
    assert [(x['_step'], x['Train/Loss']) for x in rows] == [(1, 1), (2, 2)]


@pytest.mark.suites
@pytest.mark.filterwarnings('ignore')  # those of the package and its database are its own
def test_mlflow_in_a_database_of_the_logdir(tmp_path, monkeypatch):
    mlflow = pytest.importorskip('mlflow', reason='the package mlflow is not installed')
    monkeypatch.delenv('MLFLOW_TRACKING_URI', raising=False)
    write(logging.MLFlow(tmp_path, 'name', {'seed': 1}))
    write(logging.MLFlow(tmp_path, 'name', {'seed': 1}), steps=(3,))
    client = mlflow.MlflowClient(f'sqlite:///{tmp_path}/mlflow.db')
    (run,) = client.search_runs([client.get_experiment_by_name('dreamerv3').experiment_id])
    assert (run.info.run_name, run.info.status) == ('name', 'FINISHED')
    assert run.data.params == {'seed': '1'}
    found = client.get_metric_history(run.info.run_id, 'Train/Loss')
    assert sorted((x.step, x.value) for x in found) == [(1, 1), (2, 2), (3, 3)]
    files = {x.name for x in (tmp_path / 'mlflow').rglob('00000000000*')}
    assert files >= {f'00000000000{n}.{end}' for n in (1, 2, 3) for end in ('txt', 'json')}
    vectors = {path.read_text() for path in (tmp_path / 'mlflow').rglob('*.json')}
    assert vectors == {'[0.0, 1.0, null]', '[null, null]'}  # JSON knows no NaN
    assert len(list((tmp_path / 'mlflow').rglob('*.mp4'))) == 3
    assert len(list((tmp_path / 'mlflow').rglob('*.png'))) == 6


@pytest.mark.parametrize('name', ['wandb', 'mlflow'])
def test_a_missing_package_is_one_sentence(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    make = {'wandb': logging.WandB, 'mlflow': logging.MLFlow}[name]
    with pytest.raises(UserError, match=f"pip install '{name}"):
        make(tmp_path, 'name', {})
