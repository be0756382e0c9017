"""The replay server: what it takes and refuses, its limiter, and its end."""

import shutil
import threading

import elements
import numpy as np
import portal
import pytest

from embodied.core import rpc
from embodied.core.errors import UserError
from embodied.core.rpc import client
from embodied.replay import journal
from embodied.run.parallel import replay as server
from tests.doubles import CounterEnv
from tests.run.harness import ARGS, Run
from tests.run.parallel import parts

LIMIT = 30  # seconds until a test gives up


@pytest.fixture
def make(tmp_path):
    """Returns a function that makes a service."""
    made = []

    def make(**flags):
        flags = {'logdir': str(tmp_path), 'train_ratio': -1.0, 'eval_envs': 1, **flags}
        args = elements.Config({**ARGS, **parts.PARALLEL, **flags})
        replays = [
            lambda: parts.make_replay(args),
            lambda: parts.make_replay(args, 'replay_eval', 'eval'),
        ]
        stream = lambda replay, mode: parts.make_stream(args, replay, mode)
        made.append(server.Service(*replays, stream, args))
        return made[-1]

    yield make
    for service in made:
        service.close()


class Reply:
    """Waits for the answer to one add_batch, and raises what it is told."""

    def __init__(self, ident=None):
        self.ident = ident
        self._came, self._error = threading.Event(), None

    def __call__(self, value):
        assert value == {}
        self._came.set()

    def error(self, error):
        self._error = error
        self._came.set()

    def wait(self):
        assert self._came.wait(LIMIT)
        if self._error:
            raise self._error

    @property
    def done(self):
        return self._came.is_set()


def add(service, data, ident=None):
    reply = Reply(ident)
    service.add_batch(reply, data)
    reply.wait()


def transitions(envids, is_eval=None, step=0):
    """One step of each env."""
    n = len(envids)
    return {
        'envid': np.array(envids, np.int32),
        'is_eval': np.zeros(n, bool) if is_eval is None else np.array(is_eval),
        'step': np.full(n, step, np.int32),
        'env': np.array(envids, np.int32),
        'reward': np.zeros(n, np.float32),
        'is_first': np.full(n, step == 0),
        'is_last': np.zeros(n, bool),
        'is_terminal': np.zeros(n, bool),
    }


def test_rows_of_training_and_evaluation_go_to_their_replays(make):
    service = make()
    for step in range(12):
        add(service, transitions([0, 1, 3], [False, False, True], step))
    assert len(service.train) == 2 * 8  # 12 steps hold 8 sequences of 5
    assert len(service.eval) == 10
    batch = service.sample_train()
    assert set(batch['env'].ravel()) <= {0, 1}
    assert (np.diff(batch['step'], axis=1) == 1).all()
    assert set(service.sample_eval()['env'].ravel()) == {3}


@pytest.mark.parametrize(
    ('change', 'text'),
    [
        ({'is_eval': np.zeros(2, np.int32)}, "'is_eval' of kind b, not int32"),
        ({'envid': np.zeros(2, np.float32)}, "'envid' of kind iu, not float32"),
        ({'envid': None}, "needs an array 'envid'"),
        ({'reward': np.zeros(3, np.float32)}, r"other sizes of \['reward'\]"),
        ({'is_eval': np.zeros(1, bool)}, r"other sizes of \['is_eval'\]"),
        ({'reward': np.zeros(2, np.float64)}, 'reward'),
    ],
)
def test_what_is_not_right_is_refused_and_changes_nothing(make, change, text):
    service = make()
    add(service, transitions([0, 1]))
    with pytest.raises(UserError, match=text):
        add(service, {**transitions([0, 1], step=1), **change})
    for step in range(1, 5):
        add(service, transitions([0, 1], step=step))
    assert service.train.sample(2)['step'].tolist() == [[0, 1, 2, 3, 4]] * 2
    with pytest.raises(UserError, match="'stepid' of kind u, not float32"):
        service.update({'stepid': np.zeros((2, 5, 20), np.float32)})


def test_the_end_wakes_all_who_wait(make):
    service = make(train_ratio=1.0)
    ended = []

    def wait(fn):
        with pytest.raises(rpc.Unanswered):
            fn()
        ended.append(fn)

    threads = [
        threading.Thread(target=wait, args=(fn,))
        for fn in (service.sample_train, service.sample_report, service.sample_eval)
    ]
    for thread in threads:
        thread.start()
    service.close()
    for thread in threads:
        thread.join(LIMIT)
    assert len(ended) == 3


def test_inserts_wait_for_the_limiter_until_a_run_ends(make):
    service = make(train_ratio=0.5)
    done = threading.Event()

    def insert():
        for step in range(400):
            add(service, transitions([0], step=step))
        done.set()

    thread = threading.Thread(target=insert)
    thread.start()
    while service.limiter.want_insert():
        pass
    before = service.limiter.size
    assert not done.is_set()
    assert service.drain() == {}
    assert done.wait(LIMIT)
    thread.join()
    assert service.limiter.size == 400 > before


def test_evaluation_does_not_wait_for_the_limiter(make):
    service = make(train_ratio=0.5)
    for step in range(200):
        reply = Reply()
        service.add_batch(reply, transitions([0], step=step))
    mixed, alone = Reply(), Reply()
    service.add_batch(mixed, transitions([0, 3], [False, True], 200))
    service.add_batch(alone, transitions([3], [True], 201))
    assert alone.done
    assert not mixed.done
    for step in range(202, 205):
        add(service, transitions([3], [True], step))
    assert service.sample_eval()['step'].min() >= 200
    service.drain()
    mixed.wait()


@pytest.mark.parametrize('ratio', [1.0, 32.0])
def test_the_ratio_is_exact_from_the_first_sample_on(make, ratio):
    """Within 5 % of train_ratio: replayed steps by env steps, those of evaluation apart."""
    service, total = make(train_ratio=ratio), 6000 if ratio < 10 else 1500
    first = []

    def insert():
        for step in range(total):
            add(service, transitions([0, 1, 3], [False, False, True], step))

    def sample():
        while True:
            try:
                service.sample_train()
            except rpc.Unanswered:
                return
            first.append(service.limiter.size)

    threads = [threading.Thread(target=x) for x in (insert, sample)]
    for thread in threads:
        thread.start()
    threads[0].join(LIMIT)
    service.close()
    threads[1].join(LIMIT)
    replayed = 2 * 4 * len(first)  # batch_size, batch_length
    assert replayed / (2 * total - first[0]) == pytest.approx(ratio, rel=0.05)


def steps_of_batches(service, envs, count):
    """The env steps, of all envs together, after which each of the first batches is given."""
    blocked, more, found = threading.Semaphore(0), threading.Semaphore(0), []

    def handover(wait):
        while not wait(0):
            blocked.release()
            more.acquire()

    def sample():
        for _ in range(count):
            service.sample_train()
            found.append(step * envs)
        blocked.release()

    service._await, step = handover, 0
    thread = threading.Thread(target=sample)
    thread.start()
    while blocked.acquire(timeout=LIMIT) and len(found) < count:
        add(service, transitions(range(envs), step=step))
        step += 1
        more.release()
    thread.join(LIMIT)
    return found


@pytest.mark.parametrize(
    ('envs', 'flags'),
    [
        (1, {}),
        (2, {'train_ratio': 1.0}),
        (3, {'train_ratio': 1.0, 'batch_size': 5}),
        (1, {'train_ratio': -1.0, 'batch_length': 3}),
        (1, {'train_ratio': 0.7, 'replay_context': 0}),
        (2, {'train_ratio': 3.0, 'replay_context': 6, 'length': 50}),
        (2, {'train_ratio': 2.0, 'consec_train': 3, 'batch_length': 5}),
    ],
)
def test_updates_are_due_after_as_many_env_steps_as_in_train(make, tmp_path, envs, flags):
    flags = {'train_ratio': 8.0, **flags}
    length = flags.pop('length', 10)
    env = lambda index: CounterEnv(index, length=length)
    alone = Run(tmp_path / 'alone', env, envs=envs, steps=150, **flags).train()
    updates = 4 if flags['train_ratio'] > 0 else 1  # below 0 nothing bounds the later ones
    expected = [-(-step // envs) * envs for step in alone.agent.trained_at[:updates]]
    assert steps_of_batches(make(**flags, capacity=1000), envs, updates) == expected


def test_with_too_few_items_a_resumed_server_waits_as_train_does(make, tmp_path, capsys):
    service = make(train_ratio=8.0)
    cp = service.resume()
    for step in range(20):
        add(service, transitions([0], step=step))
    cp.save()
    for path in (tmp_path / 'replay').iterdir():
        path.unlink()
    again = make(train_ratio=8.0)
    again.resume()
    assert 'Training waits for 8 replay items (now 0)' in capsys.readouterr().out
    assert steps_of_batches(again, 1, 1) == [4 + 8 + 1]


def test_a_replay_remembers_all_that_a_client_may_have_under_way():
    assert journal.WINDOW >= client.MOST


def test_a_request_that_comes_again_waits_for_no_limiter(make):
    service = make(train_ratio=0.5)
    for number in range(30):
        service.add_batch(Reply((b'c' * 16, number)), transitions([0], step=number))
    service.drain()
    add(service, transitions([0], step=29), (b'c' * 16, 29))
    size = service.limiter.size
    service._drained = 0.0
    while service.limiter.want_insert():
        service.limiter.insert()
    add(service, transitions([0], step=29), (b'c' * 16, 29))  # or it would wait for ever
    assert len(service.train) == 30 - 4
    assert size == 30


def test_a_replay_that_was_emptied_is_missed(make, tmp_path, capsys):
    service = make()
    for step in range(12):
        add(service, transitions([0, 3], [False, True], step))
    saved = {name: server.Anew(getattr(service, name)).save() for name in ('train', 'eval')}
    shutil.rmtree(tmp_path / 'replay')
    again = make()
    for name, data in saved.items():
        server.Anew(getattr(again, name)).load(data)
    assert capsys.readouterr().out.count('Replay data are missing: 0 of 8 items') == 1
    assert len(again.eval) == len(service.eval) > 0


def test_waits_that_go_on_count():
    waits, inside, leave = server.Waits(), threading.Event(), threading.Event()

    def wait():
        with waits:
            inside.set()
            leave.wait(LIMIT)

    thread = threading.Thread(target=wait)
    thread.start()
    inside.wait(LIMIT)
    waits.result()
    threading.Event().wait(0.2)
    found = waits.result()
    assert found['count'] == 0
    assert found['frac'] == pytest.approx(1, abs=0.1)
    leave.set()
    thread.join()
    assert waits.result()['count'] == 1


def test_a_plain_client_of_portal_uses_all_five_endpoints(make):
    service = make()
    served = rpc.Server(rpc.fill('localhost:{auto}'), 'replay')
    served.defer('add_batch', service.add_batch, once=True)
    served.bind('update', service.update, once=True)
    for mode in ('train', 'report', 'eval'):
        served.bind(f'sample_batch_{mode}', getattr(service, f'sample_{mode}'))
    with served:
        client = portal.Client(f'localhost:{served.port}', logging=False)
        for step in range(12):
            client.add_batch(transitions([0, 3], [False, True], step)).result(LIMIT)
        batches = [
            client.call(f'sample_batch_{mode}').result(LIMIT)
            for mode in ('train', 'report', 'eval')
        ]
        assert [x['step'].shape for x in batches] == [(2, 5), (2, 3), (2, 3)]
        stepid = np.array(batches[0]['stepid'])
        reward = np.full(stepid.shape[:2], 7, np.float32)
        client.update({'stepid': stepid, 'reward': reward}).result(LIMIT)
        client.close()
    assert (service.sample_train()['reward'] == 7).any()
