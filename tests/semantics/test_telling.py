"""What is worth knowing by itself, and what is only said."""

from __future__ import annotations

import pytest

from skep.semantics.evidence import sentences, statements, supports, telling, worth_keeping

WORTH = """
Use ruff for linting
user: always answer in German
Please answer in German
I prefer dark mode in the editor
I live in Berlin
I am vegetarian
I am 32
The port is 80
Run the tests before every commit
When the cache is full, the worker restarts.
Where possible, handlers use async calls
It takes nine minutes to build the project
It is forbidden to push to main
This repo uses pnpm
Yes, we use Postgres 16 on staging.
Sorry, the API limit is 100 requests per minute
Assistant: The config lives in settings.toml
Thanks to caching, pages load in 50 ms
Change requests need two approvals
Push notifications are enabled for admins
Open issues are triaged on Monday
If the build fails with E12, clear the cache
Welcome emails are sent by SES
Well-known ports are below 1024
Hi-res images are stored in S3
Do not commit to main
I would like answers in German
We are on Python 3.12
Return values are cached for 5 minutes (or less)
Class sizes are limited to 20 (since May)
The handler calls parse_row(row)
get_user returns None when the user is missing
From June, refunds take 3 business days
Import jobs run at night
No updates are installed on Fridays
[ ] Passwords are hashed with Argon2id (cost 12)
Let's use UTC for all timestamps
I'm going to Japan in April 2027
""".strip().splitlines()

SAID = """
Thanks!
Jon: Thanks, Gina!
Nate: Wow, Joanna, that sounds amazing!
Sure, got it.
assistant: Sure, I can help you with that.
Sounds good!
Talk to you later!
Take care!
Looking forward to it.
Let me know if you need more.
Let's do it!
[shares a photo: a photo of a sunset over a mountain]
[shares a photo: a photo of a cartoon character].
Totally agree.
Let's go through the list
user: run the tests
please run the tests again
User: show me the config file of nginx
user: can you tell me where the logs are
What is the release date of version 4
I'll start tracking my progress more closely.
We are going to look into it
I am tired
I'm a bit worried about the schedule
Today is Monday
It is raining today
The server is down right now
We met the auditors last week
He works at Google
Their API returns XML
That's wrong
This means more work
Maybe the cache is stale
I think the build is flaky
2.
No changes.
def parse(row):
return row[0] + 1
const total = items.length;
print(f(2))
{"status": "ok", "rows": 42}
$ git status
from skep import Bank
Vielen Dank, das hat geholfen!
""".strip().splitlines()


@pytest.mark.parametrize("sentence", WORTH)
def test_what_holds_later_is_worth_keeping(sentence: str) -> None:
    assert telling(sentence)


@pytest.mark.parametrize("sentence", SAID)
def test_what_is_only_said_is_not(sentence: str) -> None:
    assert not telling(sentence)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("The limit is approx. 5 GB. It was raised.", ["The limit is approx. 5 GB.", "It was raised."]),
        ("The standup is at 5 p.m. on Fridays", ["The standup is at 5 p.m. on Fridays"]),
        ("We met at 5 p.m. Ana was late.", ["We met at 5 p.m.", "Ana was late."]),
        ("Is it safe? No. 5 nodes failed.", ["Is it safe?", "No. 5 nodes failed."]),
        ("The answer is no. We stay.", ["The answer is no.", "We stay."]),
        ("Use linters, e.g. ruff.\nDr.\nLee agrees.", ["Use linters, e.g. ruff.", "Dr.", "Lee agrees."]),
        ("", []),
    ],
)
def test_a_shortened_word_ends_no_sentence(text: str, parts: list[str]) -> None:
    assert sentences(text) == parts


def test_code_in_a_text_is_not_what_it_states() -> None:
    text = "The entry point is main.\n```python\nvalue = 3\nrun the loop twice\n```\nThe loop runs twice."
    assert worth_keeping(text) == ("The entry point is main.", "The loop runs twice.")


def test_what_people_say_of_themselves_is_theirs() -> None:
    ana, bob = (
        "Ana: Good to see you. I live in Berlin with my cat.",
        "Bob: Hello! I live in Berlin with my cat.",
    )
    assert statements(ana)[1] == "Ana: I live in Berlin with my cat."
    assert supports("Ana: I live in Berlin with my cat.", ana, similarity=0.9)
    assert not supports("Ana: I live in Berlin with my cat.", bob, similarity=0.9)


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        ("He works at Google in Zurich", "She works at Google in Zurich"),
        ("I work at Google in Zurich", "He works at Google in Zurich"),
        ("We should migrate to Postgres 16", "We decided against it: we should not migrate to Postgres 16"),
        ("We migrate to Postgres 16", "The board was against it when we migrate to Postgres 16"),
    ],
)
def test_what_another_does_or_somebody_is_against_is_no_evidence(fact: str, text: str) -> None:
    assert not supports(fact, text, similarity=0.95)
