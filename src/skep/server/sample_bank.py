"""The sample bank of `skep serve --demo`: some weeks of a small team's work, with changes, conflicts and outcomes."""

from __future__ import annotations

from typing import Final

from skep.bank.bank import Bank
from skep.embedding.embedder import Opener, open_embedder

DAY: Final = 86_400.0
NOTES: Final = (
    # days ago, text, domain, tags
    (60, "The staging database runs PostgreSQL 14 on port 5433", "infra", ("postgres", "staging")),
    (58, "Deploys to production happen on Tuesdays and Thursdays before 15:00", "infra", ("deploy",)),
    (
        55,
        "The payments service retries failed webhooks five times with exponential back-off",
        "payments",
        ("webhooks",),
    ),
    (52, "Use ruff for linting and formatting", "code", ("style",)),
    (50, "Integration tests need the REDIS_URL variable", "code", ("tests",)),
    (47, "The mobile team owns the notifications API", "teams", ("ownership",)),
    (44, "PR #441 moved rate limiting from the gateway into MemoryStore.recall", "code", ("rate-limit",)),
    (41, "Customer data is stored in Frankfurt and never leaves the EU", "legal", ("privacy",)),
    (38, "The nightly backup starts at 02:30 UTC and takes about forty minutes", "infra", ("backup",)),
    (35, "Feature flags live in config/flags.toml and are read once at start-up", "code", ("flags",)),
    (33, "Ana is the on-call lead in November", "teams", ("on-call",)),
    (30, "The search index is rebuilt every Sunday", "search", ("index",)),
    (27, "Invoices are sent on the first working day of the month", "payments", ("invoices",)),
    (24, "The checkout page times out after 30 seconds", "payments", ("checkout",)),
    (20, "The API returns at most 100 items per page", "code", ("api",)),
    (14, "The staging database was upgraded to PostgreSQL 16", "infra", ("postgres", "staging")),
    (12, "Use flake8 for linting and formatting", "code", ("style",)),
    (9, "The checkout page times out after 10 seconds", "payments", ("checkout",)),
    (6, "The nightly backup takes about forty minutes and starts at 02:30 UTC", "infra", ("backup",)),
    (3, "The notifications API belongs to the platform team now", "teams", ("ownership",)),
    (1, "Ben noticed that webhooks from the sandbox arrive twice", "payments", ("webhooks",)),
)
TASKS: Final = (
    (0.8, "Deploy the release 2.4", True, (1,), "deploy", "Check the feature flags before the deploy"),
    (
        0.6,
        "Fix the flaky integration test",
        True,
        (4,),
        "bugfix",
        "Set REDIS_URL before running integration tests",
    ),
    (0.4, "Raise the checkout timeout", False, (13,), "change", None),
)


def fill(place: str, now: float, opener: Opener = open_embedder) -> None:
    """Write the sample, each thing at its time: memories, links, a decision, what waits for one, and outcomes."""
    moment = [now]
    with Bank.open(place, now=lambda: moment[0], opener=opener) as bank:

        def days_ago(days: float) -> None:
            moment[0] = now - days * DAY

        ids: list[str] = []
        for days, text, domain, tags in NOTES:
            days_ago(days)
            ids.append(bank.remember(text, domain=domain, tags=tags, agent="agent").memory.id)
            if days == 14:
                bank.supersede(ids[0], ids[15], "the upgrade of staging")
        days_ago(0.9)
        bank.link(ids[8], ids[0], "related")
        bank.link(ids[20], ids[2], "refines")
        bank.link(ids[9], ids[1], "related")
        bank.confirm(ids[7], by="legal-review")
        bank.mark(ids[20], "quarantined", "seen once, by one agent")
        for days, task, success, used, kind, lesson in TASKS:
            days_ago(days)
            for question in (
                "which postgres version is on staging?",
                "when can I deploy?",
                "who owns notifications?",
            ):
                bank.recall(question, limit=3)
            bank.learn(task, success, used=[ids[one] for one in used], task_type=kind, lesson=lesson)
        days_ago(0.1)
        bank.maintain()
