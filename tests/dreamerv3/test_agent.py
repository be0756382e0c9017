"""The agent on devices: sizes, compiled steps, determinism, checkpoints, several devices."""

import concurrent.futures
import json
import subprocess
import sys
from concurrent.futures import Future

import elements
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import embodied
from dreamerv3 import latents
from dreamerv3.agent import Agent, Dreamer
from embodied.core.errors import NotFinite
from embodied.jax.runtime import compiler, names
from tests.jax.hostile import hostile

from . import golden

SMALL = {
    'batch_size': 12, 'batch_length': 4, 'report_length': 4,
    r'.*\.bins': 9, r'.*\.layers': 1, r'.*\.units': 8, 'agent.imag_length': 3,
    'agent.dyn.rssm': {'deter': 8, 'hidden': 4, 'stoch': 2, 'classes': 4, 'blocks': 4},
    'agent.opt.warmup': 0, 'agent.opt.lr': 1e-3, 'jax.debug': True,
}  # fmt: skip
OBS, ACT = golden.spaces('vector_cont')


def make_agent(**flags):
    return Agent(OBS, ACT, golden.agent_config({**SMALL, **flags}))


def make_batch(agent, seed=0, batch=12, length=5):
    """A batch as the replay would give it."""
    rng = np.random.default_rng(seed)
    data = {
        key: embodied.spaces.sample(elements.Space(space.dtype, (batch, length, *space.shape),
                                                   *_bounds(space)), rng)
        for key, space in agent.spaces.items()
    }  # fmt: skip
    data['consec'][:] = 0
    data['dyn/deter'][:] = 0  # random bits need not be a finite number
    data['is_first'][:] = rng.random((batch, length)) < 0.1
    data['is_last'][:] = data['is_terminal'][:] = False
    return data


def _bounds(space):
    if space.discrete or np.isfinite(space.low).all():
        return int(np.min(space.low)), int(np.max(space.high))
    return ()


def arrays(jaxpr):
    """Shapes of all values of a traced function and of those inside of it."""
    yield from map(np.shape, getattr(jaxpr, 'consts', ()))
    inner = getattr(jaxpr, 'jaxpr', jaxpr)
    for eqn in inner.eqns:
        yield from (x.aval.shape for x in (*eqn.invars, *eqn.outvars))
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=_traced):
            if _traced(value):
                yield from arrays(value)


def _traced(value):
    return hasattr(value, 'eqns') or hasattr(getattr(value, 'jaxpr', None), 'eqns')


def test_thousands_of_actions_take_no_matrix_of_classes():
    many = {'action': elements.Space(np.int32, (), 0, 20000)}
    agent = Agent(OBS, many, golden.agent_config({**SMALL, 'batch_size': 2}))
    model, spec = agent.model, jax.ShapeDtypeStruct
    key = jax.eval_shape(lambda: jax.random.key(0))
    value = lambda lead, spaces: {
        k: spec((*lead, *s.shape), s.dtype) for k, s in spaces.items()
    }
    carry = jax.eval_shape(lambda: model.init_policy(2))
    steps = (
        (model.policy, agent.view_template, value((2,), OBS)),
        (model.train, agent.template, value((2, 5), agent.spaces)),
    )
    for step, state, data in steps:
        shapes = set(arrays(jax.make_jaxpr(step)(state, carry, data, key)))
        largest = max(shapes, key=np.prod)
        assert any(20000 in shape for shape in shapes)
        assert np.prod(largest) < 100 * 20000, largest


@pytest.fixture(scope='module')
def agent():
    return make_agent()


@pytest.fixture(scope='module')
def trained():
    """An agent after three updates, its carry, and the metrics of each."""
    agent = make_agent()
    carry, metrics = agent.init_train(12), []
    for i in range(3):
        carry, out, mets = agent.train(carry, make_batch(agent, i))
        metrics.append(mets)
    return agent, carry, out, metrics


def test_parameter_counts_of_all_sizes():
    recorded = json.loads((golden.FOLDER / 'param_counts.json').read_text())
    assert len(recorded) == 14
    kinds = {'crafter-like': 'image_disc', 'proprio-like': 'vector_cont'}
    for row, counts in recorded.items():
        kind, size = row.split('/')
        dreamer = Dreamer(*golden.spaces(kinds[kind]), golden.agent_config({}, [size]))
        model = jax.eval_shape(dreamer.init, jax.random.key(0)).model
        found = dict.fromkeys(counts, 0)
        for name, array in names.flatten(model).items():
            found[name.split('/')[0]] += array.size
            found['total'] += array.size
        assert found == counts, row


@pytest.mark.parametrize('dtype', [jnp.bfloat16, jnp.float16, jnp.float32])
def test_latents_survive_storage_without_loss(dtype):
    store = latents.Latents(5, 3, 4, dtype)
    deter = jax.random.normal(jax.random.key(0), (2, 7, 5)).astype(dtype)
    deter = deter.at[0, 0, 0].set(jnp.finfo(dtype).max).at[0, 0, 1].set(-0.0)
    stoch = jax.nn.one_hot(
        jax.random.randint(jax.random.key(1), (2, 7, 3), 0, 4), 4, dtype=dtype
    )
    stored = jax.device_get(store.encode({'deter': deter, 'stoch': stoch}))
    for key, space in store.spaces.items():
        embodied.spaces.check(
            key, elements.Space(space.dtype, (2, 7, *space.shape)), stored[key]
        )
    assert stored['dyn/stoch'].dtype == np.uint8
    assert stored['dyn/deter'].itemsize == jnp.dtype(dtype).itemsize
    back = store.decode({k: jnp.asarray(v) for k, v in stored.items()})
    np.testing.assert_array_equal(back['deter'], deter)
    np.testing.assert_array_equal(back['stoch'], stoch)
    assert back['deter'].dtype == back['stoch'].dtype == dtype


def test_policy_gives_actions_and_latents_in_their_spaces(agent):
    rng = np.random.default_rng(0)
    obs = {
        k: np.stack([embodied.spaces.sample(s, rng) for _ in range(3)]) for k, s in OBS.items()
    }
    carry, act, out = agent.policy(agent.init_policy(3), obs)
    assert act.keys() == ACT.keys()
    assert act['action'].shape == (3, 4)
    assert act['action'].dtype == np.float32
    spaces = agent.model.latents.spaces
    assert out.keys() == spaces.keys()
    for key, space in spaces.items():
        for row in out[key]:
            embodied.spaces.check(key, space, row)
    again, act2, _ = agent.policy(carry, {**obs, 'is_first': np.zeros(3, bool)})
    assert (act['action'] != act2['action']).any()
    assert jax.tree.structure(again) == jax.tree.structure(carry)


def rows_of(tree, ids):
    return jax.tree.map(lambda x: x[ids], tree)


def put(tree, ids, rows):
    jax.tree.map(lambda x, y: x.__setitem__(ids, y), tree, rows)


def same(found, wanted):
    """Of two programs: floats up to rounding, all else exactly."""
    float_ = np.asarray(wanted).dtype.kind == 'f'
    np.testing.assert_allclose(found, wanted, rtol=1e-5 * float_, atol=1e-6 * float_)


def test_a_table_of_states_acts_as_carries_do():
    agent, other = make_agent(), make_agent()  # each counts its own draws
    table = agent.init_table(5)
    carries = jax.tree.map(np.array, other.init_policy(5))
    rng = np.random.default_rng(0)
    for rows in ([3, 0], [1, 3], [3, 0]):
        ids = np.array(rows)
        obs = {**make_obs(2), 'is_first': rng.random(2) < 0.3}
        table, *found = agent.policy_ids(table, ids, obs)
        carry, *wanted = other.policy(rows_of(carries, ids), obs)
        put(carries, ids, carry)
        jax.tree.map(same, found, wanted)
        jax.tree.map(same, table, carries)
    assert np.any(carries['deter'][3])
    assert not np.any(carries['deter'][[2, 4]])


def test_an_observation_that_is_not_finite_is_named():
    agent = make_agent()
    obs = make_obs(2)
    obs['position'][1, 2] = np.nan
    with pytest.raises(NotFinite, match="'token'"):
        agent.policy(agent.init_policy(2), obs)


def test_an_action_may_have_the_name_of_what_is_checked_to_be_finite():
    acts = {'token': elements.Space(np.int32, (), 0, 3)}
    model = Dreamer(OBS, acts, golden.agent_config(SMALL))
    view = model.policy_view(model.init(jax.random.key(0)))
    obs = {k: v[:1] for k, v in make_obs(2).items()}
    obs['position'][0, 1] = np.nan
    obs = jax.tree.map(jnp.asarray, obs)
    *_, finite = model.policy(view, model.init_policy(1), obs, jax.random.key(1))
    assert finite.tolist()[0::3] == [False, True]  # the token, and the action


@pytest.mark.parametrize('key', ['dyn/deter', 'dyn/stoch', 'stepid', 'rew', 'value', 'rep'])
@pytest.mark.parametrize('context', [0, 1])
def test_names_of_latents_and_losses_are_refused(key, context):
    config = golden.agent_config({**SMALL, 'replay_context': context})
    with pytest.raises(embodied.UserError, match=rf"uses \['{key}'\] for an"):
        Dreamer({**OBS, key: elements.Space(np.float32)}, ACT, config)


def test_training_changes_every_part_and_gives_finite_metrics(trained):
    agent, _, out, metrics = trained
    start = make_agent().state
    for name in ('enc', 'dyn', 'dec', 'rew', 'con', 'pol', 'val', 'slowval', 'retnorm', 'opt'):
        keys = [k for k in start if k.startswith(name)]
        assert keys
        assert any((np.asarray(start[k]) != np.asarray(agent.state[k])).any() for k in keys), (
            name
        )
    for key, value in metrics[-1].items():
        assert np.isfinite(value).all(), key
    assert {'loss/policy', 'loss/value', 'loss/repval', 'opt/updates'} <= set(metrics[-1])
    assert [int(m['opt/updates']) for m in metrics] == [1, 2, 3]
    assert out['replay']['stepid'].shape == (12, 4, 20)
    assert out['replay']['dyn/stoch'].shape == (12, 4, 2)
    assert agent.counters['updates'] == 3


def test_the_policy_follows_the_learner(trained):
    agent = trained[0]
    for name in agent.view_names:
        np.testing.assert_array_equal(agent.view[name], agent.state[name])


def test_same_seed_same_run_and_another_seed_another(trained):
    _, _, _, metrics = trained
    for seed, same in ((0, True), (1, False)):
        other = make_agent(seed=seed)
        _, _, found = other.train(other.init_train(12), make_batch(other, 0))
        assert (found['loss/policy'] == metrics[0]['loss/policy']) == same


def test_settings_of_jax_in_a_shell_change_nothing(trained):
    """All at once; test_shell.py has each of them alone, from the command line."""
    expected, _, _, metrics = trained
    with hostile():
        agent = make_agent()
        agent.policy(agent.init_policy(3), make_obs(3))
        carry = agent.init_train(12)
        for i in range(3):
            carry, _, found = agent.train(carry, make_batch(agent, i))
            for key, value in found.items():
                np.testing.assert_array_equal(value, metrics[i][key], err_msg=key)
        saved = agent.save()
        agent.load(saved)
        assert jax.config.jax_enable_x64
    assert {x.dtype.name for x in saved['params'].values()} <= {'float32', 'int32', 'uint32'}
    for key, value in expected.save()['params'].items():
        np.testing.assert_array_equal(saved['params'][key], value, err_msg=key)


def test_a_report_changes_nothing_in_training(trained):
    _, _, _, metrics = trained
    agent = make_agent()
    carry = agent.init_train(12)
    for i in range(2):
        _, found = agent.report(agent.init_report(12), make_batch(agent, 50 + i))
        assert np.isfinite(found['loss/dyn'])
        carry, _, mets = agent.train(carry, make_batch(agent, i))
        assert mets.keys() == metrics[i].keys()
        for key, value in mets.items():
            np.testing.assert_array_equal(value, metrics[i][key], err_msg=key)


@pytest.mark.parametrize('remat', [False, True])
def test_heads_that_see_all_imagined_steps_at_once_give_the_same_update(trained, remat):
    """As on accelerators, with and without computing them again in the backward pass."""
    _, _, _, expected = trained
    agent = make_agent(**{'jax.remat': remat})
    agent.model.stepwise = False
    carry, batch = agent.init_train(12), make_batch(agent, 0)
    traced = jax.make_jaxpr(agent._train)(agent.state, carry, batch, agent._seeds(0, 'train'))
    again = str(traced).count('checkpoint[') + str(traced).count('remat')
    assert again == (1 if remat else 0)  # in the backward pass: actor and critic
    _, _, metrics = agent.train(carry, batch)
    assert metrics.keys() == expected[0].keys()
    for key, value in metrics.items():
        np.testing.assert_allclose(value, expected[0][key], rtol=1e-4, atol=1e-6, err_msg=key)


def test_report_of_gradient_norms():
    agent = make_agent(**{'agent.report_gradnorms': True})
    _, metrics = agent.report(agent.init_report(12), make_batch(agent))
    norms = {k: v for k, v in metrics.items() if k.startswith('gradnorm/')}
    assert norms.keys() == {f'gradnorm/{k}' for k in agent.model.scales}
    assert all(np.isfinite(v) for v in norms.values())
    assert all(norms[f'gradnorm/{k}'] > 0 for k in ('position', 'con', 'policy', 'value'))


def test_report_can_be_turned_off():
    agent = make_agent(**{'agent.report': False})
    _, metrics = agent.report(agent.init_report(12), make_batch(agent))
    assert metrics == {}


def test_an_overflow_changes_nothing_but_the_scale():
    agent = make_agent(**{'jax.compute_dtype': 'float16'})
    scale = 'opt/scaling/scale'
    agent.state[scale] = jnp.full_like(agent.state[scale], 1e38)
    before = agent.save()['params']
    _, _, metrics = agent.train(agent.init_train(12), make_batch(agent))
    after = agent.save()['params']
    assert metrics['opt/grad_overflow'] == 1
    changed = {k for k in before if (before[k] != after[k]).any()}
    assert changed == {scale}


def test_evaluation_changes_nothing_in_the_draws_of_training(agent):
    obs, counters = make_obs(3), dict(agent.counters)
    first = agent.policy(agent.init_policy(3), obs, mode='train')[1]['action']
    agent.counters.update(counters)
    other = agent.policy(agent.init_policy(3), obs, mode='eval')[1]['action']
    again = agent.policy(agent.init_policy(3), obs, mode='train')[1]['action']
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize('flags', [{'agent.imag_last': 1}, {'agent.imag_last': 99}])
def test_any_number_of_starts_gives_finite_losses(flags):
    agent = make_agent(**flags)
    _, _, metrics = agent.train(agent.init_train(12), make_batch(agent))
    assert all(np.isfinite(v).all() for v in metrics.values())
    assert ('loss/repval' in metrics) == (flags['agent.imag_last'] > 1)


def test_actions_that_do_not_count_from_zero_are_refused():
    act = {'move': elements.Space(np.int32, (), 1, 4)}
    with pytest.raises(embodied.UserError, match="'move' begins at 1"):
        Agent(OBS, act, golden.agent_config(SMALL))


def test_the_start_says_what_was_built(agent):
    text = agent.describe()
    for words in ('policy on 1 x cpu', 'float32', 'height, position, velocity', 'action'):
        assert words in text
    counts = agent.param_counts()
    assert list(counts) == ['enc', 'dyn', 'dec', 'rew', 'con', 'pol', 'val']
    for name, count in counts.items():
        assert f'{name} {count:,}' in text
    assert f'parameters: {sum(counts.values()):,}' in text


def test_load_restores_everything_and_training_goes_on_alike(trained):
    agent = make_agent()
    carry = agent.init_train(12)
    for i in range(2):
        carry, _, _ = agent.train(carry, make_batch(agent, i))
    saved = agent.save()
    other = make_agent(seed=0)
    other.load(saved)
    assert other.counters == agent.counters
    for key, value in saved['params'].items():
        np.testing.assert_array_equal(other.save()['params'][key], value, err_msg=key)
    _, _, mine = other.train(carry, make_batch(other, 2))
    np.testing.assert_array_equal(mine['opt/loss'], trained[3][2]['opt/loss'])
    # What was saved does not change with further training.
    copies = {k: np.array(v) for k, v in saved['params'].items()}
    agent.train(agent.init_train(12), make_batch(agent, 3))
    assert all((saved['params'][k] == copies[k]).all() for k in copies)


def test_load_of_a_subset_and_of_what_does_not_fit(trained, capsys):
    saved = trained[0].save()
    agent = make_agent(seed=3)
    before = dict(agent.save()['params'])
    capsys.readouterr()
    agent.load({**saved, 'params': {**saved['params'], 'enc/old': 1}}, regex='enc/.*')
    matched, new, dropped = capsys.readouterr().out.splitlines()
    count = sum(k.startswith('enc/') for k in before)
    assert matched.startswith(f"  matched 'enc/.*': {count} (enc/")
    assert new.startswith(f'  new, as initialised: {len(before) - count} (')
    assert dropped.startswith(f'  dropped from the file: {len(before) - count + 1} (')
    for key, value in agent.save()['params'].items():
        source = saved['params'] if key.startswith('enc/') else before
        np.testing.assert_array_equal(value, source[key], err_msg=key)
    assert agent.counters['updates'] == 0
    wide = make_agent(**{'agent.policy.units': 12})
    with pytest.raises(embodied.UserError, match=r'pol/mlp/layers/0/linear/kernel: \(16, 8\)'):
        wide.load(saved)
    assert wide.save()['params'].keys() == saved['params'].keys()
    with pytest.raises(embodied.UserError, match='Broken regular expression'):
        agent.load(saved, regex='(')
    with pytest.raises(embodied.UserError, match=r'No parameter matches .*regex .*encoder'):
        agent.load(saved, regex='encoder/.*')


def test_two_devices_compute_the_same_update(trained):
    _, _, _, metrics = trained
    agent = make_agent(**{'jax.train_devices': [0, 1], 'jax.policy_devices': [1]})
    assert agent.train_mesh.devices.size == 2
    _, _, mets = agent.train(agent.init_train(12), make_batch(agent, 0))
    single = make_agent()
    single.train(single.init_train(12), make_batch(single, 0))
    assert largest_difference(agent, single) <= 1e-5
    np.testing.assert_allclose(mets['opt/loss'], metrics[0]['opt/loss'], rtol=1e-5)
    carry, act, _ = agent.policy(agent.init_policy(4), make_obs(4))
    assert act['action'].shape == (4, 4)
    (device,) = carry['deter'].sharding.device_set
    assert device.id == 1


MULTICPU = """
from embodied.jax.runtime.setup import setup
from tests.dreamerv3 import golden, test_agent as T
flags = {**T.SMALL, 'jax.compute_dtype': 'float32', 'jax.platform': 'cpu'}
config = golden.agent_config(flags, ['multicpu'])
setup(config.jax)
agent = T.Agent(T.OBS, T.ACT, config)
agent.train(agent.init_train(12), T.make_batch(agent, 0))
single = T.make_agent()
single.train(single.init_train(12), T.make_batch(single, 0))
assert T.largest_difference(agent, single) <= 1e-5
kernel = agent.state['enc/mlp/layers/0/linear/kernel']
assert {d.id for d in kernel.sharding.device_set} == {2, 3, 4, 5, 6, 7}
carry, act, _ = agent.policy(agent.init_policy(4), T.make_obs(4))
assert {d.id for d in carry['deter'].sharding.device_set} == {0, 1}
carry, act, _ = agent.policy(agent.init_policy(3), T.make_obs(3))
print('equal')
"""


def test_the_multicpu_block_computes_the_same_update_on_eight_devices():
    run = subprocess.run([sys.executable, '-c', MULTICPU], capture_output=True, text=True)
    assert run.stdout.splitlines()[-1:] == ['equal'], run.stderr


@pytest.fixture
def without_jax_cache():
    """Steps that JAX takes from its own cache are not kept."""
    cache = jax.experimental.compilation_cache.compilation_cache
    for enabled in (False, True):
        jax.config.update('jax_enable_compilation_cache', enabled)
        cache.reset_cache()
        if not enabled:
            yield


def test_kept_steps_compute_the_same_bits_on_two_devices(
    tmp_path, without_jax_cache, monkeypatch
):
    flags = {
        'jax.compilation_cache': str(tmp_path), 'jax.train_devices': [0, 1],
        'jax.policy_devices': [0, 1],
    }  # fmt: skip
    first = results(make_agent(**flags))
    kept = sorted(path.name.split('-')[0] for path in (tmp_path / 'steps').iterdir())
    assert kept == ['init', 'policy', 'train']
    monkeypatch.setattr(Dreamer, 'train', None)  # neither is traced again
    monkeypatch.setattr(Dreamer, 'policy', None)
    second = results(make_agent(**flags))
    jax.tree.map(np.testing.assert_array_equal, first, second)


def results(agent):
    """All that several steps put out."""
    carry, training = agent.init_policy(4), agent.init_train(12)
    found = [jax.device_get(agent.state)]
    for i in range(3):
        training, *outs = agent.train(training, make_batch(agent, i))
        carry, *acts = agent.policy(carry, make_obs(4))
        found += jax.device_get([training, outs, carry, acts])
    return [*found, jax.device_get(agent.state)]


def largest_difference(agent, other):
    """Between the states of two agents, relative to the largest entry of each array."""
    return max(
        np.abs(np.asarray(agent.state[k]) - np.asarray(v)).max() / max(np.abs(v).max(), 1e-8)
        for k, v in other.state.items()
    )


def make_obs(batch):
    return {k: np.zeros((batch, *s.shape), s.dtype) for k, s in OBS.items()}


def test_a_device_without_memory_is_explained(trained):
    agent = trained[0]
    step, full = agent._begun['train', 12, 5], Future()

    def fail(*args):
        raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: out of memory')

    full.set_result(fail)
    agent._begun['train', 12, 5] = full
    try:
        with pytest.raises(embodied.UserError, match='--batch_size 1'):
            agent.train(agent.init_train(12), make_batch(agent))
    finally:
        agent._begun['train', 12, 5] = step


def test_it_acts_while_the_update_compiles(monkeypatch):
    begin, held = compiler.begin, Future()
    monkeypatch.setattr(
        compiler, 'begin', lambda *args, name='', **kwargs: (
            held if name == 'train' else begin(*args, name=name, **kwargs)
        )
    )  # fmt: skip
    agent = make_agent()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        begun = pool.submit(agent.init_train, 12)
        try:
            carry, batch = begun.result(timeout=60), make_batch(agent)
            agent.policy(agent.init_policy(3), make_obs(3))
            assert not agent.ready()
            learned = pool.submit(agent.train, carry, batch)
            assert concurrent.futures.wait([learned], timeout=0.2).not_done
        finally:
            held.set_result(lambda *args: (*args[:2], {}, {'done': 1}))
        assert learned.result(timeout=60)[2] == {'done': 1}
        assert agent.ready()


def test_what_fails_to_compile_is_tried_again(monkeypatch):
    begin = compiler.begin

    def fail(*args, name='', **kwargs):
        failed = Future()
        failed.set_exception(jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: no'))
        return failed if name == 'train' else begin(*args, name=name, **kwargs)

    agent = make_agent()
    batch = make_batch(agent)
    with monkeypatch.context() as patch:
        patch.setattr(compiler, 'begin', fail)
        carry = agent.init_train(12)
        with pytest.raises(embodied.UserError, match='--batch_size 1'):
            agent.train(carry, batch)
    assert np.isfinite(agent.train(carry, batch)[2]['opt/loss'])


def test_an_agent_that_is_loaded_makes_no_first_state(trained, monkeypatch):
    agent = make_agent(seed=7)
    agent.load(trained[0].save())
    monkeypatch.setattr(agent, '_build_init', None)
    agent.policy(agent.init_policy(3), make_obs(3))
    assert np.isfinite(agent.train(agent.init_train(12), make_batch(agent))[2]['opt/loss'])


def test_every_call_has_a_key_of_its_own():
    found = set()
    for seed in (0, 1, -1, 5, 5 + 2**32, 2**70):
        agent = make_agent(seed=seed)
        for purpose in ('init', 'policy', 'train', 'report', 'eval'):
            keys = {tuple(agent._seeds(count, purpose)) for count in (0, 1, 2, 2**32, 2**33)}
            found |= keys
    assert len(found) == 6 * 5 * 5 - 5 * 5  # 2**70 is 0 to it


def test_a_process_that_only_learns_has_no_policy():
    agent = make_agent(**{'jax.enable_policy': False})
    assert agent.view == {}
    with pytest.raises(embodied.UserError, match='enable_policy'):
        agent.init_policy(1)
    with pytest.raises(embodied.UserError, match='enable_policy'):
        agent.init_table(1)
    _, _, metrics = agent.train(agent.init_train(12), make_batch(agent))
    assert metrics['opt/updates'] == 1


@pytest.mark.parametrize(
    ('flags', 'words'),
    [
        ({r'.*\.act': 'silly'}, "Unknown activation 'silly'"),
        ({r'.*\.norm': 'batch'}, "Unknown norm 'batch'"),
        ({r'.*\.winit': 'xavier'}, "Unknown initialiser 'xavier'"),
        ({'agent.rewhead.output': 'wrong'}, "Unknown output 'wrong'"),
        ({'agent.policy_dist_cont': 'onehot'}, 'bounded_normal or normal_logstd'),
        ({'agent.dyn.rssm.blocks': 3}, 'rssm.blocks'),
        ({'agent.dyn.rssm.dynlayers': 0}, 'dynlayers'),
    ],
)
def test_settings_that_make_no_network_are_refused(flags, words):
    with pytest.raises(embodied.UserError, match=words):
        make_agent(**flags)


@pytest.mark.parametrize('key', ['con', 'stepid', 'action', 'dyn/deter'])
def test_observations_that_hide_something_are_refused(key):
    config = golden.agent_config(SMALL)
    with pytest.raises(embodied.UserError, match=key):
        Dreamer({**OBS, key: elements.Space(np.float32)}, ACT, config)


def test_devices_and_meshes_that_do_not_fit_are_refused():
    for flags, message in (
        ({'jax.train_devices': [99]}, 'Device indices'),
        ({'jax.train_mesh': '3,1,1'}, 'Mesh'),
        ({'jax.train_devices': [0, 1], 'batch_size': 3}, 'does not divide'),
        ({'jax.train_devices': [0, 1], 'jax.train_mesh': '1,2,1'}, '2 parts along fsdp.*train'),
        ({'jax.train_devices': [0, 1], 'jax.train_mesh': '1,1,-1'}, 'parts along tensor'),
        ({'jax.policy_devices': [0, 1], 'jax.policy_mesh': '1,-1,1'}, 'fsdp.*jax.policy_mesh'),
    ):
        with pytest.raises(embodied.UserError, match=message):
            make_agent(**flags)


@pytest.mark.parametrize('dtype', ['bfloat16', 'float16'])
def test_low_precision_trains(dtype):
    agent = make_agent(**{'jax.compute_dtype': dtype})
    carry = agent.init_train(12)
    for i in range(2):
        carry, out, metrics = agent.train(carry, make_batch(agent, i))
    assert np.isfinite(metrics['opt/loss'])
    expected = np.uint16 if dtype == 'bfloat16' else np.float16
    assert out['replay']['dyn/deter'].dtype == expected
    assert ('opt/grad_scale' in metrics) == (dtype == 'float16')
    assert all(v.dtype != jnp.bfloat16 for v in agent.state.values())


@pytest.mark.parametrize('act', ['swiglu', 'mish'])
@pytest.mark.parametrize('flags', [{}, {'agent.dec.simple.bspace': 0}], ids=['blocks', 'dense'])
def test_any_activation_fits_every_layer(act, flags):
    obs = {**OBS, 'image': elements.Space(np.uint8, (16, 16, 3))}
    config = golden.agent_config({
        **SMALL, r'.*\.depth': 4, r'.*\.mults': [2, 4], 'agent.dec.simple.bspace': 4,
        **flags, r'.*\.act': act,
    })  # fmt: skip
    model = Dreamer(obs, ACT, config)

    def update(data):
        state = model.init(jax.random.key(0))
        return model.train(state, model.init_train(2), data, jax.random.key(1))[3]

    spaces = {**obs, **ACT, **model.ext_space}
    shape = lambda space: jax.ShapeDtypeStruct((2, 5, *space.shape), space.dtype)
    metrics = jax.eval_shape(update, {k: shape(space) for k, space in spaces.items()})
    assert all(x.shape == () for x in jax.tree.leaves(metrics))
