"""What a finished run prints: the verdict, then rows with precision@1 first."""


def test_a_run_prints_its_verdict_and_its_rows(evaluated, capsys) -> None:
    evaluated.show()
    printed = " ".join(capsys.readouterr().out.split())
    assert " ".join(evaluated.verdict[0].split()) in printed
    assert "precision@1" in printed


def test_a_fit_prints_r2(fitted, capsys) -> None:
    fitted.show()
    assert "r2" in capsys.readouterr().out
