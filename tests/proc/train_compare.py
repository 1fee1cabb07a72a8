"""train_compare.py FOLDER WORK: the report of trainer/compare for made-up runs: winners, whole samples in the CSV, time
slowed down beside waiting, and, where matplotlib is there, legends, whiskers and axes of the pictures."""
import collections
import csv
import os
import sys
import types

sys.path.insert(0, sys.argv[1])
import jobs
import noise
import picture
import report

WORK = sys.argv[2]
OPTIONS = types.SimpleNamespace(command="trainer/compare/run", ranks=4, epochs=2, rounds=3, out=WORK)


def epoch(number, accuracy, speed, sent, slowed=0.0):
    """An epoch of 60,000 samples."""
    return {"epoch": number, "seconds": 60000 / speed, "samples_per_s": speed, "sent_bytes": sent, "test_accuracy": accuracy,
            "train_loss": 1, "test_loss": 1, "comm_wait_share": 0.25, "slowed_share": slowed, "compute_share": 0.5,
            "staleness": [3, 2, 1]}


def rounds(name, accuracies, speeds, sent=1000, slowed=0.0):
    """The runs of a strategy, of two epochs each."""
    return [jobs.Run(name, "undisturbed", turn, [epoch(1, accuracy - 0.02, speed, sent),
                                                 epoch(2, accuracy, speed, sent, slowed)])
            for turn, (accuracy, speed) in enumerate(zip(accuracies, speeds), 1)]


def found(*strategies):
    """Runs as jobs.run_all() gives them."""
    return {"undisturbed": collections.OrderedDict((runs[0].strategy, runs) for runs in strategies)}


def page(runs):
    """The report of these."""
    report.write(OPTIONS, runs)
    with open(os.path.join(WORK, "report.html"), encoding="utf-8") as file:
        return file.read()


def test_winners():
    """Named only if the ranges are apart and there are rounds enough."""
    apart = {"fast": noise.Spread([10, 11, 12], True), "slow": noise.Spread([7, 8, 9.9], True)}
    assert noise.winner_of(apart) == "fast"
    touching = {**apart, "other": noise.Spread([8, 9, 10], True)}
    assert noise.winner_of(touching) is None and noise.best_of(touching) == ["fast", "other"]
    assert noise.winner_of({name: noise.Spread(spread.rounds[:2], True) for name, spread in apart.items()}) is None
    assert noise.winner_of({"quick": noise.Spread([1, 2, 3]), "late": noise.Spread([3.5, None, None])}) == "quick"
    assert noise.winner_of({"quick": noise.Spread([1, 2, 3]), "late": noise.Spread([2.5, None, None])}) is None
    assert noise.best_of({"never": noise.Spread([None, None, None])}) == []


def test_page():
    """The rule, the winner and those without one."""
    text = page(found(rounds("one rank", [0.88, 0.881, 0.882], [9, 9, 9]),
                      rounds("sync", [0.87, 0.871, 0.872], [2000, 2100, 2200], sent=4000),
                      rounds("async", [0.868, 0.8715, 0.873], [3000, 3100, 3200], slowed=0.5)))
    assert "worst round is better than the best round" in text
    assert "samples/s: <b>async</b>" in text and "sent: <b>async</b>" in text
    assert "test accuracy: no difference beyond the noise (async, sync)" in text
    assert "<td class=best>3100 <small>3000 to 3200</small></td>" in text
    assert "-1.00</td>" in text  # sync beside one rank: their ranges are apart
    # Slowed down for half of the second of two epochs of equal length; waiting stays what it is.
    assert "<td>25 %</td><td>25 %</td>" in text and "<td>25 %</td><td>0 %</td>" in text


def test_csv():
    """Every epoch of every round; samples in whole numbers, whatever the time and the speed were rounded to."""
    runs = found(rounds("sync", [0.8, 0.81, 0.82], [7001, 7002, 7003]), rounds("async", [0.8, 0.81, 0.82], [9, 9, 9]))
    runs["undisturbed"]["sync"][0].epochs[0]["seconds"] *= 1.0000001
    page(runs)
    with open(os.path.join(WORK, "epochs.csv"), encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["strategy"], line["round"], line["epoch"]) for line in lines] == [
        (name, str(turn), str(number)) for name in ("sync", "async") for turn in (1, 2, 3) for number in (1, 2)]
    assert [line["samples"] for line in lines] == ["60000", "120000"] * 6


def test_axes():
    """They begin and end at the data; ranges of a factor of 20 and more are logarithmic."""
    low, high, scale = picture.fit(80, 90)
    assert 79 < low < 80 and 90 < high < 91 and scale == "linear"
    low, high, scale = picture.fit(10, 1000)
    assert 5 < low < 10 and 1000 < high < 2000 and scale == "log"
    assert picture.fit(0, 1000)[2] == "linear"
    low, high, scale = picture.fit(5, 5)
    assert low < 5 < high


def test_pictures(pyplot):
    """A legend in each, whiskers from the least to the most, and axes around the data."""
    runs = found(rounds("sync", [0.83, 0.84, 0.85], [2000, 2100, 2200], sent=10**9),
                 rounds("async", [0.868, 0.8715, 0.873], [3000, 3100, 3200], sent=10**7))["undisturbed"]
    for run in (run for same in runs.values() for run in same):
        run.epochs[-1].update(stages=[{"forward": [[0, 1]], "backward": [[1, 2]]}] * 2, bubble=0.5, bubble_formula=0.4)
    figures = picture.figures(pyplot, runs, list(runs))
    assert len(figures) == 2
    for axis in (axis for figure in figures for axis in figure.axes):
        assert axis.get_visible() and len(axis.get_legend().get_texts()) > 0, axis.get_xlabel()
    time, _, sent = figures[0].axes[:3]
    assert 80 < time.get_ylim()[0] < 81 and 87.3 < time.get_ylim()[1] < 88
    assert time.get_xscale() == "linear" and sent.get_xscale() == "log"
    whiskers = time.containers[0].lines[2][1].get_segments()
    assert [(round(low[1], 6), round(high[1], 6)) for low, high in whiskers] == [(81, 83), (83, 85)]
    shown = {text.get_text() for text in figures[0].axes[4].get_legend().get_texts()}
    assert shown == {"compute", "waiting", "slowed down", "the rest"}


test_winners()
test_page()
test_csv()
test_axes()
found_pyplot = picture.load()
if found_pyplot:
    test_pictures(found_pyplot)
