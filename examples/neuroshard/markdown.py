# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Pages of text, tables and figures as Markdown."""

import math

import charts


def number(value, digits=4):
    return "-" if value is None or math.isnan(value) or math.isinf(value) else f"{value:.{digits}g}"


def percent(value):
    return "-" if value is None or math.isnan(value) else f"{100 * value:+.1f} %"


def table(header, rows):
    lines = [f"| {' | '.join(map(str, header))} |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)]) + "\n"


class Page:
    """A page about a study, and its figures beside it."""

    def __init__(self, study, out):
        self.study, self.out, self.parts = study, out, []

    def say(self, text):
        self.parts.append(text.rstrip() + "\n")

    def missing(self, title, stage):
        self.say(f"## {title}\n\nMissing: `python3 examples/neuroshard/study.py {stage}` has not done all of it.")

    def figure(self, name, *words, **options):
        self._picture(name, words[0], charts.chart(*words, **options))

    def bars(self, name, *words):
        self._picture(name, words[0], charts.bars(*words))

    def _picture(self, name, title, svg):
        file = self.out.with_name(f"{self.out.stem}_{name}.svg")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(svg)
        self.say(f"![{title}]({file.name})")

    def write(self):
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.out.write_text("\n".join(self.parts))
