"""Names in pictures as they are: dollars and braces are no formulas, and any script is drawn.

Matplotlib reads what is between dollars as a formula, and its own font lacks most scripts.
"""

import functools
from collections.abc import Iterable
from typing import Any

LONGEST = 80  # characters of a name
UNUSABLE = ('Last Resort', 'LastResort', 'Blank')  # fonts that have a box for everything


def plain(texts: Iterable[Any]) -> None:
    """Have texts of a figure drawn as they are, in fonts that have their characters.

    What no font has becomes `?`; a line says so.
    """
    for text in texts:
        name = ''.join(x if x.isprintable() else '?' for x in text.get_text())
        name = name if len(name) <= LONGEST else f'{name[: LONGEST - 3]}...'
        families, missing = _fonts(''.join(sorted(set(name))))
        text.set_text(''.join('?' if x in missing else x for x in name))
        text.set_parse_math(False)
        text.set_fontfamily(families)


@functools.cache
def _fonts(characters: str) -> tuple[list[str], set[str]]:
    """Families that have the characters together, and those that no font has."""
    import matplotlib
    from matplotlib import font_manager

    families = list(matplotlib.rcParams['font.family'])
    usual = font_manager.findfont(font_manager.FontProperties(family=families))
    missing = _without(usual, set(characters))
    for font in font_manager.fontManager.ttflist if missing else ():
        if any(x in font.name for x in UNUSABLE):
            continue
        less = _without(font.fname, missing)
        if len(less) < len(missing):
            families.append(font.name)
            missing = less
        if not missing:
            break
    if missing:
        found = ''.join(sorted(missing))
        print(f'Warning: no font of this machine has {found}; ? stands for it.', flush=True)
    return families, missing


def _without(path: str, characters: set[str]) -> set[str]:
    """The characters that the font of a file lacks."""
    from matplotlib import font_manager

    try:
        font = font_manager.get_font(path)
    except (OSError, RuntimeError):  # removed since the fonts were listed, or damaged
        return characters
    return {x for x in characters if not font.get_char_index(ord(x))}
