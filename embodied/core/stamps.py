"""Names that sort by time: UTC, and each later than those before, whatever the clock does."""

import datetime
import glob
import pathlib

STAMP = '%Y%m%dT%H%M%SF%f'  # 20261129T142956F764654
INSTANT = datetime.timedelta(microseconds=1)


def parse(text: str) -> datetime.datetime | None:
    """Return the time that a stamp names, None for any other text."""
    try:
        time = datetime.datetime.strptime(text, STAMP)
    except ValueError:
        return None
    return time if time.strftime(STAMP) == text else None


def after(newest: str = '') -> str:
    """Return the stamp of now, or the one right after `newest` if that is not in the past.

    Stamps of local time and of a clock that was ahead may be hours in the future.
    """
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    last = parse(newest)
    if last is not None and last < datetime.datetime.max:
        now = max(now, last + INSTANT)
    return now.strftime(STAMP)


def beside(path: pathlib.Path) -> pathlib.Path:
    """Return NAME-STAMP.SUFFIX beside a file NAME.SUFFIX, which sorts after all such files."""
    there = path.parent.glob(f'{glob.escape(path.stem)}-*{glob.escape(path.suffix)}')
    known = [x.stem[len(path.stem) + 1 :] for x in there]
    newest = max(filter(parse, known), default='')
    return path.with_name(f'{path.stem}-{after(newest)}{path.suffix}')
