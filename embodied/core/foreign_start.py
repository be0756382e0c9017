"""The program that another interpreter runs: python foreign_start.py ROOT FD.

Imports our packages from ROOT without putting that on the path, since it may be the folder of
packages of the first interpreter, and serves an environment over the inherited socket FD.
"""

import importlib.util
import json
import struct
import sys
from multiprocessing import connection

if __name__ == '__main__':
    sys.path.pop(0)  # this folder would shadow packages of the same name as its modules


def adopt(root: str, name: str) -> None:
    """Import the package of that name which lies in the folder."""
    spec = importlib.util.spec_from_file_location(name, f'{root}/{name}/__init__.py')
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def main(root: str, fd: int) -> None:
    """Serve, or say which package is missing."""
    conn = connection.Connection(fd)
    try:
        for name in ('embodied', 'dreamerv3'):
            adopt(root, name)
        from embodied.core import foreign
    except ImportError as e:
        conn.recv_bytes()  # the factory
        text = (
            f'--run.env_python: {sys.executable} lacks {e.name}; install numpy, elements and '
            'cloudpickle there, beside the package of the suite.'
        )
        header = json.dumps([{'$tuple': ['user', text]}, []]).encode()
        conn.send_bytes(struct.pack('>I', len(header)) + header)
        return
    foreign.serve(conn)


if __name__ == '__main__':
    main(sys.argv[1], int(sys.argv[2]))
