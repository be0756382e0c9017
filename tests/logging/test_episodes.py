"""Episode statistics, by hand-computed numbers."""

import numpy as np
import pytest

from embodied import logging
from embodied.logging import episodes


class Time:
    """A clock that stands still until it is moved."""

    value = 0.0

    def __call__(self):
        return self.value


def run(stats, rewards, worker=0, last=True, **extra):
    """One episode of these rewards; extra: key -> one value per step. Returns the results."""
    results = []
    for index, reward in enumerate(rewards):
        transition = {
            'reward': np.float32(reward),
            'is_first': index == 0,
            'is_last': last and index == len(rewards) - 1,
            **{key.replace('log_', 'log/'): values[index] for key, values in extra.items()},
        }
        results.append(stats.add(transition, worker))
    return results


def test_score_and_length_come_with_the_last_step():
    stats = logging.Episodes(timeout=180)
    results = run(stats, [0, 1, -0.5, 2])
    assert results[:-1] == [None, None, None]
    assert results[-1] == {'episode/score': 2.5, 'episode/length': 4}


def test_reward_rate_is_the_share_of_changes():
    stats = logging.Episodes(timeout=180)
    run(stats, [0, 0, 1, 1.0099, 1, 0.98])  # changes: 0 -> 1 and 1 -> 0.98, of five
    assert stats.stats() == {'epstats/reward_rate': pytest.approx(2 / 5)}
    run(stats, [1])  # nothing to compare
    assert stats.stats() == {}


def test_log_keys():
    stats = logging.Episodes(timeout=180)
    run(stats, [0] * 4, log_health=np.array([9, 7, 8, 2], np.int32))
    run(stats, [0] * 2, worker=3, log_health=np.array([3, 5], np.int32))
    assert stats.stats() == {
        'epstats/log/health/avg': (6.5 + 4) / 2,
        'epstats/log/health/max': (9 + 5) / 2,
        'epstats/log/health/sum': (26 + 8) / 2,
        'epstats/reward_rate': 0,
    }


def test_negative_and_vector_log_values():
    stats = logging.Episodes(timeout=180)
    run(
        stats, [0] * 2, log_x=[np.float32(-3), np.float32(-1)], log_v=np.array([[1, 9], [2, 4]])
    )
    result = stats.stats()
    assert (result['epstats/log/x/max'], result['epstats/log/x/sum']) == (-1, -4)
    assert result['epstats/log/v/avg'].tolist() == [1.5, 6.5]
    assert result['epstats/log/v/max'].tolist() == [2, 9]


def test_uint8_sums_do_not_overflow():
    stats = logging.Episodes(timeout=180)
    run(stats, [0] * 3, log_x=np.array([200, 200, 200], np.uint8))
    assert stats.stats()['epstats/log/x/sum'] == 600


def frames(length, value=0):
    return np.arange(length, dtype=np.uint8)[:, None, None, None] + np.full(
        (length, 4, 4, 3), value, np.uint8
    )


def test_videos_of_the_first_worker():
    stats = logging.Episodes(timeout=180)
    run(stats, [0] * 3, worker=0, image=frames(3), log_top=frames(3, 100))
    run(stats, [0] * 3, worker=1, image=frames(3, 50), log_top=frames(3, 50))
    result = stats.stats()
    videos = {k: v for k, v in result.items() if np.ndim(v)}
    assert set(videos) == {'epstats/policy_image', 'epstats/log/top'}
    for key, value in (('epstats/policy_image', 0), ('epstats/log/top', 100)):
        assert videos[key].dtype == np.uint8
        np.testing.assert_array_equal(videos[key], frames(3, value))
    assert not any('avg' in key for key in result)


def test_long_videos_are_cut(monkeypatch):
    monkeypatch.setattr(episodes, 'MAX_FRAMES', 5)
    stats = logging.Episodes(timeout=180)
    run(stats, [0] * 9, image=frames(9))
    np.testing.assert_array_equal(stats.stats()['epstats/policy_image'], frames(5))


def test_frames_do_not_keep_the_batch_alive():
    stats = logging.Episodes(timeout=180)
    batch = frames(2)
    run(stats, [0], last=False, image=batch)
    batch += 77
    stats.add({'reward': 0, 'is_first': False, 'is_last': True, 'image': batch[1]}, 0)
    np.testing.assert_array_equal(
        stats.stats()['epstats/policy_image'], np.stack([frames(1)[0], batch[1]])
    )


def test_workers_do_not_mix():
    stats = logging.Episodes(timeout=180)
    for index in range(3):
        for worker in range(2):
            result = stats.add(
                {
                    'reward': np.float32(10**worker),
                    'is_first': index == 0,
                    'is_last': index == 2,
                },
                worker,
            )
            if index == 2:
                assert result == {'episode/score': 3 * 10**worker, 'episode/length': 3}


def test_an_abandoned_episode_is_dropped():
    stats = logging.Episodes(timeout=180)
    run(stats, [5, 5, 5], last=False)
    assert run(stats, [1, 1])[-1] == {'episode/score': 2, 'episode/length': 2}


@pytest.mark.parametrize('collect', [False, True])
def test_a_silent_worker_is_dropped_until_its_next_episode(collect):
    now = Time()
    stats = logging.Episodes(timeout=180, now=now)
    run(stats, [5, 5], last=False)
    now.value = 181
    if collect:
        stats.stats()
    rest = {'reward': np.float32(1), 'is_first': False, 'is_last': False}
    assert stats.add(rest, 0) is None
    assert stats.add({**rest, 'is_last': True}, 0) is None
    assert stats.stats() == {}
    assert run(stats, [1, 1])[-1] == {'episode/score': 2, 'episode/length': 2}


def test_a_slow_worker_is_not_dropped():
    now = Time()
    stats = logging.Episodes(timeout=180, now=now)
    results = []
    for index in range(3):
        now.value += 179
        stats.stats()
        step = {'reward': np.float32(1), 'is_first': index == 0, 'is_last': index == 2}
        results.append(stats.add(step, 0))
    assert results[-1] == {'episode/score': 3, 'episode/length': 3}


def test_counts_of_episodes():
    clock = Time()
    stats = logging.Episodes(timeout=10, now=clock)
    run(stats, [0, 1])
    run(stats, [0, 1], worker=1, last=False)
    run(stats, [0, 1], worker=1, last=False)  # the first one never ended
    run(stats, [0, 1], worker=2, last=False)
    assert stats.counts() == {'ep_starts': 4, 'ep_ends': 1, 'ep_abandoned': 1, 'ep_states': 2}
    clock.value = 11
    stats.stats()
    assert stats.counts() == {'ep_starts': 4, 'ep_ends': 1, 'ep_abandoned': 3, 'ep_states': 0}


def steps(stats, *logs):
    """One episode whose steps log these values; several may be of the same key."""
    for index, log in enumerate(logs):
        flags = {'is_first': index == 0, 'is_last': index == len(logs) - 1}
        stats.add({'reward': np.float32(0), **flags, **log}, 0)
    return {k: v for k, v in stats.stats().items() if '/log/' in k}


def test_values_that_are_there_in_some_steps_count_in_those():
    found = steps(logging.Episodes(180), {}, {'log/x': 2.0}, {'log/x': np.bool_(False)}, {})
    assert found == {f'epstats/log/x/{k}': v for k, v in dict(avg=1, max=2, sum=2).items()}


def test_the_last_text_of_an_episode():
    found = steps(logging.Episodes(180), {'log/x': 'a'}, {'log/x': np.str_('been')}, {})
    assert found == {'epstats/log/x': 'been'}


def test_what_is_not_finite_is_no_error():
    with np.errstate(all='raise'):
        found = steps(
            logging.Episodes(180),
            {'log/x': np.float32(np.inf), 'log/y': np.nan, 'log/z': np.array([1, np.inf])},
            {'log/x': np.float32(-np.inf), 'log/y': 1.0, 'log/z': np.array([1, -np.inf])},
        )
    assert found['epstats/log/x/max'] == np.inf
    assert np.isnan(found['epstats/log/x/sum'])
    assert all(np.isnan(found[f'epstats/log/y/{k}']) for k in ('avg', 'max', 'sum'))
    np.testing.assert_array_equal(found['epstats/log/z/sum'], [2, np.nan])


def test_a_value_that_changes_its_shape_starts_anew():
    found = steps(logging.Episodes(180), {'log/x': 5.0}, {'log/x': np.ones(3)})
    np.testing.assert_array_equal(found['epstats/log/x/sum'], [1, 1, 1])


def test_an_image_that_changes_its_size_starts_anew():
    images = [np.zeros((n, 4, 3), np.uint8) for n in (4, 4, 8)]
    found = steps(logging.Episodes(180), *[{'log/x': x} for x in images])
    assert found['epstats/log/x'].shape == (1, 8, 4, 3)
