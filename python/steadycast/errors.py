"""Mistakes that a user can mend: a place, the problem, and what to do."""


class UserError(Exception):
    """Bad input or usage. Printed as "place: problem; remedy", never with a traceback."""

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(f"{place}: {problem}; {remedy}")
        self.place = place
        self.problem = problem
        self.remedy = remedy
