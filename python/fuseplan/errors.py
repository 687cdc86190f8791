"""What can be refused, with the reasons as fields."""

from __future__ import annotations


class Error(Exception):
    """Any error of this package that is not a wrong argument."""


class UnsupportedError(Error):
    """An operator, or a plan, that cannot be computed; the plan is as it was before.

    `operator` is its kind (of a plan that no solver takes: its operators), `index` its place in the plan, `property` what of
    it is not accepted, `found` what that is, and `accepted` the nearest that would be.
    """

    def __init__(
        self,
        message: str,
        operator: str = "",
        index: int | None = None,
        property: str = "",
        found: str = "",
        accepted: str = "",
    ) -> None:
        super().__init__(message, operator, index, property, found, accepted)
        self.operator = operator
        self.index = index
        self.property = property
        self.found = found
        self.accepted = accepted

    def __str__(self) -> str:
        return str(self.args[0])


class OperandError(Error, ValueError):
    """An array that a plan cannot use where it lies, for its data type, shape, strides, device or because it must not be
    written. Nothing is copied behind the caller's back, so such an array has to be converted before the call."""

    def __init__(self, operand: str, property: str, found: str, accepted: str) -> None:
        super().__init__(operand, property, found, accepted)
        self.operand = operand
        self.property = property
        self.found = found
        self.accepted = accepted

    def __str__(self) -> str:
        return f"{self.operand}: {self.property} {self.found}; accepted: {self.accepted}"


class DeviceError(Error, RuntimeError):
    """A device, its driver or its compiler is missing, refuses or fails."""
