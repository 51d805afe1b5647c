# SPDX-FileCopyrightText: Tessera contributors
# SPDX-License-Identifier: Apache-2.0
"""Charts of points, and of bars, as SVG."""

import math
from html import escape

COLOURS = ["#2a7f62", "#c0392b", "#2c5aa0", "#c0792a", "#7b4fa3", "#444444", "#1f9bb4", "#a0522d"]
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 420, 280, 64, 34, 150, 46
BAR, GAP, WORDS = 11, 10, 190  # of bars: thickness, between groups, room for what groups are called


def ticks(low, high, is_log):
    """About five round numbers from low to high; powers of ten where the axis is logarithmic."""
    if is_log:
        first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
        powers = [10.0**e for e in range(first, last + 1)]
        return powers if len(powers) > 1 else [low, high]
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= 6)
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def chart(title, x_label, y_label, series, joined=False, log_x=False, log_y=False, diagonal=False):
    """series: name -> [(x, y)]. `joined` draws lines; `diagonal` the line x = y. Points that a logarithmic axis cannot show are left out."""
    shown = {name: [(x, y) for x, y in points if (x > 0 or not log_x) and (y > 0 or not log_y)] for name, points in series.items()}
    points = [point for of in shown.values() for point in of] or [(1.0, 1.0)]

    def axis(values, is_log, length):
        low, high = min(values), max(values)
        if not is_log:
            low = min(low, 0) if low < high * 0.6 else low
        if low == high:
            low, high = (low / 2, high * 2) if is_log else (low - 1, high + 1)
        f = math.log10 if is_log else float
        return low, high, lambda v: length * (f(v) - f(low)) / (f(high) - f(low))

    xs, ys = [x for x, _ in points], [y for _, y in points]
    if diagonal:
        xs = ys = xs + ys
    x_low, x_high, x_at = axis(xs, log_x, WIDTH)
    y_low, y_high, y_at = axis(ys, log_y, HEIGHT)
    at = lambda x, y: (LEFT + x_at(x), TOP + HEIGHT - y_at(y))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + RIGHT} {TOP + HEIGHT + BOTTOM}" font-family="sans-serif" '
             'font-size="12"><rect width="100%" height="100%" fill="white"/>',
             f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
             f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>',
             f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 38}" text-anchor="middle">{escape(x_label)}</text>',
             f'<text x="14" y="{TOP + HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 {TOP + HEIGHT / 2})">{escape(y_label)}</text>']
    for value in ticks(x_low, x_high, log_x):
        x, y = at(value, y_low)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                     f'<text x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{value:g}</text>')
    for value in ticks(y_low, y_high, log_y):
        x, y = at(x_low, value)
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{LEFT + WIDTH}" y2="{y:.1f}" stroke="#ddd"/>'
                     f'<text x="{x - 5:.1f}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    if diagonal:
        (x1, y1), (x2, y2) = at(x_low, x_low), at(x_high, x_high)
        parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#888" stroke-dasharray="4 3"/>')
    for number, (name, of) in enumerate(shown.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [at(x, y) for x, y in (sorted(of) if joined else of)]
        if joined and len(places) > 1:
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" fill-opacity="0.6"/>' for x, y in places]
        y = TOP + 12 + 18 * number
        parts.append(f'<circle cx="{LEFT + WIDTH + 12}" cy="{y - 4}" r="4" fill="{colour}"/>'
                     f'<text x="{LEFT + WIDTH + 22}" y="{y}">{escape(name)}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def bars(title, x_label, groups):
    """groups: name -> {series: value}. Horizontal bars from 0, a colour a series; values that are not finite are left out."""
    shown = {name: {one: value for one, value in of.items() if math.isfinite(value)} for name, of in groups.items()}
    names = list(dict.fromkeys(one for of in groups.values() for one in of))
    values = [value for of in shown.values() for value in of.values()] or [1.0]
    low, high = min(0.0, *values), max(0.0, *values)
    if low == high:
        high = low + 1
    x_at = lambda value: WORDS + WIDTH * (value - low) / (high - low)
    height = sum(GAP + BAR * max(1, len(of)) for of in shown.values()) + GAP
    height = max(height, 18 * len(names))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WORDS + WIDTH + 2 * RIGHT} {TOP + height + BOTTOM}" font-family="sans-serif" '
             'font-size="12"><rect width="100%" height="100%" fill="white"/>',
             f'<text x="{WORDS}" y="20" font-size="14">{escape(title)}</text>',
             f'<text x="{WORDS + WIDTH / 2}" y="{TOP + height + 38}" text-anchor="middle">{escape(x_label)}</text>']
    for value in ticks(low, high, False):
        parts.append(f'<line x1="{x_at(value):.1f}" y1="{TOP}" x2="{x_at(value):.1f}" y2="{TOP + height}" stroke="#ddd"/>'
                     f'<text x="{x_at(value):.1f}" y="{TOP + height + 16}" text-anchor="middle">{value:g}</text>')
    y = TOP + GAP
    for name, of in shown.items():
        parts.append(f'<text x="{WORDS - 6}" y="{y + BAR * max(1, len(of)) / 2 + 4:.1f}" text-anchor="end">{escape(name)}</text>')
        for series, value in of.items():
            left, right = sorted((x_at(0.0), x_at(value)))
            colour = COLOURS[names.index(series) % len(COLOURS)]
            parts.append(f'<rect x="{left:.1f}" y="{y}" width="{right - left:.1f}" height="{BAR - 2}" fill="{colour}">'
                         f'<title>{escape(f"{name}, {series}: {value:.4g}")}</title></rect>')
            y += BAR
        y += GAP + (0 if of else BAR)
    for place, series in enumerate(names):
        y = TOP + 12 + 18 * place
        parts.append(f'<circle cx="{WORDS + WIDTH + 12}" cy="{y - 4}" r="4" fill="{COLOURS[place % len(COLOURS)]}"/>'
                     f'<text x="{WORDS + WIDTH + 22}" y="{y}">{escape(series)}</text>')
    return "\n".join(parts) + "\n</svg>\n"
