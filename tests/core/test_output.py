"""Standard streams that never fail, in processes of their own and within one."""

import io
import pathlib
import subprocess
import sys
import textwrap

import pytest

from embodied.core import output

ROOT = pathlib.Path(__file__).parents[2]


def play(body, code=0, **options):
    """Run a script with guarded streams, and return what it wrote."""
    script = 'import io, os, sys\nfrom embodied.core import output\noutput.guard()\n'
    command = [sys.executable, '-W', 'error', '-c', script + textwrap.dedent(body)]
    options = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, **options}
    done = subprocess.run(command, text=True, cwd=ROOT, **options)
    assert done.returncode == code, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    'act',
    [
        'os.close(1)',
        'sys.stdout.close()',
        'sys.stdout.buffer.close()',
        'sys.stdout.detach()',
        'io.TextIOWrapper(sys.stdout.buffer).close()',
        'sys.__stdout__.close()',
    ],
)
def test_text_arrives_although_the_stream_was_closed(act):
    assert play(f'print("one"); {act}; print("two"); print("three")') == 'one\ntwo\nthree\n'


@pytest.mark.parametrize('last', ['', 'os.closerange(0, 100);'])
def test_text_goes_into_no_file_that_got_its_number(tmp_path, last):
    body = f"""
        os.close(1); {last}
        for number in range(9):
            os.open({str(tmp_path / 'file')!r} + str(number), os.O_WRONLY | os.O_CREAT)
        for _ in range(9):
            print('text')
            sys.stdout.flush()
        assert os.fstat(1)
    """
    out = play(body)
    assert out == ('' if last else 'text\n' * 9)
    assert [x.read_text() for x in sorted(tmp_path.iterdir())] == [''] * 9


def test_a_number_that_is_free_at_the_start_is_taken():
    body = """
        print('text')
        read, write = os.pipe()
        assert min(read, write) > 2
        assert not sys.stdout.isatty()
    """
    command = f'exec {sys.executable} -c "$1" >&-'
    script = 'import os, sys\nfrom embodied.core import output\noutput.guard()\n'
    script += textwrap.dedent(body)
    done = subprocess.run(['sh', '-c', command, 'sh', script], cwd=ROOT, check=False)
    assert done.returncode == 0


def test_nobody_reads():
    """The code is 0, and programs that are started later do not die of it."""
    body = """
        import subprocess
        while os.fstat(1).st_mode == mode:
            print('text')
        done = subprocess.run(['sh', '-c', 'echo a; echo b'])
        os._exit(3 if done.returncode else 4)
    """
    body = 'mode = os.fstat(1).st_mode\n' + textwrap.dedent(body)
    script = 'import io, os, sys\nfrom embodied.core import output\noutput.guard()\n' + body
    command = [sys.executable, '-c', script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        process.stdout.close()
        assert process.wait(60) == 4


@pytest.mark.parametrize('text', ['"x" * 100', '"─" * 100_000'])
def test_a_full_disk(text):
    with open('/dev/full', 'w') as full:
        play(
            f'print({text!r}); print({text!r}, flush=True); print({text!r}, end="")',
            stdout=full,
        )


def test_what_an_encoding_lacks_is_replaced():
    out = play('print("── Step – 3 × 4 … ─ ⠋ é")', env={'PYTHONIOENCODING': 'ascii'})
    assert out == '-- Step - 3 x 4 ... - ? ?\n'
    out = play('print("─ é")', env={'PYTHONIOENCODING': 'ascii:backslashreplace'})
    assert out == '\\u2500 \\xe9\n'


class Tee(io.StringIO):
    """A stream that does more than its descriptor, and fails from some time on."""

    broken = False

    def write(self, text):
        if self.broken:
            raise OSError('full')
        return super().write(text)


def test_other_streams_are_written_to_and_may_fail(monkeypatch):
    tee = Tee()
    monkeypatch.setattr(sys, 'stdout', tee)
    with output.guarded():
        print('one ─', flush=True)
        held = sys.stdout
        tee.broken = True
        print('two', flush=True)
        tee.broken = False
        with output.guarded():
            assert sys.stdout is held
        sys.stdout = None  # by an environment
    assert sys.stdout is tee
    print('three', file=held, flush=True)  # by one that took it for its own
    assert tee.getvalue() == 'one ─\nthree\n'
