"""What went wrong on the user's side, in a shape that a person can act on."""


class UserError(Exception):
    """A mistake in the input: where it is, what it is, and what would mend it.

    Commands print it as one line, without a traceback; everything else that is raised is a fault of ours.
    """

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(place, problem, remedy)
        self.place = place
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}; {self.remedy}"


class MissingError(UserError):
    """A right or a tool that the machine lacks: the same line, another exit code."""
