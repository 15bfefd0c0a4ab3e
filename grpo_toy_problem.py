#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""GRPO on one question with three answers: how a group's average turns scores into learning.

The policy is a list of probabilities, one for each answer. Nobody tells it which answer is right:
it only sees what the answers that it drew score. Each step has five parts:

                 here                                 in microgrpo.py
    1 group      GROUP_SIZE answers, drawn with the   G games that start from the same board
                 policy's probabilities
    2 score      the answer's number in SCORES        the game's reward
    3 baseline   the group's mean score               the group's mean reward
    4 advantage  score - baseline                     group_advantages
    5 update     add LR x advantage to the answer's   the gradient of grpo_objective, then
                 probability, once for each draw      AdamWOptimizer.step

So an answer above its group's average is pushed up, and one below it is pushed down. This toy
changes the probabilities themselves; microgrpo.py changes the params of a neural network, with a
gradient and AdamW, on several groups at once. It also has what the toy leaves out: the ratio of the
new to the old probability, the clip of that ratio, the KL term, and the division of the advantages
by the group's standard deviation.

Run it. Then change a constant below, predict the table, rerun, compare, and say why:

    EASY_MODE = True         every answer gets full marks. What is learned?
    DIFFICULTY = "hard"      which probability climbs first? And with "easy"?
    GROUP_SIZE = 2, then 1   how few answers are enough to compare?
    LR = 0.02                how long is the climb now? And with STEPS = 100?
    SCORES                   add 10 to each score. Which columns change?
    a fourth answer          "almost", with a score of 0.9. How long does it last? It needs a fourth
                             entry in ANSWERS, in SCORES, and in the list of START_PROBS that
                             DIFFICULTY picks: [0.25, 0.25, 0.25, 0.25].
"""

import random
import sys
from statistics import mean  # exact: the mean of equal scores is that score, to the last bit

ANSWERS = ["correct", "partial", "wrong"]  # one more here needs one more in the lists below
SCORES = [1.0, 0.5, 0.0]  # one for each answer; only the differences between them teach
EASY_MODE = False  # True: every answer scores 1.0
DIFFICULTY = "learnable"  # picks from START_PROBS; "easy": a short climb; "hard": a longer one
GROUP_SIZE = 20  # answers in a group, drawn anew in each step
STEPS = 40  # groups to learn from; more: time for a small LR or GROUP_SIZE to get there
LR = 0.15  # learning rate; 0.02: a climb of many small steps; 1.0: of a few big ones
SEED = 0  # decides the draws; another: another path to the same end
START_PROBS = {  # the policy before the first step; less for the best answer: a longer climb
    "easy": [0.90, 0.08, 0.02],
    "learnable": [1 / 3, 1 / 3, 1 / 3],
    "hard": [0.06, 0.24, 0.70],
}


def scores_now() -> list[float]:
    """Return what each answer scores."""
    return [1.0 if EASY_MODE else float(score) for score in SCORES]


def start_probs() -> list[float]:
    """Return the policy before the first step: the probability of each answer."""
    return list(START_PROBS[DIFFICULTY])


def step(probs: list[float], scores: list[float], rng: random.Random) -> tuple[list[float], float]:
    """Learn from one group: (new probabilities, average reward). `probs` itself stays as it is."""
    group = rng.choices(range(len(probs)), weights=probs, k=GROUP_SIZE)
    rewards = [scores[answer] for answer in group]
    baseline = mean(rewards)
    advantages = [reward - baseline for reward in rewards]
    updated = list(probs)
    if not any(advantages):  # all scores tie: nothing to learn, so no floor and no rounding either
        return updated, baseline
    for answer, advantage in zip(group, advantages, strict=True):
        updated[answer] += LR * advantage
    # The floor keeps every answer possible; the ceiling keeps a huge LR or score from overflowing.
    updated = [min(max(p, 1e-4), 1e300) for p in updated]
    total = sum(updated)
    return [p / total for p in updated], baseline  # divided by their total, they sum to 1 again


def bar(p: float, width: int = 24) -> str:
    """Draw a probability as text: `width` characters, a share p of them filled."""
    filled = round(p * width)
    return "#" * filled + "." * (width - filled)


def columns(probs: list[float]) -> str:
    """Write each probability under its heading, P(answer)."""
    return "  ".join(f"{p:{len(f'P({a})')}.2f}" for p, a in zip(probs, ANSWERS, strict=True))


def main() -> None:
    """Learn for STEPS steps; print a table of them, and what it shows."""
    check()
    scores, probs, rng = scores_now(), start_probs(), random.Random(SEED)  # noqa: S311 - no secrets
    start, shown, unmoved = probs[0], columns(probs), 0
    headings = [f"P({answer})" for answer in ANSWERS]
    # These steps get a row in any case, others only if a printed probability changed.
    rows = {*range(11), *range(0, STEPS, max(10, STEPS // 4)), STEPS}
    print("step ", "average reward", *headings, f"{headings[0]} from 0 to 1", sep="  ")
    print(f"{'start':21}  {shown}  {bar(start)}")
    for number in range(1, STEPS + 1):
        before = probs
        probs, average = step(before, scores, rng)
        unmoved += probs == before
        if number in rows or columns(probs) != shown:
            shown = columns(probs)
            print(f"{number:<5}  {average:14.2f}  {shown}  {bar(probs[0])}")

    print(f"\n{headings[0]} was {start:.2f} at the start and is {probs[0]:.2f} after step {STEPS}.")
    print(f"Steps that moved no probability at all: {unmoved} of {STEPS}.")
    if GROUP_SIZE == 1 or len(set(scores)) == 1:
        print(f"Every answer scored its group's average (in step {STEPS}: {average:.2f}),")
        print(f"so each of the {GROUP_SIZE * STEPS} advantages was 0: there was nothing to learn.")
    else:
        print("A step pushes answers above their group's average up, and those below it down.")
        print("Where a whole group scores the same, each advantage is 0 and nothing moves.")


def require(allowed: object, name: str, value: object, what: str) -> None:
    """Refuse a constant that cannot work, in one sentence that says what can."""
    if not allowed:
        sentence = f"{name} = {value!r} cannot work: it must be {what}."
        raise ValueError(sentence)


def check() -> None:
    """Raise ValueError if a constant cannot work."""
    most = sys.float_info.max  # no infinity and no nan is between -most and most

    def numbers(values: list[float], low: float, high: float) -> bool:
        listed = isinstance(values, list | tuple) and len(values) == len(ANSWERS)
        return listed and all(isinstance(v, int | float) and low <= v <= high for v in values)

    ok = isinstance(ANSWERS, list | tuple) and all(isinstance(answer, str) for answer in ANSWERS)
    require(ok and ANSWERS, "ANSWERS", ANSWERS, "a list of strings")
    each = f"a list of {len(ANSWERS)} finite numbers, one for each of ANSWERS"
    require(numbers(SCORES, -most, most), "SCORES", SCORES, each)
    require(isinstance(EASY_MODE, bool), "EASY_MODE", EASY_MODE, "True or False")
    require(isinstance(START_PROBS, dict), "START_PROBS", START_PROBS, "a dict of lists")
    known = list(START_PROBS)
    require(DIFFICULTY in known, "DIFFICULTY", DIFFICULTY, f"one of {known}, as in START_PROBS")
    probs = START_PROBS[DIFFICULTY]
    ok = numbers(probs, 0, 1) and round(sum(probs), 6) == 1
    require(ok, f"START_PROBS[{DIFFICULTY!r}]", probs, f"{each}, none negative, that sum to 1")
    for name, value in {"GROUP_SIZE": GROUP_SIZE, "STEPS": STEPS}.items():
        require(type(value) is int and value >= 1, name, value, "an integer of at least 1")
    require(isinstance(LR, int | float) and 0 < LR <= most, "LR", LR, "a finite number above 0")
    require(type(SEED) is int, "SEED", SEED, "an integer")


if __name__ == "__main__":  # pragma: no cover - the tests run it in a process of its own
    try:
        main()
    except ValueError as refusal:
        sys.exit(str(refusal))
