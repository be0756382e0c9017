"""Environments that misuse the process that they are in."""

import multiprocessing
import os
import pathlib
import signal
import sys
import threading
from typing import Any

import numpy as np

from tests.doubles import CounterEnv

FORK = multiprocessing.get_context('fork')


class Guest(CounterEnv):
    """Does at step `at` of its life (0: when it is made) what `how` names."""

    def __init__(self, env: int = 0, *, how: str, at: int = 60, **kwargs: Any):
        super().__init__(env, **kwargs)
        self.how, self.at, self.life = how, at, 0
        if at == 0:
            getattr(self, how)()

    def step(self, action: dict[str, Any]) -> dict[str, Any]:
        self.life += 1
        if self.life == self.at:
            getattr(self, self.how)()
        return super().step(action)

    def leave(self) -> None:
        sys.exit(0)

    def interrupt(self) -> None:
        raise KeyboardInterrupt

    def close_number(self) -> None:
        os.close(1)

    def close_stream(self) -> None:
        print('before')
        sys.stdout.close()

    def replace_stream(self) -> None:
        with open(os.devnull, 'w') as file:
            sys.stdout = file

    def talk(self) -> None:
        for _ in range(100):
            print('x' * 1000)

    def change_folder(self) -> None:
        os.makedirs('elsewhere', exist_ok=True)
        os.chdir('elsewhere')

    def start_thread(self) -> None:
        threading.Thread(target=threading.Event().wait, name='reader').start()

    def start_child(self) -> None:
        child = FORK.Process(target=signal.pause, name='helper')
        child.start()
        print(f'child {child.pid}', flush=True)

    def start_and_end_child(self) -> None:
        """As a Pool in `reset` does, at once."""
        child = FORK.Process(target=signal.pause)
        child.start()
        child.terminate()
        child.join()
        print(f'child ended {child.exitcode}', flush=True)

    def leave_in_a_child(self) -> None:
        child = os.fork()
        if not child:
            sys.exit(7)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(f'child left {code}', flush=True)

    def divide(self) -> None:
        np.seterr(all='raise')
        np.float32(1) / np.float32(0)

    def be_strict(self) -> None:
        np.seterr(all='raise')
        sys.stdout.flush()


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for counts as ended."""
    try:
        status = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except FileNotFoundError:
        return True
    return status.rpartition(')')[2].split()[0] == 'Z'
