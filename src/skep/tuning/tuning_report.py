"""Results of tuning as text for the terminal: tables, bars and sparklines. Pure; called by `skep tune`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from skep.tuning.autotune import Tuned
from skep.tuning.deploy import SAME, Comparison, Judgement, Version
from skep.tuning.document_index import Harvest, IndexReport
from skep.tuning.evaluate import MEASURED, Evaluation, Looked
from skep.tuning.findings import Finding
from skep.tuning.metrics import Overall

_LEVELS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def sparkline(values: Sequence[float]) -> str:
    """Values as a row of blocks, lowest to highest.

    >>> sparkline([0, 1, 2, 3])
    '▁▃▆█'
    """
    if not values:
        return ""
    low, high = min(values), max(values)
    if high <= low:
        return _LEVELS[len(_LEVELS) // 2] * len(values)
    top = len(_LEVELS) - 1
    return "".join(_LEVELS[round((value - low) / (high - low) * top)] for value in values)


def bar(value: float, largest: float, width: int = 20) -> str:
    """A bar of at most `width` characters.

    >>> bar(1.5, 3, 4)
    '██'
    """
    if largest <= 0 or value <= 0:
        return ""
    eighths = round(min(1.0, value / largest) * width * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def signed_bar(value: float, largest: float, width: int = 10) -> str:
    """A bar to the right of the middle for gains and to the left for losses.

    >>> signed_bar(-1, 1, 3), signed_bar(1, 1, 3)
    ('███|', '   |███')
    """
    length = round(min(1.0, abs(value) / largest) * width) if largest > 0 else 0
    return " " * (width - length) + "█" * length + "|" if value < 0 else " " * width + "|" + "█" * length


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows in aligned columns; columns of figures to the right."""
    widths = [max(len(row[at]) for row in (header, *rows)) for at in range(len(header))]
    right = [bool(rows) and all(_is_figure(row[at]) for row in rows) for at in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = (
            text.rjust(width) if push else text.ljust(width)
            for text, width, push in zip(row, widths, right, strict=True)
        )
        return "  ".join(cells).rstrip()

    return "\n".join([line(header), "  ".join("─" * width for width in widths), *(line(row) for row in rows)])


def score_curve(scores: Sequence[float], kept: int, *, width: int = 30) -> str:
    """One bar per result, with a line where the answer was cut."""
    lines: list[str] = []
    for rank, score in enumerate(scores, start=1):
        if rank == kept + 1:
            lines.append("     ┄┄┄ cut ┄┄┄")
        lines.append(f"{rank:>3}  {score:.4f}  {bar(score, scores[0], width)}")
    return "\n".join(lines)


def _is_figure(text: str) -> bool:
    return not text or text[0] in "0123456789+-–."


NAMES = {"nudcg": "nUDCG", "ndcg": "nDCG", "precision": "precision", "recall": "recall", "mrr": "MRR"}


def findings(found: Sequence[Finding]) -> str:
    """Findings, one per line, errors first."""
    return "\n".join(finding.line() for finding in sorted(found, key=lambda item: item.severity))


def index_report(report: IndexReport) -> str:
    """The effect of indexing, and the fields that can be filtered."""
    lines = [
        f"{report.collection}: {report.documents} documents, {report.chunks} chunks "
        f"({report.added} added, {report.changed} changed, {report.removed} removed, {report.unchanged} unchanged)"
    ]
    lines += [fields(report.fields)] if report.fields else []
    lines += [finding.line() for finding in report.findings]
    return "\n".join(lines)


def fields(values: dict[str, dict[str, int]]) -> str:
    """Filterable fields with their values."""
    lines: list[str] = []
    for field, counted in values.items():
        shown = ", ".join(f"{value} ({count})" for value, count in counted.items()) or "no document states it"
        lines.append(f"filterable: {field}: {shown}")
    return "\n".join(lines) or "no field is filterable"


def looked(answer: Looked, *, curve: bool = False) -> str:
    """One answer: results, where it was cut, and what every stage did."""
    rows = [
        (
            str(item.rank),
            f"{item.score:.4f}",
            str(item.ranks.get("lexical", "–")),
            str(item.ranks.get("semantic", "–")),
            item.chunk,
            ", ".join(item.flags),
        )
        for item in answer.results
    ]
    parts = [table(("#", "score", "words", "meaning", "chunk", "flags"), rows) if rows else "no results"]
    if curve and answer.curve:
        parts.append(score_curve(answer.curve, len(answer.results)))
    parts.append(answer.reason)
    parts.append("\n".join(answer.stages))
    return "\n\n".join(part for part in parts if part)


def totals(overall: Overall) -> str:
    """The counts of a result in one line."""
    line = (
        f"{overall.distractors} distractors over {overall.queries} queries; p95 {overall.latency_ms:.1f} ms"
    )
    if overall.unanswerable:
        line += (
            f"; {overall.abstained_right} of {overall.unanswerable} without an answer rightly left unanswered"
        )
    if overall.abstained_wrong:
        line += f"; {overall.abstained_wrong} of {overall.answerable} with an answer left unanswered"
    if overall.flagged:
        flagged, wrong = overall.flagged_distractors, overall.flagged_relevant
        line += (
            f"; flagged: {flagged} of {overall.distractors} distractors (recall {overall.flag_recall:.2f}) and "
            f"{wrong} relevant (precision {overall.flag_precision:.2f})"
        )
    return line


def evaluation(result: Evaluation, *, per_query: bool = True) -> str:
    """A result with its confidence intervals, and every query if asked."""
    rows = [
        (
            NAMES[name],
            f"{getattr(result.overall, name):.3f}",
            f"{result.intervals[name].low:.3f} to {result.intervals[name].high:.3f}",
        )
        for name in MEASURED
    ]
    head = f"{result.config} on {result.on.evals.partition(':')[0]} ({result.on.split}), k = {result.k}"
    parts = [head, table(("", "mean", "95 % interval"), rows), totals(result.overall)]
    if per_query:
        parts.append(
            table(
                ("query", "nUDCG", "recall", "returned", "distractors"),
                [
                    (
                        score.query,
                        _figure(score.nudcg),
                        _figure(score.recall),
                        str(score.returned),
                        ", ".join(score.distractors),
                    )
                    for score in result.scores
                ],
            )
        )
    return "\n\n".join(parts)


def results(kept: Sequence[Evaluation]) -> str:
    """Saved results, in groups that were measured on the same things."""
    if not kept:
        return "nothing was measured yet"
    groups: dict[tuple[object, int], list[Evaluation]] = {}
    for result in kept:
        groups.setdefault((result.on, result.k), []).append(result)
    parts: list[str] = []
    for number, group in enumerate(groups.values(), start=1):
        on = group[0].on
        rows = [
            (
                result.config,
                result.hash,
                f"{result.overall.nudcg:.3f}",
                str(result.overall.distractors),
                _day(result.at),
            )
            for result in group
        ]
        head = f"group {number}: {on.evals} ({on.split}), data {on.data}, embedder {on.embedder}"
        parts.append(f"{head}\n{table(('config', 'hash', 'nUDCG', 'distractors', 'when'), rows)}")
    return "\n\n".join(parts)


def comparison(result: Comparison) -> str:
    """Two configs side by side."""
    before, after = result.before, result.after
    rows = [
        (NAMES[name], *_change(getattr(before.overall, name), getattr(after.overall, name)))
        for name in MEASURED
    ]
    rows.append(("distractors", *_change(before.overall.distractors, after.overall.distractors)))
    largest = max((abs(item.delta) for item in result.deltas), default=0.0)
    changed = [item for item in result.deltas if abs(item.delta) > SAME or item.appeared or item.left]
    lines = [
        (
            item.query,
            _figure(item.before),
            _figure(item.after),
            signed_bar(item.delta, largest),
            " ".join([*(f"+{name}" for name in item.appeared), *(f"−{name}" for name in item.left)]),
        )
        for item in sorted(changed, key=lambda item: item.delta)
    ]
    parts = [
        "\n".join(change.line() for change in result.changes) or "the configs search alike",
        table(("", before.config, after.config, "change"), rows),
        table(("query", "before", "after", "change", "distractors"), lines) if lines else "no query changed",
        f"{result.verdict()}; mean change {result.mean_delta:+.3f}, "
        f"95 % interval {result.interval.low:+.3f} to {result.interval.high:+.3f}",
    ]
    return "\n\n".join(parts)


def judgement(verdict: Judgement) -> str:
    """The gate's verdict."""
    lines = [
        f"holdout: {verdict.config.name} nUDCG {verdict.candidate.overall.nudcg:.3f}, "
        + totals(verdict.candidate.overall)
    ]
    if verdict.deployed is not None:
        lines.append(
            f"deployed: {verdict.deployed.config} nUDCG {verdict.deployed.overall.nudcg:.3f}, "
            + totals(verdict.deployed.overall)
        )
    else:
        lines.append("deployed: nothing yet, so there is nothing to compare with")
    return "\n".join([*lines, findings(verdict.findings) or "the gate lets it pass"])


def history(versions: Sequence[Version], active: int | None) -> str:
    """Every version, newest last, with the course of nUDCG."""
    if not versions:
        return "nothing was deployed yet"
    rows = [
        (
            ("* " if version.number == active else "  ") + str(version.number),
            _day(version.at),
            version.config.name if version.config else "(default)",
            _figure(version.results.nudcg if version.results else None),
            str(version.results.distractors) if version.results else "–",
            version.author,
            f"{version.action}{' (forced)' if version.forced else ''}: {version.reason}".rstrip(": "),
        )
        for version in versions
    ]
    course = [version.results.nudcg for version in versions if version.results]
    text = table(("version", "when", "config", "nUDCG", "distractors", "author", "what"), rows)
    return text + (f"\n\nnUDCG {sparkline(course)}" if len(course) > 1 else "")


def tuned(result: Tuned) -> str:
    """The result of autotune."""
    lines = [
        f"{result.trials} trials in {result.seconds:.0f} s on the tune split: nUDCG {result.before.nudcg:.3f} → "
        f"{result.after.nudcg:.3f}, distractors {result.before.distractors} → {result.after.distractors}",
        *(effect.line() for effect in result.effects),
    ]
    return "\n".join(lines)


def harvest(result: Harvest, count: int) -> str:
    """A sample of what was learnt from traffic."""
    head = f"{len(result.eval_set.queries)} queries from {result.outcomes} outcomes; {result.skipped} skipped"
    lines = [
        "\n".join(
            (
                item.query,
                f"  relevant: {', '.join(item.relevant) or '–'}",
                f"  distractors: {', '.join(item.distractors) or '–'}",
            )
        )
        for item in result.sample(count)
    ]
    return "\n\n".join([head, *lines])


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _change(before: float, after: float) -> tuple[str, str, str]:
    if isinstance(before, int):
        return str(before), str(after), f"{after - before:+d}"
    return f"{before:.3f}", f"{after:.3f}", f"{after - before:+.3f}"
