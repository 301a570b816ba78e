"""Replay of scripted sessions through the hook for actions: repeated errors that were shown in time, and disturbance.

Run `python -m benchmarks.action_replay`. The sessions below are written by hand: 24 errors that a memory would have
prevented, told in the words of a person; 20 memories that are beside the point; and ordinary actions on the same
programs, folders and files. Each repeated error comes as an action of another form than its memory has.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from skep.bank.bank import Bank
from skep.integrations.hooks import respond

NOW = 1_790_000_000.0

ERRORS: list[tuple[str, str, Any]] = [
    # what was remembered; the tool and what is about to happen again
    ("Never run `npm install` in web/: it breaks the lockfile. Use pnpm.", "Bash", "cd web && npm install left-pad"),
    ("`git push --force` on main deleted two colleagues' commits; push with --force-with-lease.", "Bash",
     "git push --force origin main"),
    ("`alembic upgrade head` fails with 'multiple heads' until the branches are merged first.", "Bash",
     "DATABASE_URL=x alembic upgrade head"),
    ("src/auth/session.py: setting the cookie without a path broke the login on staging.", "Edit",
     ("/home/u/shop/src/auth/session.py", "response.set_cookie('sid', sid)")),
    ("docker compose down -v wiped the local database; leave -v out.", "Bash",
     "docker compose down -v --remove-orphans"),
    ("`pytest tests/integration` hangs without REDIS_URL; start redis first.", "Bash",
     "python -m pytest -q tests/unit; pytest tests/integration -x"),
    ("deploy/values.yaml must keep replicas at 3: with 1 the rollout failed.", "Edit",
     ("deploy/values.yaml", "replicas: 1")),
    ("The build fails if `make proto` was not run after api/user.proto changed.", "Write",
     ("/w/api/user.proto", "message User {}")),
    ("`terraform apply` without -target=module.web destroyed the cache; never apply everything.", "Bash",
     "terraform apply -auto-approve"),
    ("compute_tax() is wrong for net prices: it must get the gross amount.", "Edit",
     ("/w/shop/cart.py", "total = compute_tax(net)")),
    ("`pip install -U numpy` broke the wavelet feature, pinned to 1.26; do not upgrade it.", "Bash",
     "pip install -U numpy pandas"),
    ("config/nginx.conf: a trailing slash in proxy_pass caused the 404 errors in May.", "Edit",
     ("/w/config/nginx.conf", "proxy_pass http://app/;")),
    ("`cargo publish` failed because CHANGELOG.md was not committed.", "Bash", "cargo publish --token $T"),
    ("migrations/0042_orders.sql locked the table for an hour: use CREATE INDEX CONCURRENTLY.", "Edit",
     ("migrations/0042_orders.sql", "CREATE INDEX orders_at")),
    ("`kubectl delete pvc` lost the search index in March. Take a snapshot first.", "Bash",
     "kubectl -n prod delete pvc search-0"),
    ("scripts/release.sh fails on macOS: sed needs -i ''.", "Bash", "bash scripts/release.sh 1.2.0"),
    ("`git rebase` on the release branch broke the tags; merge instead.", "Bash", "git rebase origin/main"),
    ("Do not call reset_cache() in a request: it deadlocks with the worker.", "Edit",
     ("/w/app/views.py", "def post():\n    reset_cache()")),
    ("`npx prisma migrate reset` wiped staging once. Never run it with the staging URL.", "Bash",
     "DATABASE_URL=$STAGING npx prisma migrate reset"),
    ("`poetry update` without a name breaks the build; update one package at a time.", "Bash", "poetry update"),
    ("ios/Podfile.lock must not be edited by hand; the last time CI rejected it.", "Edit",
     ("ios/Podfile.lock", "PODS:")),
    ("`helm upgrade` without --atomic left a half release; always pass it.", "Bash", "helm upgrade web ./chart"),
    ("The MAX_UPLOAD_BYTES limit is in two places; changing one only caused error 413.", "Edit",
     ("/w/app/settings.py", "MAX_UPLOAD_BYTES = 10_000_000")),
    ("`gh release create` fails without --notes-file: the job has no editor.", "Bash", "gh release create v2 --draft"),
]  # fmt: skip
BESIDE = [
    "The team meets on Mondays at ten", "Ana prefers tabs in Go files", "The staging server is in Frankfurt",
    "git is configured with the work address", "The npm scope of the company is @shop",
    "We use pytest for tests and ruff for style", "The API gateway is written in Go",
    "src/auth holds the login and the sessions", "docker runs on the build machine under podman",
    "Releases are cut on Thursdays", "The cart page loads prices from the catalogue service",
    "The customer wants the report as PDF", "kubectl contexts are named after regions",
    "terraform state is kept in a bucket", "cargo builds take about four minutes",
    "The design uses a grid of eight pixels", "poetry is the package manager of the backend",
    "The mobile app supports iOS 16 and later", "helm charts live in the folder chart",
    "Invoices are numbered by year and counter",
]  # fmt: skip
ORDINARY: list[tuple[str, Any]] = [
    ("Bash", command)
    for command in (
        "git status", "git diff --stat", "git add -A", "git commit -m 'cart: totals'", "git log --oneline -5",
        "git push origin feature/cart", "git fetch", "git checkout -b fix/login", "git stash", "git pull --ff-only",
        "ls -la src", "cat src/auth/login.py", "rg compute src", "pnpm test", "pnpm install", "pnpm run build",
        "npm run lint", "npm test", "pytest -q tests/unit", "pytest tests/unit/test_cart.py", "ruff check src",
        "docker ps", "docker compose up -d", "docker compose logs web", "docker build -t web .", "alembic current",
        "alembic history", "alembic revision -m orders", "make test", "make lint", "terraform plan", "terraform fmt",
        "terraform apply -target=module.web", "cargo build", "cargo test", "cargo fmt", "kubectl get pods",
        "kubectl logs web-1", "kubectl describe pvc search-0", "helm list", "helm template ./chart",
        "helm upgrade web ./chart --atomic", "poetry install", "poetry add httpx", "poetry run pytest", "pip list",
        "pip install -e .", "npx tsc --noEmit", "npx prisma generate", "gh pr create --fill", "gh pr view 12",
        "gh run list", "python manage.py shell", "curl -s localhost:8000/health", "tail -50 log/dev.log",
        "mkdir -p src/cart", "mv a.py b.py", "node scripts/seed.js", "bash scripts/dev.sh", "du -sh .",
    )
] + [
    (tool, (path, text))
    for tool in ("Edit", "Write")
    for path, text in (
        ("/w/src/auth/login.py", "def login(user): ..."), ("/w/src/cart/totals.py", "def total(cart): return 1"),
        ("/w/src/cart/prices.py", "PRICE_TABLE = {}"), ("/w/tests/unit/test_cart.py", "def test_total(): ..."),
        ("/w/web/src/App.tsx", "export function App() {}"), ("/w/web/src/api.ts", "export const load_cart = 1"),
        ("/w/deploy/ingress.yaml", "host: shop"), ("/w/config/app.toml", "debug = true"), ("/w/README.md", "# Shop"),
        ("/w/docs/release.md", "Releases are cut on Thursdays"), ("/w/api/order.proto", "message Order {}"),
        ("/w/migrations/0043_users.sql", "ALTER TABLE users ADD name text"), ("/w/app/models.py", "class User: ..."),
        ("/w/app/urls.py", "urlpatterns = []"), ("/w/shop/checkout.py", "def pay(order): ..."),
        ("/w/ios/App.swift", "struct App {}"), ("/w/scripts/dev.sh", "redis-server &"), ("/w/pyproject.toml", ""),
        ("/w/chart/templates/web.yaml", "kind: Deployment"), ("/w/src/auth/tokens.py", "def new_token(): ..."),
    )
]  # fmt: skip
"""Nothing of this goes wrong."""

FAILURES: list[tuple[str, str]] = [
    # what was remembered; what a command says when it goes wrong
    ("'sqlite3.OperationalError: database is locked' means that the worker still runs; stop it first.",
     "Traceback (most recent call last):\n  File \"app/db.py\", line 8\nsqlite3.OperationalError: database is locked"),
    ("ERR_PNPM_OUTDATED_LOCKFILE in CI: run pnpm install locally and commit pnpm-lock.yaml.",
     "ERR_PNPM_OUTDATED_LOCKFILE  Cannot install with frozen-lockfile because pnpm-lock.yaml is not up to date"),
    ("The TLS handshake with payments.internal fails when the VPN is down.",
     "curl: (35) TLS handshake failed for payments.internal:443"),
    ("ENOSPC on the build machine comes from old images: docker system prune helps, it is not the disk of the job.",
     "write /var/lib/docker/tmp/layer: ENOSPC: no space left on device"),
    ("'No module named _skia' is wrong on Apple chips: install skia from conda-forge instead.",
     "ModuleNotFoundError: No module named '_skia'"),
    ("Error E0502 in parser.rs: the cache must be cloned before the loop.",
     "error[E0502]: cannot borrow `self.cache` as mutable\n  --> src/parser.rs:88:9"),
]  # fmt: skip
OTHER_FAILURES = [
    "bash: pnmp: command not found", "fatal: not a git repository (or any of the parent directories): .git",
    "AssertionError: assert 3 == 4\n1 failed, 12 passed in 0.40s", "SyntaxError: unexpected EOF while parsing",
    "error TS2304: Cannot find name 'cart'.", "cat: src/nothing.py: No such file or directory",
    "ModuleNotFoundError: No module named 'httpx'", "error: failed to push some refs to 'origin'",
    "KeyError: 'total'", "curl: (7) Failed to connect to localhost port 8000",
]  # fmt: skip


def payload(tool: str, given: Any, session: str, event: str = "PreToolUse") -> bytes:
    """A client's message about an action."""
    if tool == "Bash":
        told: dict[str, Any] = {"command": given}
    elif tool == "Write":
        told = {"file_path": given[0], "content": given[1]}
    else:
        told = {"file_path": given[0], "old_string": "", "new_string": given[1]}
    return json.dumps(
        {"hook_event_name": event, "session_id": session, "cwd": "/", "tool_name": tool, "tool_input": told}
    ).encode()


def replay(folder: Path) -> dict[str, float]:
    """Shares of repeated errors that were shown in time, and of ordinary actions that were disturbed."""
    path = folder / "bank.skep"
    with Bank.open(path, embedder="hash:64", now=lambda: NOW) as bank:
        ids = [bank.remember(text, on_conflict="ignore").memory.id for text, _, _ in ERRORS]
        causes = [bank.remember(text, on_conflict="ignore").memory.id for text, _ in FAILURES]
        for text in BESIDE:
            bank.remember(text, on_conflict="ignore")
    environ = {"XDG_DATA_HOME": str(folder), "HOME": str(folder)}

    def shown(tool: str, given: Any, session: str) -> str:
        raw = payload(tool, given, session)
        return respond("claude-code", raw, bank=str(path), environ=environ, now=NOW + 60)

    in_time = wrong = 0
    for number, (_, tool, given) in enumerate(ERRORS):
        told = shown(tool, given, f"repeat-{number}")
        in_time += ids[number] in told
        wrong += bool(told) and ids[number] not in told

    def after(error: str, session: str) -> str:
        told = json.loads(payload("Bash", "make", session, "PostToolUseFailure")) | {"error": error}
        return respond(
            "claude-code", json.dumps(told).encode(), bank=str(path), environ=environ, now=NOW + 60
        )

    known = [causes[at] in after(error, f"error-{at}") for at, (_, error) in enumerate(FAILURES)]
    beside = [bool(after(error, f"other-{at}")) for at, error in enumerate(OTHER_FAILURES)]
    disturbed = [given for tool, given in ORDINARY if shown(tool, given, "ordinary")]
    return {
        "errors": len(ERRORS),
        "in_time": in_time / len(ERRORS),
        "another": wrong / len(ERRORS),
        "failures": len(known),
        "explained": sum(known) / len(known),
        "other_failures": len(beside),
        "misled": sum(beside) / len(beside),
        "actions": len(ORDINARY),
        "disturbed": len(disturbed) / len(ORDINARY),
    }


def cpu_of(folder: Path, bank: Path, raw: bytes, runs: int = 20) -> float:
    """Milliseconds of CPU that a fresh process takes for a hook, as installed: its modules are compiled. The least."""
    environ = {**os.environ, "XDG_DATA_HOME": str(folder), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    took: list[float] = []
    for _ in range(1 + runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "skep", "hook", "claude-code", "--bank", str(bank)]
        subprocess.run(command, input=raw, stdout=subprocess.DEVNULL, check=True, env=environ)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return round(min(took[1:]), 1)


def costs(folder: Path) -> dict[str, float]:
    """CPU of a hook for an action, and for a prompt with the bundled transformer."""
    bank = folder / "transformer.skep"
    with Bank.open(bank, now=lambda: NOW) as opened:
        opened.remember_many([text for text, *_ in ERRORS] + BESIDE)
        opened.reembed()
    asked = {"hook_event_name": "UserPromptSubmit", "cwd": "/", "prompt": "may I push to main with --force?"}
    return {
        "action_cpu_ms": cpu_of(folder, bank, payload("Bash", "git push --force origin main", "")),
        "prompt_cpu_ms": cpu_of(folder, bank, json.dumps(asked).encode()),
    }


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps({**replay(Path(name)), **costs(Path(name))}, indent=2))


if __name__ == "__main__":
    main()
