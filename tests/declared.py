"""A layer that states limits, where a test is not about finding them."""

from dataclasses import replace

from coterie.messages.verbs import Question


class Declared:
    """Puts limits (``rows``, ``box``, ...) onto every question; what a question itself states goes first."""

    state = b""

    def __init__(self, limits):
        self.limits = dict(limits)

    def around(self, protocol):
        answer, failure = None, None
        while True:
            try:
                question = protocol.send(answer) if failure is None else protocol.throw(failure)
            except StopIteration as stop:
                return stop.value
            if isinstance(question, Question):
                question = replace(question, limits={**self.limits, **question.limits})
            answer, failure = None, None
            try:
                answer = yield question
            except Exception as problem:
                failure = problem

    def lower(self, question):
        return (yield question)
