"""Draw a learning curve: `uv run tests/plot_rewards.py battleship_rewards.csv` writes learning_curve.png.

Several files, as of several seeds, are drawn as their median and range.
"""

import sys

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np


def main() -> None:
    """Draw the files named on the command line."""
    runs = np.array([np.loadtxt(name) for name in sys.argv[1:]])
    width = min(32, runs.shape[1])
    smooth = np.array([np.convolve(run, np.ones(width) / width, mode="valid") for run in runs])
    x = np.arange(width, runs.shape[1] + 1)
    figure, axes = plt.subplots(figsize=(8, 4.2), dpi=120)
    axes.plot(x, np.median(smooth, axis=0), color="tab:blue", label=f"policy, median and range of {len(runs)}")
    axes.fill_between(x, smooth.min(axis=0), smooth.max(axis=0), color="tab:blue", alpha=0.25, linewidth=0)
    axes.axhline(0.615, color="tab:green", linestyle="--", label="Bayes-greedy player, 0.615")
    axes.axhline(0.153, color="tab:gray", linestyle="--", label="random play, 0.153")
    axes.set(xlabel="mini-batch", ylabel=f"validation score, mean of {width}", ylim=(0, 0.7), xlim=(0, runs.shape[1]))
    axes.legend(loc="center right")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig("learning_curve.png")
    print("wrote learning_curve.png")


if __name__ == "__main__":
    main()
