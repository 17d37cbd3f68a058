import json

from cutaway.report import inline_scripts


def test_json_in_a_script_element_can_not_end_it_and_reads_the_same() -> None:
    value = ["</script>", "\u2028\u2029", "<!--"]
    text = inline_scripts.escape_script(json.dumps(value, ensure_ascii=False))
    assert "<" not in text and "\u2028" not in text
    assert json.loads(text) == value


def test_the_policy_allows_the_given_scripts_by_checksum_and_nothing_else() -> None:
    policy = inline_scripts.content_security_policy("")
    # The SHA-256 of no bytes.
    assert "script-src 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='" in policy
    assert policy.startswith("default-src 'none'") and "unsafe-eval" not in policy
    assert inline_scripts.content_security_policy("a", "b").count("sha256-") == 2
