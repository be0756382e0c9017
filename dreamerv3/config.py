"""Configuration: blocks of configs.yaml, YAML files and flags, in order, as `elements.Config`.

Values are converted to the type of their default before elements sees them, since it would turn
the string 'False' into True and reports an unknown key as a bare KeyError.
"""

import functools
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import elements

from dreamerv3 import checks, evaluation, paths, unused
from embodied import UserError
from embodied.core import stamps

CONFIGS = pathlib.Path(__file__).parent / 'configs.yaml'
REGEX = re.compile(r'[^A-Za-z0-9_.-]')
BOOLS = {'true': True, '1': True, 'yes': True, 'false': False, '0': False, 'no': False}


def resolve(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> elements.Config:
    """Turn command-line arguments into a checked config.

    `{timestamp}` in the logdir is filled in, paths are absolute, and JOB_COMPLETION_INDEX of
    an indexed job overrides the replica. Raises UserError for what a user can get wrong.
    """
    names, files, flags = parse_flags(argv)
    if (index := environ.get('JOB_COMPLETION_INDEX', '')) != '':
        flags['replica'] = [index]
    if not names and not files and (found := evaluation.config_of(flags)):
        print(f'Config from {found}: eval_only without --configs or --config plays as trained')
        own = {key: blocks()['defaults'][key] for key in ('logdir', 'jax.compilation_cache')}
        files, flags = [found], {**own, **flags}
    return finish(load(names, flags, files))


def finish(config: elements.Config) -> elements.Config:
    """Fill in the logdir, make paths absolute, and check what the config alone can show."""
    checks.check_url(config.logdir)
    config = config.update(logdir=config.logdir.replace('{timestamp}', elements.timestamp()))
    config = config.update(paths.absolute(config.flat))
    checks.check(config, blocks()['defaults'])
    return config


def load(
    names: Iterable[str] = (),
    overrides: Mapping[str, Any] | None = None,
    files: Iterable[str | os.PathLike] = (),
) -> elements.Config:
    """Apply the named blocks, YAML files and overrides (keys or regular expressions), in order.

    A value may be a string (or a list of strings), as flags are, or already have its type.
    """
    values, flags = {**blocks()['defaults'], **unused.defaults()}, flatten(overrides or {})
    given: list[Mapping[str, Any]] = [flags]
    named = {*flags}
    for name in names:
        if name not in block_names():
            hint = checks.hint(name) or checks.nearest(name, block_names())
            raise UserError(f'Unknown block {name!r} in --configs.{hint} All: --configs')
        values = _apply(values, blocks()[name])
    for path in files:
        block = read_file(path)
        try:
            values = _apply(values, block)
        except UserError as e:
            raise UserError(f'In --config {path}: {e}') from e
        given += [block] if block.get('script') == 'eval_only' else []
        named |= {*block}
    values = unused.drop(_apply(values, flags), named)
    steps = blocks()['defaults'][evaluation.STEPS]
    return elements.Config(values | evaluation.limits(values, given, steps))


def with_block(config: elements.Config, name: str) -> elements.Config:
    """The config with a named block on top."""
    return elements.Config(_apply(config.flat, blocks()[name]))


def read_file(path: str | os.PathLike) -> dict[str, Any]:
    """A user's YAML file as flat keys: a mapping with the rules of a block of configs.yaml.

    The config.yaml of a run is such a file. Raises UserError naming the file.
    """
    from ruamel.yaml import YAML, YAMLError

    try:
        text = pathlib.Path(path).expanduser().read_text(encoding='utf-8')
        content = YAML(typ='safe').load(text)
    except OSError as e:
        block = f' For the block: --configs {path}' if str(path) in block_names() else ''
        raise UserError(f'Cannot read --config {path}: {e.strerror}.{block}') from e
    except (UnicodeDecodeError, YAMLError) as e:
        mark = getattr(e, 'problem_mark', None)
        where = f', line {mark.line + 1}' if mark else ''
        what = getattr(e, 'problem', None) or 'it is no UTF-8 text'
        raise UserError(f'--config {path}{where} is not valid YAML: {what}.') from e
    except RecursionError:
        raise UserError(f'--config {path} nests too deeply to be a configuration.') from None
    if not isinstance(content, Mapping):
        raise UserError(
            f'--config {path} must hold keys and values, such as `batch_size: 8`; found '
            f'{type(content).__name__}.'
        )
    return flatten(content)


def save(config: elements.Config) -> pathlib.Path:
    """Write logdir/config.yaml; an earlier one that differs is kept as config-STAMP.yaml."""
    path = pathlib.Path(config.logdir) / 'config.yaml'
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f'.config-{os.getpid()}.yaml')
        config.save(draft)
    except OSError as e:
        raise UserError(f'Cannot write to --logdir {config.logdir}: {e.strerror}.') from e
    if path.is_file() and path.read_bytes() != draft.read_bytes():
        path.rename(stamps.beside(path))
    draft.replace(path)
    return path


def parse_flags(argv: Sequence[str]) -> tuple[list[str], list[str], dict[str, list[str]]]:
    """Split arguments into names of --configs, paths of --config, and all other flags' values.

    Both `--flag value` and `--flag=value` work; a list takes several values or commas. The
    last of two equal flags wins, while several --configs and --config add up.
    """
    names: list[str] = []
    files: list[str] = []
    flags: dict[str, list[str]] = {}
    current = None
    for arg in argv:
        if arg.startswith('--'):
            name, equals, value = arg[2:].partition('=')
            if (adding := {'configs': names, 'config': files}.get(name)) is not None:
                current = adding
            else:
                flags.pop(name, None)  # so that the order among regular expressions is kept
                current = flags[name] = []
            current.extend([value] if equals else [])
        elif current is None:
            raise UserError(checks.stray(arg, block_names()))
        else:
            current.append(arg)
    if not files and '--config' in argv:
        raise UserError('--config needs the path of a YAML file. For blocks: --configs')
    return [x for name in names for x in name.split(',') if x], files, flags


@functools.cache
def blocks() -> dict[str, dict[str, Any]]:
    """All blocks of configs.yaml with flat dotted keys; `defaults` is among them."""
    from ruamel.yaml import YAML

    content = YAML(typ='safe').load(CONFIGS.read_text(encoding='utf-8'))
    return {name: flatten(block) for name, block in content.items()}


def block_names() -> list[str]:
    """The names that --configs accepts."""
    return [name for name in blocks() if name != 'defaults']


def flatten(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Join nested keys by dots; where one of them is a regular expression, by escaped dots."""
    result = {}
    for key, value in mapping.items():
        key = str(key)
        if isinstance(value, Mapping):
            for sub, leaf in flatten(value).items():
                escape = REGEX.search(key) or REGEX.search(sub)
                result[f'{key}\\.{sub}' if escape else f'{key}.{sub}'] = leaf
        else:
            result[key] = value
    return result


def _apply(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Overwrite the keys that each change names, converted to the type they have now."""
    result = dict(values)
    for name, value in changes.items():
        for key in _matches(name, result):
            result[key] = _convert(key, value, result[key])
    return result


def _matches(name: str, keys: Iterable[str]) -> list[str]:
    """The keys that a name or regular expression means; at least one."""
    if name in keys:
        return [name]
    if REGEX.search(name):
        try:
            found = [key for key in keys if re.fullmatch(name, key)]
        except re.error as e:
            raise UserError(
                f'Flag --{name} is not a valid regular expression ({e}); to set one key in '
                rf"several places, write for example --'.*\.units' 64."
            ) from e
        if found:
            return found
        end = re.split(r'\W+', name)[-1]
        hint = checks.nearest(end, {key.rpartition('.')[2] for key in _used(keys)})
        raise UserError(f'No key matches the regular expression of flag --{name}.{hint}')
    keys = _used(keys)
    inside = [key for key in keys if key.startswith(name + '.')]
    if inside:
        raise UserError(f'--{name} is a group; set one of its keys, such as --{inside[0]}.')
    leaf = name.rpartition('.')[2]
    same = [key for key in keys if key.rpartition('.')[2] == leaf][:4]
    hint = f' Nearest: --{", --".join(same)}.' if same else checks.nearest(name, keys, '--')
    raise UserError(f'Unknown flag --{name}.{hint} See --help.')


def _used(keys: Iterable[str]) -> list[str]:
    """The keys that a message may propose."""
    return [key for key in keys if key not in unused.defaults()]


def _convert(key: str, value: Any, default: Any) -> Any:
    """Give a value the type of its default."""
    if isinstance(default, (list, tuple)):
        items = _items(value)
        if not items:
            raise UserError(f'--{key} needs at least one value, such as {show(default)}.')
        return [_convert(key, x, default[0]) for x in items]
    if isinstance(value, (list, tuple)):
        if len(value) != 1:
            found = f'{len(value)}: {" ".join(map(str, value))}' if value else 'none'
            raise UserError(f'--{key} takes one value such as {show(default)}, found {found}.')
        value = value[0]
    parse, accepted = PARSERS[type(default)]
    result = parse(value)
    if result is None:
        raise UserError(f'--{key} takes {accepted}, found {value!r}.')
    return result


def _items(value: Any) -> list[Any]:
    """The entries of a list, of one of comma-separated strings, or of a single value."""
    if isinstance(value, str):
        return [x for x in value.strip('[]').split(',') if x]
    if isinstance(value, (list, tuple)):
        return [
            x for part in value for x in (_items(part) if isinstance(part, str) else [part])
        ]
    return [value]


def _parse_bool(value: Any) -> bool | None:
    return BOOLS.get(str(value).lower())


def _parse_int(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return int(value) if isinstance(value, str) else _whole(value)
    except (TypeError, ValueError):
        number = _parse_float(value)  # scientific notation, such as 1e6
        return None if number is None else _whole(number)


def _whole(number: float) -> int | None:
    return int(number) if float(number).is_integer() else None


def _parse_float(value: Any) -> float | None:
    try:
        number = None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
    return None if number != number else number


def _parse_str(value: Any) -> str | None:
    return value if isinstance(value, str) else None


PARSERS: dict[type, tuple[Any, str]] = {
    bool: (_parse_bool, 'true or false (also 1, 0, yes, no)'),
    int: (_parse_int, 'a whole number'),
    float: (_parse_float, 'a number'),
    str: (_parse_str, 'text'),
}


def show(value: Any) -> str:
    """A value as one would type it."""
    if isinstance(value, (list, tuple)):
        return ','.join(map(str, value))
    if isinstance(value, float):
        return f'{value:g}'
    return repr(value) if value == '' else str(value)
