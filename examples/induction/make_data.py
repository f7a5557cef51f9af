#!/usr/bin/env python3
"""Writes text that only an induction head can predict: lines of 128 random letters that repeat themselves.

usage: make_data.py FILE [--lines 12000] [--seed 0]

Each line is 8 to 24 random letters again and again. The first time round nothing can be known; from then on the next letter is what
followed the same letters before. As the length of a round changes from line to line, it does not help to look a fixed way back.
"""
import argparse
import random


def line(draw):
    block = "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(8, 24)))
    return (block * 16)[:128]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--lines", type=int, default=12000)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    draw = random.Random(a.seed)
    with open(a.file, "w", encoding="ascii") as out:
        out.writelines(line(draw) + "\n" for _ in range(a.lines))


if __name__ == "__main__":
    main()
