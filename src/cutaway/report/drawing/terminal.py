"""stand-in"""


def print_drawing(d):
    from cutaway.console import print_json

    print_json(d.plain())
