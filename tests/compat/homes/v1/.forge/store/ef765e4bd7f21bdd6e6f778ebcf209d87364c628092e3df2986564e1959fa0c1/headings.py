import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--file")
parser.add_argument("--depth", type=int)
given = parser.parse_args()
with open(given.file, encoding="utf-8") as text:
    for line in text:
        marks = line.split(" ")[0]
        if marks and set(marks) == {"#"} and len(marks) < given.depth + 1:
            print(line, end="")
