"""A headless Chromium that opens a page and evaluates JavaScript in it."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

from websockets.sync.client import connect

NAMES = ('chromium', 'chromium-browser', 'google-chrome')
# Resolves as soon as the expression is true.
UNTIL = """new Promise(resolve => {{
    const look = () => {{ const x = {}; x ? resolve(x) : setTimeout(look, 20) }};
    look();
}})"""


def find() -> str | None:
    """The path of a browser, if one is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def page(url: str, folder: pathlib.Path) -> Iterator[Callable[[str], Any]]:
    """Open a page; yields until(expression), which waits for it to be true and returns it."""
    command = [
        find(), '--headless=new', '--no-sandbox', '--disable-gpu', '--no-first-run',
        '--remote-debugging-port=0', f'--user-data-dir={folder}', '--window-size=1300,850',
        'about:blank',
    ]  # fmt: skip
    quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.PIPE}
    browser = subprocess.Popen(command, start_new_session=True, text=True, **quiet)
    try:
        found = (re.search(r'DevTools listening on ws://([^/]+)', x) for x in browser.stderr)
        address = next(filter(None, found))[1]
        with urllib.request.urlopen(f'http://{address}/json', timeout=30) as answer:
            pages = [x for x in json.load(answer) if x['type'] == 'page']
        with connect(pages[0]['webSocketDebuggerUrl'], max_size=None) as connection:
            _send(connection, 'Page.enable')
            _send(connection, 'Page.navigate', url=url)
            _receive(connection, lambda x: x.get('method') == 'Page.loadEventFired')
            yield lambda expression: _evaluate(connection, UNTIL.format(expression))
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.stderr.close()
        browser.wait()


def _evaluate(connection: Any, expression: str) -> Any:
    _send(
        connection,
        'Runtime.evaluate',
        expression=expression,
        returnByValue=True,
        awaitPromise=True,
    )
    answer = _receive(connection, lambda x: 'result' in x.get('result', {}) or 'error' in x)
    assert 'error' not in answer, answer
    assert 'exceptionDetails' not in answer['result'], answer
    return answer['result']['result'].get('value')


def _send(connection: Any, method: str, **params: Any) -> None:
    connection.send(json.dumps({'id': 1, 'method': method, 'params': params}))


def _receive(connection: Any, wanted: Callable[[dict], bool]) -> dict:
    while True:
        message = json.loads(connection.recv(60))
        if wanted(message):
            return message
