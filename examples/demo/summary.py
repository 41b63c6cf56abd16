"""Prints the results of the demo as one table."""
import sys

from show import load


def main():
    train, resume, pictures = load("train"), load("resume"), load("pictures")
    rates = pictures.get("rates", {})
    rows = [
        ("trained with", train.get("model", "-"), None),
        ("held-out accuracy", f"{train.get('accuracy', 0):.1%}, "
         f"at least {train.get('goal', 0):.0%} was stated", train.get("reached")),
        ("training waited for data", f"{train.get('wait_share', 0):.1%} of the time", None),
        ("resume in mid-epoch", f"{resume.get('steps', 0)} steps, the same ids and pixels with "
         "1, 2 and 3 threads", resume.get("same")),
        ("images/s, 224 x 224", ", ".join(f"{rate:,.0f} with {n} thread{'s' if n != '1' else ''}"
                                          for n, rate in rates.items()), None),
        ("contact sheet", pictures.get("sheet", "-"), None),
        ("throughput plot", pictures.get("graph", "-"), None),
        ("time in all", f"{float(sys.argv[1]):.0f} s", None),
    ]
    width = max(len(name) for name, _, _ in rows)
    for name, text, passed in rows:
        mark = {True: "ok ", False: "NO ", None: "   "}[passed]
        print(f"  {mark}{name:<{width}}  {text}")


if __name__ == "__main__":
    main()
