"""Signals: when they end the process at once, and when the loop is asked to."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from embodied.core import signals

ROOT = pathlib.Path(__file__).parents[2]


def play(body: str, *steps: tuple, apart: float = 0) -> tuple[int, str]:
    """Run `body` within a Stop; steps: (line to wait for, signal to send then).

    apart: how long a second signal does not count.
    """
    script = textwrap.dedent("""
        import os, signal, sys, threading
        from embodied.core import signals

        signals.APART = {}
        forever = threading.Event().wait  # in C, as a compiler is
        with signals.Stop() as stop:
        {}
        print('left')
    """).format(apart, textwrap.indent(textwrap.dedent(body), '    '))
    command = [sys.executable, '-W', 'error', '-c', script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        said = ''
        for wanted, number in steps:
            line = process.stdout.readline()
            while wanted not in line:
                assert line, said
                said, line = said + line, process.stdout.readline()
            said += line
            process.send_signal(number)
        said += process.stdout.read()
        return process.wait(), said


BOTH = pytest.mark.parametrize('number', signals.SIGNALS)
LOOP = """
    stop.begin()
    print('ready', flush=True)
    while not stop.requested:
        pass
"""
HANG = """
    stop.begin()
    print('ready', flush=True)
    forever()
"""


@BOTH
def test_before_it_begins_a_signal_ends_it(number):
    code, out = play("print('ready', flush=True)\nforever()", ('ready', number))
    assert (code, 'left' in out) == (0, False)
    assert 'Ended without saving' in out


@BOTH
def test_the_loop_is_asked_to_end(number):
    code, out = play(LOOP, ('ready', number))
    assert code == 0
    assert f'{number.name}: the run ends; a second signal ends it at once.\nleft' in out


@pytest.mark.parametrize('first', signals.SIGNALS)
@pytest.mark.parametrize('second', signals.SIGNALS)
def test_a_second_one_ends_it_at_once(first, second):
    code, out = play(HANG, ('ready', first), ('second signal', second))
    assert (code, 'left' in out) == (128 + second, False)


def test_one_that_comes_at_once_is_the_same(tmp_path):
    """As `timeout`, shells and schedulers send them; from APART on it ends the process."""
    body = """
        stop.begin()
        for number in [*signals.SIGNALS] * 3:
            signal.raise_signal(number)
        while not stop.requested:
            pass
        forever(0.3)
        print('saved', flush=True)
    """
    code, out = play(body, apart=60)
    assert (code, 'saved\nleft' in out) == (0, True)
    assert out.count('the run ends') == 1


def test_nohup_is_heeded():
    body = """
        stop.begin()
        os.kill(os.getpid(), signal.SIGHUP)
        forever(0.2)
        print('requested', stop.requested, signal.getsignal(signal.SIGHUP))
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which the process inherits
    try:
        code, out = play(body)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (code, out) == (0, f'requested False {signal.SIG_IGN}\nleft\n')


@BOTH
def test_a_forked_child_has_signals_of_its_own(number):
    """It ends by its own signal, which the run does not hear, also within its first moment."""
    body = f"""
        stop.begin()
        read, write = os.pipe()
        children = []
        for wait in (False, True):
            child = os.fork()
            if not child:
                os.write(write, b'x')
                forever()
            if wait:
                os.read(read, 2)
            children.append(child)
            os.kill(child, {int(number)})
        ends = [os.waitstatus_to_exitcode(os.waitpid(x, 0)[1]) for x in children]
        print('ends', *ends, 'heard', stop.requested)
        os.kill(os.getpid(), {int(number)})
        while not stop.requested:
            pass
    """
    if number == signal.SIGINT:  # for which the handler of before is Python's
        body = body.replace('forever()', 'signal.pause()')
    code, out = play(body)
    assert f'ends {-number} {-number} heard False' in out
    assert (code, 'left' in out) == (0, True)


def test_a_child_that_stays_does_not_keep_the_run(tmp_path):
    fifo = tmp_path / 'fifo'
    os.mkfifo(fifo)
    body = f"""
        child = os.fork()
        if not child:
            os.close(1)
            open({str(fifo)!r}).read()
            os._exit(0)
        stop.begin()
    """
    code, out = play(body)
    assert (code, 'left' in out) == (0, True)
    fifo.write_text('end')  # waits for the child to read


def test_a_reader_that_has_stopped_does_not_keep_signals_from_being_heard():
    script = textwrap.dedent("""
        import os, signal, sys, threading
        from embodied.core import signals

        with signals.Stop() as stop:
            signals.APART = signals.SAYING = 0.1
            stop.begin()
            os.set_blocking(1, False)
            try:
                while True:
                    os.write(1, bytes(4096))
            except BlockingIOError:
                os.set_blocking(1, True)
            signal.raise_signal(signal.SIGTERM)
            while not stop.requested:
                pass
            threading.Event().wait(0.5)
            signal.raise_signal(signal.SIGTERM)
            threading.Event().wait()
    """)
    with subprocess.Popen(
        [sys.executable, '-c', script], stdout=subprocess.PIPE, cwd=ROOT
    ) as x:
        assert x.wait(60) == 128 + signal.SIGTERM


@BOTH
def test_compilation_is_not_waited_for(number):
    body = """
        stop.begin()
        with signals.compiling():
            print('ready', flush=True)
            forever()
    """
    code, out = play(body, ('ready', number))
    assert (code, 'left' in out) == (0, False)
    assert 'compiling' in out


@BOTH
def test_compilation_beside_the_run_lets_it_save_and_is_given_up_then(number):
    body = """
        stop.begin()
        (beside := signals.compiling(awaited=False)).__enter__()
        print('ready', flush=True)
        while not stop.requested:
            pass
        print('saved', flush=True)
    """
    code, out = play(body, ('ready', number))
    assert (code, 'left' in out) == (0, False)
    assert 'saved' in out.split('What is being compiled is not waited for.')[0]


@BOTH
def test_the_end_waits_for_compilation_beside_the_run_but_not_beyond_a_signal(number):
    body = """
        stop.begin()
        (beside := signals.compiling(awaited=False)).__enter__()
        threading.Thread(target=forever).start()
    """
    code, out = play(body, ('waiting for what is still being compiled', number))
    assert (code, 'left' in out) == (0, False)
    body = """
        (beside := signals.compiling(awaited=False)).__enter__()
        threading.Timer(0.3, beside.__exit__, (None, None, None)).start()
    """
    code, out = play(body)
    assert (code, 'left' in out) == (0, True)


@pytest.mark.parametrize(
    ('error', 'code'), [('1 / 0', 1), ('exit(2)', 2), ('raise KeyboardInterrupt', 1)]
)
def test_an_error_ends_the_process_although_something_compiles(error, code):
    body = f"""
        beside = signals.compiling(awaited=False)
        beside.__enter__()
        threading.Thread(target=forever).start()
        with signals.prompt_errors():
            {error}
    """
    found, out = play(body)
    assert (found, 'left' in out) == (code, False)


@BOTH
def test_compilation_that_begins_after_the_signal(number):
    body = """
        stop.begin()
        print('ready', flush=True)
        while not stop.requested:
            pass
        with signals.compiling():
            forever()
    """
    code, out = play(body, ('ready', number))
    assert (code, 'left' in out) == (0, False)


def test_handlers_come_back():
    before = [signal.getsignal(x) for x in signals.SIGNALS]
    with signals.Stop():
        assert [signal.getsignal(x) for x in signals.SIGNALS] != before
    assert [signal.getsignal(x) for x in signals.SIGNALS] == before
    assert signal.set_wakeup_fd(-1) == -1
    assert 'signals' not in [x.name for x in threading.enumerate()]


def test_in_another_thread_it_hears_nothing():
    found = []

    def body():
        with signals.Stop() as stop:
            found.append((stop.requested, signal.getsignal(signal.SIGTERM)))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert found == [(False, before)]
