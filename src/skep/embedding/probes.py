"""Short texts that show how an embedder spreads its cosines; see `calibration.measure`."""

from __future__ import annotations

PROBES: tuple[tuple[str, str, str], ...] = (
    (
        "The deploy failed on Tuesday night.",
        "On Tuesday night the deployment broke.",
        "the deploy failed on tuesday night",
    ),
    (
        "Anna is allergic to peanuts.",
        "Anna can't eat peanuts because of an allergy.",
        "Anna is allergic to peanuts!",
    ),
    (
        "We store sessions in Redis.",
        "Redis is where our sessions are kept.",
        "We store the sessions in Redis.",
    ),
    (
        "The meeting was moved to Friday.",
        "They rescheduled the meeting for Friday.",
        "The meeting has moved to Friday.",
    ),
    (
        "He grew up in a small fishing village.",
        "His childhood was spent in a little village of fishermen.",
        "He grew up in a small fishing village",
    ),
    (
        "How do I reset my password?",
        "What is the way to change a forgotten password?",
        "How do I reset my password",
    ),
    (
        "The tests take ten minutes to run.",
        "Running the test suite needs ten minutes.",
        "The tests take ten minutes to run!",
    ),
    (
        "She bought a used bicycle last spring.",
        "Last spring she purchased a second-hand bike.",
        "She bought a used bicycle last spring.",
    ),
    (
        "Never push directly to the main branch.",
        "Direct pushes to main are forbidden.",
        "Never push directly to main branch.",
    ),
    (
        "The restaurant closes at nine in the evening.",
        "At 9 pm the restaurant shuts.",
        "The restaurant closes at nine in the evenings.",
    ),
    (
        "Their daughter plays the violin.",
        "The violin is played by their daughter.",
        "Their daughter plays violin.",
    ),
    (
        "Memory use grows until the worker is killed.",
        "The worker leaks memory and dies in the end.",
        "Memory use grows until the worker gets killed.",
    ),
    (
        "The invoice for March is still unpaid.",
        "Nobody has paid the March invoice yet.",
        "The invoice for March is still not paid.",
    ),
    (
        "It rained for the whole holiday.",
        "We had rain during our entire vacation.",
        "It rained the whole holiday.",
    ),
    (
        "Use four spaces to indent Python code.",
        "Python files are indented with four spaces.",
        "Use four spaces to indent python code",
    ),
    (
        "The old bridge was repaired in 1987.",
        "In 1987 they fixed the old bridge.",
        "The old bridge was repaired in 1987!",
    ),
)
"""A statement, the same in other words, and the same retyped."""
