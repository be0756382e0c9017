"""Names of the public reference implementation <-> names of this project, both ways.

Both name every array of a training state in a flat dict. The runtime never sees this file;
it serves whoever brings a checkpoint of the reference along, and the golden tests.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from embodied import UserError

# What the fields of the templates below stand for.
_FIELDS = {
    'i': r'\d+',
    'leaf': r'kernel|bias|scale|shift',
    'stack': r'dynin|dynhid|obs|prior',
    'plain': r'dyngru|obslogit|priorlogit',
    'net': r'rew|con|pol|val|dec',
    'norm': r'retnorm|valnorm|advnorm',
    'key': r'[^/].*',
    'out': r'logits?|pred|mean|stddev',
    'stat': r'\w+',
}

_MODULES = [
    ('enc/mlp/layers/{i}/linear/{leaf}', 'enc/mlp{i}/{leaf}'),
    ('enc/mlp/layers/{i}/norm/{leaf}', 'enc/mlp{i}norm/{leaf}'),
    ('enc/cnn/{i}/linear/{leaf}', 'enc/cnn{i}/{leaf}'),
    ('enc/cnn/{i}/norm/{leaf}', 'enc/cnn{i}norm/{leaf}'),
    ('dyn/{stack}/{i}/linear/{leaf}', 'dyn/{stack}{i}/{leaf}'),
    ('dyn/{stack}/{i}/norm/{leaf}', 'dyn/{stack}{i}norm/{leaf}'),
    ('dyn/{plain}/{leaf}', 'dyn/{plain}/{leaf}'),
    ('dec/space/sp0/{leaf}', 'dec/sp0/{leaf}'),
    ('dec/space/sp1/linear/{leaf}', 'dec/sp1/{leaf}'),
    ('dec/space/sp1/norm/{leaf}', 'dec/sp1norm/{leaf}'),
    ('dec/space/sp2/{leaf}', 'dec/sp2/{leaf}'),
    ('dec/space/spnorm/{leaf}', 'dec/spnorm/{leaf}'),
    ('dec/space/dense/{leaf}', 'dec/space/{leaf}'),
    ('dec/space/densenorm/{leaf}', 'dec/spacenorm/{leaf}'),
    ('dec/conv/{i}/linear/{leaf}', 'dec/conv{i}/{leaf}'),
    ('dec/conv/{i}/norm/{leaf}', 'dec/conv{i}norm/{leaf}'),
    ('dec/imgout/{leaf}', 'dec/imgout/{leaf}'),
    ('dec/vec/{key}/linears/{out}/{leaf}', 'dec/vec/{key}/{out}/{leaf}'),
    ('{net}/mlp/layers/{i}/linear/{leaf}', '{net}/mlp/linear{i}/{leaf}'),
    ('{net}/mlp/layers/{i}/norm/{leaf}', '{net}/mlp/norm{i}/{leaf}'),
    ('{net}/head/linears/{out}/{leaf}', '{net}/head/{out}/{leaf}'),
    ('{net}/head/{key}/linears/{out}/{leaf}', '{net}/head/{key}/{out}/{leaf}'),
    ('slowval/count', 'slowval_count/value'),
    ('{norm}/stats/{stat}', '{norm}/{stat}/value'),
    ('opt/step', 'opt/step/value'),
    ('opt/state/rms/count', 'opt/state/1/0'),
    ('opt/state/momentum/count', 'opt/state/2/0'),
]

# Prefixes whose rest is the name of a parameter.
_NESTED = [
    ('opt/state/rms/nu/', 'opt/state/1/1/', ''),
    ('opt/state/momentum/mu/', 'opt/state/2/1/', ''),
    ('slowval/copy/', 'slowval/', 'val/'),
]


def convert(data: dict[str, Any]) -> dict[str, Any]:
    """Turn what an agent of the reference saved into what ours loads.

    Raises UserError if it is something else.
    """
    try:
        params = {from_reference(name): value for name, value in data['params'].items()}
        return {'params': params, 'counters': dict(data['counters'])}
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f'The pickled agent is none of the reference implementation: {error!r} is unknown.'
        ) from error


def to_reference(name: str, decay: bool = False) -> str:
    """Name of the reference for one of ours; `decay` says whether agent.opt.wd is above 0.

    Raises KeyError for a name that is none of ours.
    """
    if name == 'opt/state/lr/count':
        return f'opt/state/{4 if decay else 3}/count'
    return _translate(name, 0, 1)


def from_reference(name: str) -> str:
    """Our name for one of the reference. Raises KeyError for an unknown one."""
    if re.fullmatch(r'opt/state/\d/count', name):
        return 'opt/state/lr/count'
    return _translate(name, 1, 0)


def _translate(name: str, source: int, target: int) -> str:
    for rule in _NESTED:
        rest = name.removeprefix(rule[source])
        if rest != name and name != 'slowval/count':
            module = rule[2]
            inner = _translate(module + rest, source, target)
            return rule[target] + inner.removeprefix(module)
    for rule in _MODULES:
        matched = re.fullmatch(_pattern(rule[source]), name)
        if matched:
            return rule[target].format(**matched.groupdict())
    raise KeyError(name)


def _pattern(template: str) -> str:
    return re.sub(r'\{(\w+)\}', lambda m: f'(?P<{m[1]}>{_FIELDS[m[1]]})', template)


def convert_chunk(
    arrays: Mapping[str, np.ndarray], compute_dtype: str
) -> dict[str, np.ndarray]:
    """Give latents in the arrays of a replay chunk the form that our agent stores.

    One-hot dyn/stoch (…, stoch, classes) of float32 becomes indices; dyn/deter becomes the
    compute dtype, bfloat16 as its 16-bit pattern. Other arrays, and latents that are in that
    form, are returned as they are, and so is dyn/deter with auto.
    """
    arrays = dict(arrays)
    stoch, deter = arrays.get('dyn/stoch'), arrays.get('dyn/deter')
    if stoch is not None and stoch.dtype.kind == 'f':
        index = np.uint8 if stoch.shape[-1] <= 256 else np.int32
        arrays['dyn/stoch'] = stoch.argmax(-1).astype(index)
    if deter is not None and compute_dtype != 'auto':
        import ml_dtypes  # comes with JAX, which interpreters of environments lack

        wanted = np.dtype(getattr(ml_dtypes, compute_dtype, None) or compute_dtype)
        stored = np.dtype(np.uint16) if wanted == ml_dtypes.bfloat16 else wanted
        if deter.dtype != stored:
            values = deter.view(ml_dtypes.bfloat16) if deter.dtype == np.uint16 else deter
            arrays['dyn/deter'] = values.astype(wanted).view(stored)
    return arrays
