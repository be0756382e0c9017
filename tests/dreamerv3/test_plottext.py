"""Names in pictures: which characters are drawn, and in which fonts."""

import io

import pytest
from matplotlib.figure import Figure

from dreamerv3 import plottext


def drawn(name):
    """The text that stands for a name, drawn without a warning, which would be an error."""
    figure = Figure()
    title = figure.suptitle(name)
    plottext.plain([title])
    figure.savefig(io.BytesIO(), format='svg')
    return title


@pytest.fixture(autouse=True)
def forget():
    plottext._fonts.cache_clear()


@pytest.mark.parametrize('name', ['$', '$x$', r'$\frac{$', r'\$', '{0}', '_a', '^%#&~'])
def test_what_means_something_to_matplotlib_is_drawn_as_it_is(name):
    assert drawn(name).get_text() == name


def test_what_no_font_has_is_replaced_and_said(capsys):
    assert drawn('a\nb\x1bc\ud800').get_text() == 'a?b?c?'
    assert capsys.readouterr().out == ''
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plottext, '_without', lambda path, found: found & {'\u65e5'})
        assert drawn('\u65e5x').get_text() == '?x'
    assert 'no font of this machine has \u65e5' in capsys.readouterr().out


def test_other_fonts_are_asked_where_the_usual_one_lacks_a_character(monkeypatch):
    """Here it is said to lack all but ASCII."""
    from matplotlib import font_manager

    usual = font_manager.findfont(font_manager.FontProperties())
    real = plottext._without
    lacks = lambda path, found: {x for x in found if ord(x) > 127} | real(path, found)
    change = lambda path, found: (lacks if path == usual else real)(path, found)
    monkeypatch.setattr(plottext, '_without', change)
    families, missing = plottext._fonts('a\u03b1')
    assert missing == set()
    assert len(families) > 1
    assert not any(x in families[-1] for x in plottext.UNUSABLE)


def test_a_name_without_end_is_cut():
    assert drawn('x' * 500).get_text() == 'x' * 77 + '...'
