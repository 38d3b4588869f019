"""What Schemathesis need not send."""

import schemathesis


@schemathesis.hook
def filter_case(_context, case) -> bool:
    """ProtoJSON takes `null` as "not given", which no schema of a field says: it would be there for every field."""
    return not has_null(case.body)


def has_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(has_null(each) for each in value.values())
    if isinstance(value, list):
        return any(has_null(each) for each in value)
    return value is None
