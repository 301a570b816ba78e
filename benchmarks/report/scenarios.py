"""Hive and maintenance as chapters of the report, from their own results."""

from __future__ import annotations

from typing import Any

from benchmarks.report.tables import markdown


def _where(*results: dict[str, Any] | None) -> str:
    """At which commit and load something was measured, as far as the results say."""
    there: list[dict[str, Any]] = [each["environment"] for each in results if each and "environment" in each]
    said = {
        f"commit `{e['commit'][:12]}`{' with uncommitted changes' if e.get('dirty') else ''}, "
        f"load average {e['load_before']}"
        for e in there
    }
    if not said:
        return "The results do not say at which commit they were taken, and may be older than the code."
    return f"Measured at {'; '.join(sorted(said))}."


def chapter(parity: dict[str, Any] | None, cost: dict[str, Any] | None) -> str:
    """Hive: what spreading memories over agents costs."""
    if not parity:
        return ""
    rows: list[list[str]] = []
    for name, found in parity.get("sets", parity).items():
        most = max(row["agents"] for row in found)
        single = next(row for row in found if row["topology"] == "single")
        for kind in ("flat", "federated", "sharded"):
            there = [row for row in found if row["topology"] == kind and row["agents"] == most]
            if there:
                worst = min(row["points_one_author"] for row in there)
                same = min(row["identical_answers"] for row in there)
                recall = min(row["recall_at_10"] for row in there)
                rows.append(
                    [
                        name,
                        f"{kind}, {most} agents",
                        f"{single['recall_at_10']:.4f}",
                        f"{recall:.4f}",
                        f"{worst:+.2f}",
                        f"{same:.1%}",
                    ]
                )
    header = [
        "set",
        "hive",
        "recall@10, one bank",
        "recall@10, hive",
        "points",
        "same list as one shared bank",
    ]
    lines = ["", "## Hive", "", markdown(header, rows)]
    if cost:
        made, asked = cost["creation"], cost["asking"]
        syncs = ", ".join(f"{each['bytes']:,} bytes among {each['memories']:,}" for each in cost["syncing"])
        lines += [
            "",
            f"{made['agents']} agents are made in {made['cpu_s']} s of CPU; a scatter over {asked['shards']} shards "
            f"takes {asked['one_scatter_wall_ms_p50']} ms (wall, p50), a whole recall over them "
            f"{asked['recall_cpu_ms_p50']} ms of CPU; twenty changes are synced in {syncs} memories.",
        ]
        if disk := cost.get("on_disk"):
            lines[-1] += (
                f" A fresh process that opens {disk['agents']} agents with {disk['memories']:,} memories in files "
                f"holds {disk['after_one_mb']:.0f} MB after its first answer and {disk['after_more_mb']:.0f} MB after "
                "some more."
            )
    lines += ["", f"{_where(parity, cost)} How, and how to run it again: [hive](hive/REPORT.md)."]
    return "\n".join(lines) + "\n"


def maintenance(results: dict[str, Any] | None) -> str:
    """Maintenance: copies merged, updated facts, cost."""
    if not results:
        return ""
    rows: list[list[str]] = []
    for each in results.get("planted", ()):
        rows.append(
            [
                f"planted copies merged, {each['edits']} edit(s) each, seed {each['seed']}",
                f"{each['merged']:.1%} of {each['copies']}",
                f"{each['wrong']} of {each['merges']} merges wrong",
            ]
        )
    for name, each in results.get("updates", {}).items():
        before, after = (each[when]["default"]["current_first"] for when in ("before", "after"))
        rows.append(
            [f"current value first, {name}", f"{before:.3f} → {after:.3f}", f"{each['questions']} questions"]
        )
    for each in results.get("cost", ()):
        rows.append(
            [
                f"{each['new']:,} new among {each['memories']:,}",
                f"{each['maintain_s']['median']:.2f} s of CPU",
                "×{median:.2g} ({lowest:.2g} to {highest:.2g}) of embedding and indexing them".format(
                    **each["ratio"]
                )
                + f"; within ×3 in {each['rounds_within_3x']} of {len(each['rounds'])} rounds",
            ]
        )
    lines = ["", "## Maintenance", "", markdown(["", "measured", ""], rows)]
    taken = results.get("taken", {})
    for part in ("planted", "updates", "cost"):
        if part in results:
            where = _where({"environment": taken[part]} if part in taken else None)
            lines += ["", f"{part.capitalize()}: {where[0].lower()}{where[1:]}"]
    lines += ["", "How, and how to run it again: [maintenance](maintenance/REPORT.md)."]
    return "\n".join(lines) + "\n"
