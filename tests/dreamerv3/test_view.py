"""`dreamerv3 view`: what it serves, what it refuses, and what a browser shows."""

import contextlib
import http.client
import json
import math
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import types

import numpy as np
import pytest

from dreamerv3 import view
from dreamerv3.main import main
from embodied import UserError, logging
from tests.dreamerv3 import browser

ROOT = pathlib.Path(__file__).parents[2]
RUN = 'exp:run'


@pytest.fixture(scope='module')
def base(tmp_path_factory):
    """A folder of one run with curves and a video, beside a file that is nobody's business."""
    base = tmp_path_factory.mktemp('view') / 'base'
    (base.parent / 'secret.txt').parent.mkdir(exist_ok=True)
    (base.parent / 'secret.txt').write_text('secret')
    output = logging.Scope(base / 'exp' / 'run')
    for step in range(20):
        output.write([(step, 'episode/score', np.asarray(step**1.5))])
    frames = np.zeros((4, 16, 16, 3), np.uint8)
    output.write([(20, 'openloop/image', frames), (20, 'note', 'hello')])
    (base / 'link').symlink_to(base.parent)
    odd = base / 'exp' / 'run' / 'scope'
    for name in ('pipe.float', 'pipe.txt', 'film.mp4'):
        os.mkfifo(odd / name)
    os.mkfifo(base / 'exp' / 'pipe')
    (odd / 'cut.float').write_bytes((odd / 'episode-score.float').read_bytes()[:-5])
    (odd / 'nan.float').write_bytes(struct.pack('>qd', 3, math.nan))
    (odd / 'empty.float').touch()
    for name in ('none.txt', 'pipes.txt', 'linked.txt'):
        (odd / name).mkdir()
    os.mkfifo(odd / 'pipes.txt' / 'index')
    (odd / 'linked.txt' / 'index').symlink_to(base.parent / 'secret.txt')
    (odd / 'none.txt' / 'latin.txt').write_bytes(b'caf\xe9')
    (odd / 'ten.mp4').write_bytes(bytes(range(10)))
    (odd / 'zero.mp4').touch()
    return base


@contextlib.contextmanager
def viewer(*args, start=('dreamerv3/main.py', 'view')):
    """Start the viewer on a free port; yields the port."""
    # A shell may have made this process ignore interrupts, which the viewer would take over.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, *start, *map(str, args)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    try:
        line = process.stdout.readline()
        found = re.search(r'http://127\.0\.0\.1:(\d+)$', line.strip())
        assert found, line + process.stdout.read()
        yield int(found[1])
    finally:
        process.send_signal(signal.SIGINT)
        try:
            out, _ = process.communicate(timeout=30)
        finally:
            process.kill()  # if it hangs
    assert process.returncode == 130
    assert 'Traceback' not in out


def ask(port, path, method='GET', **headers):
    connection = http.client.HTTPConnection('127.0.0.1', port, timeout=30)
    with contextlib.closing(connection):
        connection.request(
            method, path, headers={k.replace('_', '-'): headers[k] for k in headers}
        )
        answer = connection.getresponse()
        return answer, answer.read()


def get(port, path, **headers):
    answer, body = ask(port, path, **headers)
    return answer.status, body


def load(port, path):
    status, body = get(port, path)
    assert status == 200, body
    return json.loads(body)


@pytest.fixture(scope='module')
def port(base):
    with viewer(base, '--port', '0') as port:
        yield port


def test_the_api_gives_scalars_and_a_video(port):
    assert 'exp' in load(port, '/api/exps')['exps']
    assert load(port, '/api/exp/exp')['runs'] == [RUN]
    columns = load(port, f'/api/run/{RUN}')['cols']
    assert f'{RUN}:scope:episode-score.float' in columns
    scalars = load(port, f'/api/col/{RUN}:scope:episode-score.float')
    assert scalars['steps'] == list(range(20))
    assert scalars['values'] == [x**1.5 for x in range(20)]
    (video,) = load(port, f'/api/col/{RUN}:scope:openloop-image.mp4')['values']
    status, whole = get(port, f'/api/file/{video}')
    assert (status, whole[4:8]) == (200, b'ftyp')
    assert get(port, f'/api/file/{video}', Range='bytes=4-7') == (206, b'ftyp')
    assert b'Scope' in get(port, '/')[1]


@pytest.mark.parametrize(
    'path',
    [
        '/api/file/..:secret.txt',
        '/api/file/%2e%2e:secret.txt',
        '/api/file/%2E%2E%3Asecret.txt',
        '/api/file/exp:..:..:secret.txt',
        '/api/file/exp%2f..%2f..%2fsecret.txt',
        '/api/file/..%5csecret.txt',
        '/api/file/link:secret.txt',
        '/api/file/link:base:link:secret.txt',
        '/api/exp/..',
        '/api/exps/..',
        '/api/run/..:view',
        '/api/col/..:x.float',
        '/api/file/a%00b.txt',
        '/api/file/%252e%252e:secret.txt',
        '/api/file/' + 'x' * 5000 + '.txt',
        '/../secret.txt',
        '/assets/..%2f..%2f__init__.py',
    ],
)
def test_nothing_outside_of_the_base_folder(port, path):
    status, body = get(port, path)
    assert status in (400, 404)
    assert b'secret' not in body


SCOPE = f'{RUN}:scope'


@pytest.mark.parametrize(
    'path',
    [
        '/api/nothing', '/nothing', '/api/col/', '/api/col/a/b',
        '/api/exp/nothing', '/api/run/nothing', '/api/run/exp', '/api/col/nothing.float',
        f'/api/col/{SCOPE}:nothing.txt', f'/api/col/{SCOPE}:episode-score.csv',
        f'/api/col/{SCOPE}:none.txt', f'/api/col/{SCOPE}:linked.txt', f'/api/col/{SCOPE}',
        f'/api/file/{SCOPE}', f'/api/file/{SCOPE}:none.txt', '/api/file/exp:run.mp4',
        f'/api/file/{SCOPE}:episode-score.float', f'/api/file/{SCOPE}:nothing.mp4',
        f'/api/col/{SCOPE}:pipe.float', f'/api/col/{SCOPE}:pipe.txt',
        f'/api/col/{SCOPE}:pipes.txt', f'/api/file/{SCOPE}:pipe.txt',
        f'/api/file/{SCOPE}:film.mp4', '/api/run/exp:pipe',
        '/api/col/%FF.float',
    ],
)  # fmt: skip
def test_what_is_no_file_of_a_run_is_not_found_at_once(port, path):
    answer, _ = ask(port, path)
    assert answer.status == 404


def test_pipes_hinder_no_list(port):
    assert load(port, '/api/exp/exp')['runs'] == [RUN]
    assert load(port, '/api/exp/exp%3Apipe')['runs'] == []


def test_only_reading_is_allowed(port):
    answer, _ = ask(port, '/api/exps', 'POST')
    assert (answer.status, answer.headers['Allow']) == (405, 'GET, HEAD')
    for path in ('/api/exps', '/', f'/api/file/{SCOPE}:ten.mp4', f'/api/run/{RUN}'):
        answer, body = ask(port, path, 'HEAD', Range='bytes=1-2')
        assert (answer.status, body) == (200, b'')


def test_files_that_are_being_written(port):
    column = lambda name: load(port, f'/api/col/{SCOPE}:{name}')
    assert column('cut.float')['steps'] == list(range(19))
    assert column('empty.float')['values'] == []
    assert column('nan.float') == {
        'id': f'{SCOPE}:nan.float', 'run': RUN, 'steps': [3], 'values': [None],
    }  # fmt: skip
    text = load(port, f'/api/file/{SCOPE}:none.txt:latin.txt')['text']
    assert text == 'caf\N{REPLACEMENT CHARACTER}'


WHOLE = (200, bytes(range(10)), None)


@pytest.mark.parametrize(
    ('asked', 'status', 'body', 'sent'),
    [
        ('bytes=4-7', 206, bytes([4, 5, 6, 7]), 'bytes 4-7/10'),
        ('BYTES=4-4', 206, bytes([4]), 'bytes 4-4/10'),
        ('bytes=7-', 206, bytes([7, 8, 9]), 'bytes 7-9/10'),
        ('bytes=7-999', 206, bytes([7, 8, 9]), 'bytes 7-9/10'),
        ('bytes=-3', 206, bytes([7, 8, 9]), 'bytes 7-9/10'),
        ('bytes=-999', 206, bytes(range(10)), 'bytes 0-9/10'),
        ('bytes=10-', 416, b'', 'bytes */10'),
        ('bytes=10-20', 416, b'', 'bytes */10'),
        ('bytes=-0', 416, b'', 'bytes */10'),
        ('bytes=5-2', *WHOLE),
        ('bytes=-', *WHOLE),
        ('bytes=a-b', *WHOLE),
        ('bytes=--3', *WHOLE),
        ('bytes 4-7', *WHOLE),
        ('lines=4-7', *WHOLE),
        ('bytes=0-1,4-5', *WHOLE),
        ('bytes=0-' + '9' * 5000, *WHOLE),
        ('', *WHOLE),
    ],
)
def test_ranges_follow_rfc_9110(port, asked, status, body, sent):
    answer, found = ask(port, f'/api/file/{SCOPE}:ten.mp4', Range=asked)
    assert (answer.status, found, answer.headers['Content-Range']) == (status, body, sent)
    assert answer.headers['Content-Type'].startswith('text' if status == 416 else 'video/mp4')


def test_ranges_of_another_version_of_a_file_and_of_an_empty_one(port):
    ten, zero = f'/api/file/{SCOPE}:ten.mp4', f'/api/file/{SCOPE}:zero.mp4'
    tag = ask(port, ten)[0].headers['ETag']
    assert get(port, ten, Range='bytes=2-3', If_Range=tag) == (206, bytes([2, 3]))
    assert get(port, ten, Range='bytes=2-3', If_Range='"other"') == WHOLE[:2]
    assert get(port, ten, Range='bytes=20-', If_Range='"other"') == WHOLE[:2]
    assert get(port, zero) == (200, b'')
    answer, _ = ask(port, zero, Range='bytes=0-')
    assert (answer.status, answer.headers['Content-Range']) == (416, 'bytes */0')


def test_an_interrupt_does_not_wait_for_who_reads_nothing(base, tmp_path):
    run = tmp_path / 'runs' / 'run'
    (run / 'scope').mkdir(parents=True)
    with open(run / 'scope' / 'long.mp4', 'wb') as file:
        file.truncate(10**8)
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(viewer(run.parent, '--port', '0'))
        sock = socket.create_connection(('127.0.0.1', port), timeout=30)
        stack.callback(sock.close)
        sock.sendall(b'GET /api/file/run:scope:long.mp4 HTTP/1.1\r\nHost: localhost\r\n\r\n')
        assert sock.recv(12) == b'HTTP/1.1 200'
        stack.pop_all().close()


def test_a_page_of_another_site_cannot_ask(port):
    assert get(port, '/api/exps', Host='evil.example:80')[0] == 400
    assert get(port, '/api/exps', Host=f'localhost:{port}')[0] == 200


def test_only_this_machine_and_one_process(base):
    with viewer(base, '--port', '0') as port:
        assert load(port, '/api/exps')
        import psutil

        mine = [x for x in psutil.Process().net_connections() if x.status == psutil.CONN_LISTEN]
        servers = [x for x in psutil.Process().children() if x.cmdline()[2:3] == ['view']]
        (server,) = [
            x for x in servers if any(c.laddr.port == port for c in x.net_connections())
        ]
        assert server.children(recursive=True) == []
        assert {c.laddr.ip for c in server.net_connections()} == {'127.0.0.1'}
        assert port not in {x.laddr.port for x in mine}


def test_a_single_run(base):
    with viewer(base / 'exp' / 'run', '--port', '0') as port:
        assert load(port, '/api/exps')['exps'] == ['run']
        assert load(port, '/api/exp/run')['runs'] == ['run']
        assert load(port, '/api/col/run:scope:episode-score.float')['steps'][-1] == 19
        assert get(port, '/api/file/run:..:x.txt')[0] == 400


@pytest.mark.skipif(not browser.find(), reason='no Chromium is installed')
@pytest.mark.filterwarnings('ignore::DeprecationWarning:websockets')
def test_a_browser_lists_the_run_and_draws_its_curve(port, tmp_path):
    click = """(x => x && (x.click(), true))([...document.querySelectorAll('.list .entry')]
        .find(x => x.querySelector('.name').textContent == '{}'))"""
    refresh = "(document.querySelector('button[title=Refresh]').click(), true)"
    red = """(canvas => {
        if (!canvas) return 0;
        const context = canvas.getContext('2d');
        const x = context.getImageData(0, 0, canvas.width, canvas.height).data;
        let count = 0;
        for (let i = 0; i < x.length; i += 4)
            count += x[i] > 150 && x[i + 1] < 100 && x[i + 2] < 100 && x[i + 3] > 99;
        return count > 30 && count;
    })(document.querySelector('.cards canvas'))"""
    with browser.page(f'http://127.0.0.1:{port}/', tmp_path) as until:
        assert until(click.format('exp'))
        assert until(refresh)  # the page may still have been at its first look
        assert until(click.format(RUN))
        assert until(click.format('episode-score.float'))
        assert until(red) > 30


def test_the_documented_command(base):
    """Scope's own viewer, in one process."""
    with socket.create_server(('127.0.0.1', 0)) as free:
        port = free.getsockname()[1]
    flags = ['--basedir', base, '--port', str(port), '--workers', '1']
    process = subprocess.Popen(
        [sys.executable, '-m', 'scope.viewer', *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        lines = iter(process.stdout.readline, '')
        assert any('Uvicorn running' in line for line in lines)
        assert 'exp' in load(port, '/api/exps')['exps']
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.mark.parametrize(
    ('line', 'words'),
    [
        ('view {0}/nothing', r'nothing is no folder'),
        ('view {0} --port {1}', r'port {1}.*--port'),
        ('view {0} --port 99999', r'--port 99999'),
        ('view {0} --host 203.0.113.7', r'203\.0\.113\.7'),
    ],
)
def test_mistakes_are_one_sentence(base, line, words, capsys):
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as caught:
            main(line.format(base, port).split())
    assert caught.value.code == 2
    assert re.search(words.format(base, port), capsys.readouterr().err)


def test_the_viewer_of_later_versions_is_found(monkeypatch, tmp_path):
    fake = types.ModuleType('scope_viewer.server')
    fake.app = object()
    monkeypatch.setitem(sys.modules, 'scope_viewer', types.ModuleType('scope_viewer'))
    monkeypatch.setitem(sys.modules, 'scope_viewer.server', fake)
    monkeypatch.setattr(view, 'find', lambda name: name == 'scope_viewer')
    before = list(sys.argv)
    assert view.load(tmp_path) is fake.app
    assert sys.argv == before
    monkeypatch.setattr(view, 'find', lambda name: False)
    with pytest.raises(UserError, match=r'scope==0\.6\.3'):
        view.load(tmp_path)


def test_modules_are_found_without_being_imported():
    assert view.find('scope.viewer')
    assert not view.find('scope.nothing')
    assert not view.find('nothing.viewer')
