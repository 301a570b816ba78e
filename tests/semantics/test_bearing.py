"""What two texts bear on: two things, or one thing said from two sides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.embedding.static_table import StaticEmbedder
from skep.semantics.compare_texts import Verdict, compare
from skep.semantics.same_value import in_one_unit

EMBEDDER = StaticEmbedder()
CONFLICT = ("contradiction", "update")


def verdict(a: str, b: str) -> Verdict:
    left, right = EMBEDDER.embed([a, b])
    return compare(a, b, similarity=EMBEDDER.calibrate(float(left @ right)))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Staging runs Postgres 15", "Production runs Postgres 14"),
        ("Staging uses Redis 7", "Production uses Redis 7"),
        ("Debug logging is enabled on staging", "Debug logging is disabled on production"),
        ("In the dev environment feature flags are on", "In the prod environment feature flags are off"),
        ("The frontend runs on port 3000", "The backend runs on port 8000"),
        ("The minimum password length is 12", "The maximum password length is 64"),
        ("Max retries is 3", "Min retries is 1"),
        ("The desk is 120 cm wide", "The desk is 60 cm deep"),
        ("The office closes at 6 pm", "The office opens at 8 am"),
        ("The morning shift starts at 6", "The evening shift starts at 14"),
        ("The Berlin office has 40 desks", "The Paris office has 25 desks"),
        ("The weekly backup takes 3 hours", "The daily backup takes 20 minutes"),
        ("Logs are kept for 7 days", "Traces are kept for 30 days"),
        ("Version 2 supports streaming", "Version 1 does not support streaming"),
        ("Room 204 seats 10 people", "Room 310 seats 25 people"),
        ("Bus 12 goes to the airport", "Bus 34 goes to the harbour"),
        ("Weekday trains run every 10 minutes", "Weekend trains run every 30 minutes"),
    ],
)
def test_two_things_with_a_value_each_go_together(a: str, b: str) -> None:
    assert verdict(a, b).kind == "neutral"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Staging runs Postgres 15", "Staging runs Postgres 14"),
        ("Deploys go to staging", "Deploys go to production"),
        ("The minimum order is 20 euros", "The minimum order is 25 euros"),
        ("The desk is 120 cm wide", "The desk is 140 cm wide"),
        ("The London team has 12 people", "The London team has 14 people"),
        ("Logs are kept for 7 days", "Logs are kept for 30 days"),
        ("The shop is open on 5 May", "The shop is closed on 5 May"),
        ("Retry 3 times", "Retry 5 times"),
        ("We need 3 servers", "We need 5 servers"),
        ("The release is in March", "The release is in May"),
        ("The meeting room is on the second floor", "The meeting room is on the third floor"),
        ("Maria is the tech lead", "Tom is the tech lead"),
        ("Maria reports to Tom", "Tom reports to Maria"),
        ("Ana is Ben's manager", "Ben is Ana's manager"),
        ("The user's email is ana@example.com", "The user's email is ana.silva@example.org"),
        ("Redis is slower than memcached", "Redis is faster than memcached"),
        ("Avoid global variables", "Use global variables"),
    ],
)
def test_one_thing_with_two_values_does_not(a: str, b: str) -> None:
    assert verdict(a, b).kind in CONFLICT


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Never commit secrets", "Do not ever commit secrets"),
        ("We don't ever deploy on Fridays", "We never deploy on Fridays"),
        ("No one may push to main", "Nobody may push to main"),
        ("The lunch break is half an hour", "The lunch break is 30 minutes"),
        ("Standup is at 9:30", "Standup is at half past nine"),
        ("The oven is set to 20 °C", "The oven is set to 68 °F"),
        ("The room is kept at 20 degrees Celsius", "The room is kept at 68 degrees Fahrenheit"),
        ("The trail is 5 miles long", "The trail is 8 km long"),
        ("The disk has 1 TB", "The disk has 1000 GB"),
        ("The disk has 1.1 TB", "The disk has 1,100 gigabytes"),
        ("The disk has 1 TB", "The disk has 1024 GB"),
        ("The build takes 90 minutes", "The build takes 1.5 hours"),
        ("The build takes 90 min", "The build takes 1 hour and 30 minutes"),
        ("The build takes 1h 30m", "The build takes 90 minutes"),
        ("50% of the users are offline", "Half of the users are offline"),
        ("The discount is 50 percent", "The discount is one half"),
        ("Three quarters of the seats are taken", "75 % of the seats are taken"),
        ("A third of the seats are taken", "33 % of the seats are taken"),
    ],
)
def test_the_same_in_other_words_or_units_is_a_clear_duplicate(a: str, b: str) -> None:
    found = verdict(a, b)

    assert (found.kind, found.clear) == ("duplicate", True)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("It is forbidden to deploy on Fridays", "Never deploy on Fridays"),
        ("Avoid global variables", "Do not use global variables"),
        ("Postgres is faster than MySQL", "MySQL is slower than Postgres"),
        ("Model A costs more than model B", "Model B costs less than model A"),
    ],
)
def test_the_same_seen_from_the_other_side_is_no_conflict_but_not_merged_alone(a: str, b: str) -> None:
    found = verdict(a, b)

    assert (found.kind, found.clear) == ("duplicate", False)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("The oven is set to 20 °C", "The oven is set to 50 °F"),
        ("The oven is set to 20 °C", "The oven is set to 20 °F"),
        ("The trail is 5 miles long", "The trail is 12 km long"),
        ("The parcel weighs 2 kg", "The parcel weighs 2 lbs"),
        ("The disk has 1 TB", "The disk has 2000 GB"),
        ("The disk has 1 TB", "The disk has 1 GB"),
        ("The build takes 90 minutes", "The build takes 1 hour and 45 minutes"),
        ("It costs 50 dollars", "It costs 50 euros"),
    ],
)
def test_another_measure_in_another_unit_is_another_value(a: str, b: str) -> None:
    assert verdict(a, b).kind in CONFLICT


def test_a_text_that_gives_a_measure_in_both_systems_stays_as_it_is() -> None:
    a, b = "It weighs 220 pounds (100 kg)", "It weighs 100 kilograms"
    assert in_one_unit(a, b)[0] == a


def test_a_word_for_a_share_that_is_none_stays_as_it_is() -> None:
    for text in ("Standup is at half past nine", "Sales grew in the third quarter", "It takes half an hour"):
        assert in_one_unit(text, "It is 50 %, 25 % or 33 %")[0] == text


MEASURES = (
    "20 °C",
    "68 °F",
    "20 degrees Celsius",
    "50 °F",
    "10 km",
    "6.2 miles",
    "9 feet",
    "-4 °C",
    "25 °F",
    "3 kg",
    "1 TB",
    "1000 GB",
    "1,000,000 MB",
    "1 TiB",
    "90 min",
    "1 hour 30 minutes",
    "1.5 hours",
    "half",
    "50 %",
    "a quarter of it",
)


@given(st.sampled_from(MEASURES), st.sampled_from(MEASURES), st.sampled_from(MEASURES))
def test_units_do_not_depend_on_the_order(one: str, other: str, third: str) -> None:
    a, b = f"Now {one}, then {third}", f"Now {other}"
    assert in_one_unit(a, b) == in_one_unit(b, a)[::-1]


@pytest.mark.parametrize("written", ["6.2 MİLES", "6.2 mıles", "6.2 mileſ"])
def test_a_unit_in_letters_that_match_without_regard_to_case_is_read(written: str) -> None:
    assert in_one_unit(f"It is {written} long", "It is 10 km long") == (
        "It is 10 km long",
        "It is 10 km long",
    )
    assert in_one_unit("It took 1 HOUR 30 MİN", "It took 90 min") == ("It took 90 min", "It took 90 min")


def test_a_number_beyond_all_measure_is_no_error() -> None:
    long = "9" * 5000
    for text in (f"It took {long} hours {long} min", f"It took {long} h 5 m", f"It is {long} km long"):
        assert in_one_unit(text, "It took 90 min, for 6 miles") == (text, "It took 90 min, for 6 miles")
