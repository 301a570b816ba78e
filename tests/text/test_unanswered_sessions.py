"""Episodes in which nobody knew the answer are told from those that hold one."""

from __future__ import annotations

import time

import pytest

from skep.text.unanswered_sessions import LONGEST, is_unanswered

UNANSWERED = (
    "User: What's the combination of the bike shed? Assistant: I don't have a combination for the bike shed.",
    "User: Which insurer covers the van? Assistant: Sorry, I couldn't find an insurer for the van in my notes.",
    "User: who is our contact at the printer's? Assistant: I don't know. Nothing about the printer's has been stored.",
    "User: remind me of the Jira project key. Assistant: You haven't told me the project key yet.",
    "User: Do you know Marta's birthday? Assistant: I have no birthday for Marta. Tell me and I'll remember it.",
    "User: what is the staging URL?\nAssistant: I'm afraid there is no staging URL in memory.",
    "Human: when does the lease end?\nAI: No record of the lease's end, I'm sorry.\nI have nothing stored about it.",
    "User: Which SSH port did we choose? Assistant: I can't recall one. Could you check the config?",
    "User: How long is the warranty on the kiln? Assistant: The warranty isn't in my notes. Maybe ask the dealer.",
    "User: where's the spare fuse box key? Assistant: I do not have that information. User: ok, never mind",
    "User: who approved the logo? Assistant: I wasn't given the name, it is not recorded.",
    "User: what was the quote from the roofer? Assistant: Unknown, nothing saved. User: thanks anyway",
    "User: Which region do the backups live in? Assistant: I never received that. User: hm, will look it up",
    "User: any idea what the guest wifi is called? Assistant: No idea, you've never mentioned it.",
    "User: How many seats did we buy? Assistant: There's no seat count on record. Would you like to add one?",
    "User: what's the vet's number? Assistant: I don't see a vet's number anywhere, but you could ask Ida.",
    "User: in which drawer are the passports? Assistant: I have never been told where the passports are.",
    "User: what is the tariff code for olive oil? Assistant: I am not aware of a tariff code for olive oil.",
    "Me: what's the dose for the dog? Bot: I have no dose stored; please call the vet.",
    "User: what's our Sentry DSN? Claude: I've nothing on that.",
    "User: What did we decide about dark mode? Assistant: I haven't got any decision about dark mode.",
    "User: Wie heißt der Hausmeister? Assistant: Das weiß ich nicht, dazu ist nichts gespeichert.",
    "User: Wann läuft der Vertrag aus? Assistant: Ich habe leider kein Datum für den Vertrag.",
    "Usuario: ¿cuál es la clave del almacén? Asistente: No tengo la clave del almacén.",
    "User: Quel est le code du portail ? Assistant: Je n'ai pas de code pour le portail.",
    "Utente: qual è il numero della caldaia? Assistente: Non ho il numero della caldaia.",
    "Asked the bot for the meter reading of March; it had none stored.",
    "Lior asked the assistant which courier we use for Malta. It didn't know.",
    "I wanted to know the code of the loft from the app. The app found nothing.",
    "Yusuf asked what the fire drill word was; the assistant could not find it.",
)

ANSWERED = (
    "User: Which port has the broker? Assistant: I don't know the old one, but it listens on 1883 now.",
    "User: Which port has the broker? Assistant: I don't have it in my notes. docker ps shows 1883.",
    "User: What's Marta's birthday? Assistant: I have no birthday for Marta. User: it's the 4th of May, note it",
    "User: who runs payroll? Assistant: I don't know. User: Desmond, remember that",
    "User: where do we log bugs? Assistant: You haven't told me. User: it's in Linear now",
    "User: which key opens the loft? Assistant: I don't know, only that the cellar key is brass.",
    "User: why does the build hang? Assistant: I don't know the cause, but restarting the daemon cures it.",
    "User: does he eat fish? Assistant: No, he does not eat fish. He told you he is allergic.",
    "User: is there a lift in the house? Assistant: There is no lift; the flat is on the fourth floor.",
    "User: can I deploy on Fridays? Assistant: No, nothing is deployed on Fridays.",
    "User: The van's plate is KR 88 PL now. Which insurer covers it? Assistant: I have no insurer stored.",
    "User: we don't know who took the keys, so I changed the lock. Assistant: Noted, the lock was changed.",
    "User: the token is missing. Assistant: I don't have access to the vault; set VAULT_ADDR first and log in again.",
    "User: Ilse called. Assistant: I don't have a note about Ilse. ",
    "User: What did we pick? Assistant: You picked walnut for the shelf and oak for the desk.",
    "User: any news? Assistant: Nothing stored today, the import failed at 3 because the disk was full.",
    "User: I prefer pnpm, never npm. Assistant: Understood, pnpm it is.",
    "Nothing is stored in the cellar since the flood.",
    "The customer asked for a refund and we had none to give, so she got a voucher.",
    "Asked the bot for the PIN and it had none stored. It is 4711, taped under the lid.",
    "I don't know how to swim, so no kayaking trips please.",
    "Users have no records in the archive before 2019.",
    "User: which host? Assistant: I don't have that on file. Checked the ticket: the host is db4.internal.",
    "User: Wo steht der Server? Assistant: Ich habe keine Adresse, aber im Ticket steht Halle B.",
    "User: which glue? Assistant: I have nothing stored. User: turns out Titebond was used",
)


@pytest.mark.parametrize("text", UNANSWERED)
def test_a_session_in_which_nobody_knew_is_recognised(text: str) -> None:
    assert is_unanswered(text)


@pytest.mark.parametrize("text", ANSWERED)
def test_a_session_that_holds_an_answer_is_kept(text: str) -> None:
    assert not is_unanswered(text)


def test_an_answer_in_typographic_quotes_reads_the_same() -> None:
    assert is_unanswered("User: “what’s the PIN?” Assistant: “I don’t have a PIN stored.”")


@pytest.mark.parametrize(
    "unit", ["no ", "User: ", "I have ", "Assistant: I don't ", "asked it ", "?", "it, but "]
)
def test_time_grows_with_the_text_and_not_faster(unit: str) -> None:
    text = ("User: which? Assistant: " + unit * LONGEST)[:LONGEST]
    begun = time.process_time()

    is_unanswered(text)

    assert time.process_time() - begun < 0.5
