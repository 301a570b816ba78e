"""Checks of meaning: settings against each other and the data, labels against the documents.

`workspace.load` has checked the syntax before; the gate (`deploy`) measures afterwards. Every level reports all of
its findings. Called by `deploy` and `skep tune validate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from skep.errors import ConfigError, did_you_mean
from skep.retrieval.recall_config import from_dict
from skep.tuning.document_index import Sources, read_sources
from skep.tuning.documents import chunk
from skep.tuning.findings import Finding
from skep.tuning.schemas import EVERYTHING, RESERVED
from skep.tuning.search_config import (
    OUTSIDE_RECALL_CONFIG,
    SearchConfig,
    effective_weights,
    field_tag,
    recall_settings,
)
from skep.tuning.workspace import Collection, EvalSet, Workspace, is_document_path

MEMORY = "memory:"
"""Starts a label that names a memory of the bank and not a document."""


def check_files(workspace: Workspace) -> tuple[Finding, ...]:
    """Everything that is wrong with the files of a workspace, in syntax and in meaning."""
    findings = list(workspace.findings)
    read: dict[str, Sources] = {}
    for name, collection in workspace.collections.items():
        if RESERVED in collection.fields:
            place, fix = f"collections/{name}.json", "choose another name"
            what = f"the field {RESERVED!r} is taken: every chunk has it"
            findings.append(
                Finding(code="bad-name", file=place, path=f"fields.{RESERVED}", what=what, fix=fix)
            )
        read[name] = read_sources(workspace, collection)
        findings.extend(finding for finding in read[name].findings if finding not in findings)
    for name, config in workspace.configs.items():
        findings.extend(check_config(config, read, file=f"configs/{name}.json"))
    findings.extend(check_evals(workspace.evals.values(), read))
    return tuple(findings)


def check_config(config: SearchConfig, read: Mapping[str, Sources], *, file: str = "") -> tuple[Finding, ...]:
    """Findings about settings of one config that do not go together or with the data."""
    return tuple(_config_findings(config, read, file or f"configs/{config.name}.json"))


def _config_findings(config: SearchConfig, read: Mapping[str, Sources], file: str) -> Iterator[Finding]:
    def found(code: str, path: str, what: str, fix: str, *, warn: bool = False) -> Finding:
        severity = "warning" if warn else "error"
        return Finding(code=code, file=file, path=path, what=what, fix=fix, severity=severity)

    found_by, cut = config.retrieval, config.dynamic_k
    if config.distraction_detection.enabled and found_by.method != "hybrid":
        what = f"detection compares words and meaning; {found_by.method!r} looks at one of them"
        yield found(
            "detection-needs-hybrid",
            "distraction_detection.enabled",
            what,
            "set retrieval.method to 'hybrid'",
        )
    if cut.min_results > cut.max_results:
        what = f"min_results ({cut.min_results}) is above max_results ({cut.max_results})"
        yield found("min-above-max", "dynamic_k.min_results", what, "lower it, or raise max_results")
    if cut.enabled and cut.min_results > found_by.top_k:
        what = f"min_results ({cut.min_results}) is above retrieval.top_k ({found_by.top_k})"
        yield found("min-above-max", "dynamic_k.min_results", what, "lower it, or raise top_k")
    if not any(effective_weights(found_by).values()):
        what = "all weights are 0, so everything would score alike"
        yield found("weights-all-zero", "retrieval.weights", what, "give at least one signal a weight")
    elif refusal := refused_by_pipeline(config):
        yield found("config-refused", "retrieval", refusal, "change it as the message says")
    if config.collection == EVERYTHING:
        return
    sources = read.get(config.collection)
    if sources is None:
        what = (
            f"there is no usable collection {config.collection!r}" if config.collection else "it names none"
        )
        yield found("unknown-collection", "collection", what, did_you_mean(config.collection, read))
        return
    chunks = _chunk_count(sources) if found_by.top_k > len(sources.sources) else found_by.top_k
    if sources.sources and found_by.top_k > chunks:
        what = f"top_k is {found_by.top_k} and the collection has {chunks} chunks"
        yield found("k-above-collection", "retrieval.top_k", what, f"use {chunks} or less", warn=True)
    yield from _filter_findings(config, sources, file)


def _chunk_count(sources: Sources) -> int:
    how = sources.collection.chunking
    return sum(len(chunk(source.document.path, source.document.text, how)) for source in sources.sources)


def _filter_findings(config: SearchConfig, sources: Sources, file: str) -> Iterator[Finding]:
    collection, values = sources.collection, sources.values()
    for field, wanted in config.filters.items():
        path = f"filters.{field}"
        if field not in collection.fields:
            what = f"the collection {collection.name!r} has no field {field!r}"
            fix = did_you_mean(field, collection.filterable)
            yield Finding(code="filter-field-unknown", file=file, path=path, what=what, fix=fix)
        elif field not in values:
            what = f"the field {field!r} is not filterable"
            fix = f"set fields.{field}.filterable to true in collections/{collection.name}.json"
            yield Finding(code="filter-field-not-filterable", file=file, path=path, what=what, fix=fix)
        else:
            for at, value in enumerate(wanted):
                text = field_tag(field, value).partition(":")[2]
                if text not in values[field]:
                    what = f"no document has the {field} {text!r}"
                    fix = did_you_mean(text, values[field]) if values[field] else _unstated(field, collection)
                    yield Finding(
                        code="filter-value-unknown", file=file, path=f"{path}[{at}]", what=what, fix=fix
                    )


def _unstated(field: str, collection: Collection) -> str:
    return (
        f"no document states it: begin the documents with front matter ({field}: …), or set fields.{field}.from_folder "
        f"to true in collections/{collection.name}.json where the folders are named so"
    )


def refused_by_pipeline(config: SearchConfig) -> str:
    """The recall pipeline's refusal of a config; empty when it takes it."""
    settings = recall_settings(config)
    try:
        from_dict({key: value for key, value in settings.items() if key not in OUTSIDE_RECALL_CONFIG})
    except ConfigError as error:
        return str(error)
    return ""


def check_evals(evals: Iterable[EvalSet], read: Mapping[str, Sources]) -> tuple[Finding, ...]:
    """Findings about labels of documents that do not exist, or that are labelled in two ways."""
    findings: list[Finding] = []
    seen: dict[str, str] = {}
    for eval_set in evals:
        file = f"evals/{eval_set.name}.json"
        if eval_set.collection not in read and eval_set.collection != EVERYTHING:
            what, fix = (
                f"there is no usable collection {eval_set.collection!r}",
                did_you_mean(eval_set.collection, read),
            )
            findings.append(
                Finding(code="unknown-collection", file=file, path="collection", what=what, fix=fix)
            )
            continue
        findings.extend(_query_findings(eval_set, read, file, seen))
        for split, code in (("holdout", "no-holdout"), ("tune", "no-tune")):
            if not any(query.split == split for query in eval_set.queries):
                what, fix = f"no query has the split {split!r}", f'give about half of them "split": "{split}"'
                findings.append(
                    Finding(code=code, file=file, path="queries", what=what, fix=fix, severity="warning")
                )
    return tuple(findings)


def _query_findings(
    eval_set: EvalSet, read: Mapping[str, Sources], file: str, seen: dict[str, str]
) -> Iterator[Finding]:
    known: set[str] | None = None
    if eval_set.collection in read:
        known = {source.document.path for source in read[eval_set.collection].sources}
    for at, query in enumerate(eval_set.queries):
        place = f"queries[{at}]"
        if query.id in seen:
            what, fix = f"the id {query.id!r} is also used in {seen[query.id]}", "give each query its own id"
            yield Finding(code="duplicate-id", file=file, path=f"{place}.id", what=what, fix=fix)
        seen.setdefault(query.id, f"{file}:{place}")
        for key in ("relevant", "distractors"):
            yield from _label_findings(getattr(query, key), known, file, f"{place}.{key}")
        for document in set(query.relevant) & set(query.distractors):
            what, fix = f"{document!r} is both relevant and a distractor", "decide for one"
            yield Finding(code="label-conflict", file=file, path=place, what=what, fix=fix)
        for document in set(query.grades) - set(query.relevant):
            what, fix = (
                f"{document[:80]!r} has a grade and is not relevant",
                did_you_mean(document, query.relevant),
            )
            yield Finding(code="document-unknown", file=file, path=f"{place}.grades", what=what, fix=fix)


def _label_findings(
    labels: tuple[str, ...], known: set[str] | None, file: str, path: str
) -> Iterator[Finding]:
    for at, document in enumerate(labels):
        place = f"{path}[{at}]"
        if document in labels[:at]:
            what, fix = f"{document[:80]!r} is listed twice", "keep one of them"
            yield Finding(code="duplicate-id", file=file, path=place, what=what, fix=fix)
        elif document.startswith(MEMORY):
            continue
        elif not is_document_path(document):
            what, fix = f"{document[:80]!r} is not a path below documents/", "write it as folder/file.md"
            yield Finding(code="outside-workspace", file=file, path=place, what=what, fix=fix)
        elif known is not None and document not in known:
            what, fix = f"there is no document {document[:80]!r}", did_you_mean(document, known)
            yield Finding(code="document-unknown", file=file, path=place, what=what, fix=fix)
