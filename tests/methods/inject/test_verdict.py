"""The sentences of inject and fisher name the right training and the right numbers."""

from cutaway.methods.inject.verdict import fisher_verdict, inject_verdict


def point(name: str, strength: float, exact: float, lost: float, **more: float) -> dict:
    cell = {"regulariser": name, "strength": strength}
    return {**cell, "exact_match": exact, "forgetting": lost, **more}


PLAIN = point("none", 0.0, 0.90, 2.5)


def test_plain_training_comes_first_with_what_it_gains_and_loses() -> None:
    first, second, third = inject_verdict(
        [point("ewc", 1, 0.89, 0.2), PLAIN], 0.1, "arithmetic", 60
    )
    assert first.startswith("Plain training changes exact match on arithmetic from 10% to 90%")
    assert "the loss on retained texts rises by 2.50 nats" in first
    assert "ewc at strength 1" in second and "89%" in second and "rises by 0.20 nats" in second
    assert third == "Against plain training: 60 retained texts can't tell, +2.300."
    better = inject_verdict([{**PLAIN, "forgetting": -0.08}], 0.1, "arithmetic", 60)[0]
    assert "falls by 0.08 nats" in better and "-0.08" not in better


def test_a_regulariser_that_did_not_learn_the_skill_is_not_called_best() -> None:
    weak = point("l2sp", 10, 0.2, 0.01)
    good = point("kl", 0.5, 0.86, 0.4)
    assert "kl at strength 0.5" in inject_verdict([PLAIN, weak, good], 0.0, "arithmetic", 60)[1]
    # Unless none did.
    assert "l2sp at strength 10" in inject_verdict([PLAIN, weak], 0.0, "arithmetic", 60)[1]


def test_less_forgetting_is_a_claim_only_when_it_is_shown() -> None:
    def ends(reach: float, lost: float) -> dict:
        return {"forgetting_low": lost - reach, "forgetting_high": lost + reach}

    def outcome(reach: float, *others: dict) -> str:
        plain = {**PLAIN, **ends(reach, 2.5)}
        ewc = point("ewc", 1, 0.89, 2.3, **ends(reach, 2.3))
        return inject_verdict([plain, ewc, *others], 0.1, "arithmetic", 60)[-1]

    assert outcome(0.1).startswith("Against plain training: less forgetting, +0.200 [+0.059")
    assert "60 retained texts can't tell" in outcome(0.2)
    # Chosen from ten, the same difference is not enough.
    worse = [point("kl", x, 0.9, 2.4) for x in range(9)]
    assert "can't tell" in outcome(0.1, *worse)


def test_without_plain_training_the_least_forgetting_is_named() -> None:
    points = [point("ewc", 1, 0.5, 0.3), point("ewc", 5, 0.4, 0.1)]
    (sentence,) = inject_verdict(points, 0.0, "arithmetic", 60)
    assert "ewc at strength 5" in sentence
    assert inject_verdict([], 0.0, "arithmetic", 60) == []
    assert len(inject_verdict([PLAIN], 0.0, "arithmetic", 60)) == 1


def test_a_fall_of_scores_has_a_minus_sign() -> None:
    plain = {**PLAIN, "probe_forgetting": 0.1, "finetune_forgetting": -0.02}
    (sentence,) = inject_verdict([plain], 0.0, "arithmetic", 60)
    assert "(probe score -0.100, fine-tuning score +0.020)" in sentence


def test_a_fisher_names_its_largest_group() -> None:
    (sentence,) = fisher_verdict({(0, "embeddings"): 0.2, (3, "mlp"): 0.7, (4, "head"): 0.1}, 50)
    assert sentence.startswith("Layer 3 (mlp)")
    assert "70%" in sentence and "50 examples" in sentence
