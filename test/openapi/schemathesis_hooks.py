"""Filters requests of Schemathesis."""

import schemathesis


@schemathesis.hook
def filter_case(_context, case) -> bool:
    """Skip null: ProtoJSON reads it as an absent field, but the schemas leave it out for brevity."""
    return not has_null(case.body)


def has_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(has_null(each) for each in value.values())
    if isinstance(value, list):
        return any(has_null(each) for each in value)
    return value is None
