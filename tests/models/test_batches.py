from hypothesis import given
from hypothesis import strategies as st

from cutaway.models.batches import (
    FREE_PADDING_TOKENS,
    MAX_PADDING_SHARE,
    TOKEN_BUDGETS,
    TokenBudget,
    batches_by_length,
)

lengths = st.lists(st.integers(1, 300), min_size=1, max_size=200)
budgets = st.sampled_from(TOKEN_BUDGETS)


@given(lengths, budgets)
def test_every_row_goes_through_once(rows, budget):
    batches = [batch for batch, _ in batches_by_length(rows, TokenBudget(fixed=budget))]
    assert sorted(i for b in batches for i in b.rows.tolist()) == list(range(len(rows)))


@given(lengths, budgets)
def test_a_batch_stays_within_the_budget_unless_one_row_is_longer(rows, budget):
    for batch, _ in batches_by_length(rows, TokenBudget(fixed=budget)):
        assert batch.width * len(batch.rows) <= budget or len(batch.rows) == 1


@given(lengths, budgets)
def test_padding_is_a_few_percent_at_most(rows, budget):
    for batch, _ in batches_by_length(rows, TokenBudget(fixed=budget)):
        assert batch.tokens == sum(rows[i] for i in batch.rows)
        padded = batch.width * len(batch.rows)
        assert batch.tokens >= (1 - MAX_PADDING_SHARE) * padded or padded <= FREE_PADDING_TOKENS


@given(lengths)
def test_the_longest_rows_come_first(rows):
    widths = [batch.width for batch, _ in batches_by_length(rows, TokenBudget(fixed=512))]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == max(rows)


def _learn(budget: TokenBudget, speed: dict[int, float], batches: int = 40) -> None:
    for _ in range(batches):
        now = budget.current()
        budget.learn(now, 1000, 1000 / speed[now])


def test_the_fastest_budget_is_found_on_the_way():
    budget = TokenBudget()
    _learn(budget, {256: 460, 512: 500, 1024: 540, 2048: 400, 4096: 260})
    assert budget.current() == 1024


def test_larger_budgets_are_not_tried_once_they_get_slower():
    budget = TokenBudget()
    _learn(budget, {256: 500, 512: 300, 1024: 1e9, 2048: 1e9, 4096: 1e9})
    assert budget.current() == 256
    assert set(budget.speeds) == {256, 512}


def test_the_search_settles_once_and_stays():
    budget, speed = TokenBudget(), {256: 460, 512: 500, 1024: 540, 2048: 400, 4096: 260}
    settled = []
    for _ in range(40):
        now = budget.current()
        settled.append(budget.learn(now, 1000, 1000 / speed[now]))
    assert sum(settled) == 1
    assert budget.fixed == 1024
    budget.learn(1024, 1000, 1e9)
    assert budget.current() == 1024


def test_a_fixed_budget_stays():
    budget = TokenBudget(fixed=777)
    budget.learn(777, 10, 1.0)
    assert budget.current() == 777
