"""Films of episodes."""

import av
import numpy as np

from embodied import logging


def play(output, length, worker=0, last=True, step=0, **keys):
    """One episode; its frames are filled with their number."""
    for index in range(length):
        frames = {k: np.full(shape, 10 * index % 256, np.uint8) for k, shape in keys.items()}
        flags = {'is_first': index == 0, 'is_last': last and index == length - 1}
        output.watch(step + index, {**frames, **flags, 'vector': np.zeros(3)}, worker)


def frames(path):
    with av.open(path) as container:
        return [x.to_ndarray(format='rgb24') for x in container.decode(video=0)]


def names(folder):
    return sorted(x.name for x in folder.iterdir())


def test_every_episode_of_every_environment(tmp_path):
    output = logging.Videos(tmp_path, 10)
    for worker in (0, 3):
        play(output, 4, worker, image=(8, 8, 3))
    play(output, 2, 0, step=10, image=(8, 8, 3))
    output.close()
    assert names(tmp_path / 'videos') == [
        '000000000003-env0-image.mp4',
        '000000000003-env3-image.mp4',
        '000000000011-env0-image.mp4',
    ]
    film = frames(tmp_path / 'videos' / '000000000003-env3-image.mp4')
    assert [round(x.mean() / 10) for x in film] == [0, 1, 2, 3]


def test_images_under_log_of_odd_size(tmp_path):
    output = logging.Videos(tmp_path, 10)
    play(output, 2, **{'log/top': (5, 7, 1)})
    assert names(tmp_path / 'videos') == ['000000000001-env0-log-top.mp4']
    film = frames(tmp_path / 'videos' / '000000000001-env0-log-top.mp4')
    assert np.shape(film) == (2, 6, 8, 3)


def test_keys_that_are_written_alike_have_films_of_their_own(tmp_path):
    output = logging.Videos(tmp_path, 10)
    play(output, 90, **{'a/b': (8, 8, 3), 'a-b': (16, 16, 3)})  # the encoder writes late
    found = [frames(x)[0].shape for x in (tmp_path / 'videos').iterdir()]
    assert sorted(found) == [(8, 8, 3), (16, 16, 3)]


def test_episodes_of_one_evaluation_share_a_step(tmp_path):
    output = logging.Videos(tmp_path, 10)
    for _ in range(3):
        for first in (True, False):
            image = np.zeros((8, 8, 3), np.uint8)
            output.watch(7, {'image': image, 'is_first': first, 'is_last': not first}, 0)
    expected = [f'000000000007-env0-image{end}.mp4' for end in ('-2', '-3', '')]
    assert names(tmp_path / 'videos') == expected


def test_what_is_cut_is_left_out(tmp_path):
    output = logging.Videos(tmp_path, 10)
    play(output, 3, last=False, image=(8, 8, 3))
    play(output, 2, step=7, image=(8, 8, 3))
    play(output, 3, last=False, image=(8, 8, 3))
    output.close()
    assert names(tmp_path / 'videos') == ['000000000008-env0-image.mp4']


def test_a_film_needs_the_first_step(tmp_path):
    output = logging.Videos(tmp_path, 10)
    output.watch(
        0, {'image': np.zeros((8, 8, 3), np.uint8), 'is_first': False, 'is_last': True}, 0
    )
    output.close()
    assert not (tmp_path / 'videos').exists()


def test_a_frame_of_another_size_costs_its_episode_alone(tmp_path, capsys):
    output = logging.Videos(tmp_path, 10)
    logger = logging.Logger(5, [output])
    for size, first in ((8, True), (80, False), (8, False)):
        image = np.zeros((size, 8, 3), np.uint8)
        logger.watch({'image': image, 'is_first': first, 'is_last': False}, 0)
    play(output, 2, image=(8, 8, 3))
    logger.close()
    assert len(names(tmp_path / 'videos')) == 1
