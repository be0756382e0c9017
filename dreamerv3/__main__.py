"""`python -m dreamerv3`, which is the command `dreamerv3`."""

from dreamerv3.main import entry

if __name__ == '__main__':
    entry()
