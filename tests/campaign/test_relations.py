"""A small part of the relations campaign; it finds wrong results."""

import numpy as np
from quick import partly_slow

from campaign import relations
from campaign.relations import LIKELIHOODS, MODELS, RELATIONS, Found, Related, case_of, run


def test_every_model_likelihood_and_relation_is_drawn():
    cases = list(map(case_of, range(2000)))
    assert {case.model for case in cases} == set(MODELS)
    assert {case.likelihood for case in cases} == set(LIKELIHOODS)
    assert {case.relation for case in cases} == set(RELATIONS)


def first_of(relation, model):
    """The first case of a relation and a model."""
    return next(
        case
        for case in map(case_of, range(5000))
        if (case.relation, case.model) == (relation, model)
    )


@partly_slow(
    ("relation", "model"),
    [
        ("order of rows", "APEP"),
        ("units of inputs", "PEPR blocks"),
        ("origin of inputs", "ARPEP"),
        ("units of outputs", "BTSGPR"),
        ("columns of outputs", "PEPR"),
        ("chunks", "TSGPR"),
        ("copy", "RPAPEP"),
        ("compiled", "PEPSVGP"),
        ("labels", "TSVGP"),
        ("another class", "StreamingPEP"),
        ("batches", "StreamingSGPR"),
    ],
    quick=[("units of outputs", "BTSGPR"), ("labels", "TSVGP")],
)
def test_a_small_share(relation, model):
    outcome = run(first_of(relation, model))
    assert outcome.verdict == "right", outcome


def test_wrong_numbers_are_found(monkeypatch):
    """A relative error of 1e-4 in any of them, or NaN."""
    case = first_of("copy", "PEPR")

    def wrong(field, by):
        def relation(case, model, found, rng):
            return found, found._replace(**{field: getattr(found, field) * (1.0 + by) + by}), model

        return Related(relation)

    for field in Found._fields:
        monkeypatch.setitem(relations.RELATIONS, "copy", wrong(field, 1e-4))
        assert run(case).verdict == f"wrong {field}"
        monkeypatch.setitem(relations.RELATIONS, "copy", wrong(field, np.nan))
        assert run(case)[::2] == ("not finite", field)
