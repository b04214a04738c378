"""A builder of LLVM text for functions that call CPython's C API.

Start at `Module`: it holds functions, names, method tables and the state, an array of words that Python fills once the
module is linked, so that the text, and with it the object on disk, knows no address of a process. `Function` emits
structured code: values have operators, `when` and `loop` are `with` blocks, and a reference kept by `own` is given
back on every way out. References are taken and given by `Py_IncRef` and `Py_DecRef`, which every version of CPython
exports, so that the text knows nothing of how it counts.

What it does know of objects is `OBJECT_TYPE`, where their type stands; `native.objects` checks that and finds slots.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = ["API", "FASTCALL", "NOARGS", "OBJECT_TYPE", "ONE", "CValue", "Function", "Module", "Variable"]

# Where a build with a global lock has an object's type: after the word of its reference count.
OBJECT_TYPE = 8

# Calling conventions of PyMethodDef.ml_flags: METH_FASTCALL | METH_KEYWORDS, METH_NOARGS and METH_O.
FASTCALL, NOARGS, ONE = 0x82, 0x04, 0x08

# Functions of the C API and of libc by name: what they return, then what they take.
API: dict[str, tuple[str, ...]] = {
    "PyBytes_AsString": ("ptr", "ptr"),
    "PyBytes_FromStringAndSize": ("ptr", "ptr", "i64"),
    "PyCapsule_GetPointer": ("ptr", "ptr", "ptr"),
    "PyCapsule_IsValid": ("i32", "ptr", "ptr"),
    "PyCapsule_New": ("ptr", "ptr", "ptr", "ptr"),
    "PyCapsule_SetName": ("i32", "ptr", "ptr"),
    "PyContextVar_Get": ("i32", "ptr", "ptr", "ptr"),
    "PyDict_GetItemWithError": ("ptr", "ptr", "ptr"),
    "PyDict_Next": ("i32", "ptr", "ptr", "ptr", "ptr"),
    "PyDict_Size": ("i64", "ptr"),
    "PyErr_Clear": ("void",),
    "PyErr_ExceptionMatches": ("i32", "ptr"),
    "PyErr_Fetch": ("void", "ptr", "ptr", "ptr"),
    "PyErr_NoMemory": ("ptr",),
    "PyErr_Occurred": ("ptr",),
    "PyErr_Restore": ("void", "ptr", "ptr", "ptr"),
    "PyErr_SetObject": ("void", "ptr", "ptr"),
    "PyErr_SetString": ("void", "ptr", "ptr"),
    "PyEval_RestoreThread": ("void", "ptr"),
    "PyEval_SaveThread": ("ptr",),
    "PyFloat_AsDouble": ("double", "ptr"),
    "PyGILState_Check": ("i32",),
    "PyGILState_Ensure": ("i32",),
    "PyGILState_Release": ("void", "i32"),
    "PyLong_AsLongLong": ("i64", "ptr"),
    "PyLong_FromLongLong": ("ptr", "i64"),
    "PyLong_FromUnsignedLongLong": ("ptr", "i64"),
    "PyLong_AsUnsignedLongLong": ("i64", "ptr"),
    "PyMem_RawFree": ("void", "ptr"),
    "PyMem_RawMalloc": ("ptr", "i64"),
    "PyMethod_New": ("ptr", "ptr", "ptr"),
    "PyObject_GetAttr": ("ptr", "ptr", "ptr"),
    "PyObject_IsTrue": ("i32", "ptr"),
    "PyObject_RichCompareBool": ("i32", "ptr", "ptr", "i32"),
    "PyObject_Vectorcall": ("ptr", "ptr", "ptr", "i64", "ptr"),
    "PyObject_VectorcallMethod": ("ptr", "ptr", "ptr", "i64", "ptr"),
    "PySlice_AdjustIndices": ("i64", "i64", "ptr", "ptr", "i64"),
    "PySlice_Unpack": ("i32", "ptr", "ptr", "ptr", "ptr"),
    "PyTuple_GetItem": ("ptr", "ptr", "i64"),
    "PyTuple_New": ("ptr", "i64"),
    "PyTuple_SetItem": ("i32", "ptr", "i64", "ptr"),
    "PyTuple_Size": ("i64", "ptr"),
    "PyType_GenericAlloc": ("ptr", "ptr", "i64"),
    "PyType_IsSubtype": ("i32", "ptr", "ptr"),
    "PyUnicode_AsUTF8AndSize": ("ptr", "ptr", "ptr"),
    "PyUnicode_CompareWithASCIIString": ("i32", "ptr", "ptr"),
    "Py_DecRef": ("void", "ptr"),
    "Py_IncRef": ("void", "ptr"),
    "Py_IsFinalizing": ("i32",),
    "Py_IsInitialized": ("i32",),
    "_Py_IsFinalizing": ("i32",),
    "free": ("void", "ptr"),
    "llvm.cttz.i64": ("i64", "i64", "i1"),
    "llvm.memcpy.p0.p0.i64": ("void", "ptr", "ptr", "i64", "i1"),
    "llvm.sadd.with.overflow.i64": ("{i64, i1}", "i64", "i64"),
    "llvm.smul.with.overflow.i64": ("{i64, i1}", "i64", "i64"),
    "malloc": ("ptr", "i64"),
}

_COMPARE = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}


class CValue:
    """A value of LLVM text; integers compare as signed, and a Python integer beside one is a constant."""

    __slots__ = ("function", "text", "type")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, function: Function, text: str, type: str) -> None:
        self.function, self.text, self.type = function, text, type

    def _binary(self, operation: str, other: CValue | int) -> CValue:
        right = self.function.constant(other, self.type)
        if right.type != self.type:
            raise TypeError(f"{operation} of {self.type} and {right.type}")
        return self.function.value(f"{operation} {self.type} {self.text}, {right.text}", self.type)

    def _compare(self, operation: str, other: CValue | int | None) -> CValue:
        right = self.function.constant(other, self.type)
        if right.type != self.type:
            raise TypeError(f"{operation} of {self.type} and {right.type}")
        return self.function.value(f"icmp {_COMPARE[operation]} {self.type} {self.text}, {right.text}", "i1")

    def __add__(self, other: CValue | int) -> CValue:
        return self._binary("add", other)

    def __sub__(self, other: CValue | int) -> CValue:
        return self._binary("sub", other)

    def __mul__(self, other: CValue | int) -> CValue:
        return self._binary("mul", other)

    def __and__(self, other: CValue | int) -> CValue:
        return self._binary("and", other)

    def __or__(self, other: CValue | int) -> CValue:
        return self._binary("or", other)

    def __rshift__(self, other: CValue | int) -> CValue:
        return self._binary("ashr", other)

    def __lshift__(self, other: CValue | int) -> CValue:
        return self._binary("shl", other)

    def __eq__(self, other: object) -> CValue:  # type: ignore[override]
        return self._compare("==", other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> CValue:  # type: ignore[override]
        return self._compare("!=", other)  # type: ignore[arg-type]

    def __lt__(self, other: CValue | int) -> CValue:
        return self._compare("<", other)

    def __le__(self, other: CValue | int) -> CValue:
        return self._compare("<=", other)

    def __gt__(self, other: CValue | int) -> CValue:
        return self._compare(">", other)

    def __ge__(self, other: CValue | int) -> CValue:
        return self._compare(">=", other)

    def __invert__(self) -> CValue:
        return self._binary("xor", -1)

    @property
    def is_null(self) -> CValue:
        """Whether a pointer is NULL."""
        return self._compare("==", None)

    @property
    def is_set(self) -> CValue:
        """Whether a pointer is not NULL."""
        return self._compare("!=", None)

    def __bool__(self) -> bool:
        raise TypeError("a value of emitted code has no truth while it is emitted; use when()")


class Variable:
    """A place on the stack, which LLVM turns into a register."""

    __slots__ = ("_function", "_type", "address")

    def __init__(self, function: Function, address: CValue, type: str) -> None:
        self._function, self.address, self._type = function, address, type

    @property
    def now(self) -> CValue:
        """What it holds."""
        return self._function.load(self.address, 0, self._type)

    def set(self, value: CValue | int | None) -> None:
        """Make it hold something else."""
        self._function.store(self._function.constant(value, self._type), self.address)


class Function:
    """One function while it is written; `Module.function` makes one."""

    def __init__(self, module: Module, name: str, returns: str, parameters: tuple[str, ...], exported: bool) -> None:
        self.module, self.name, self.returns, self.parameters = module, name, returns, parameters
        self._linkage = "" if exported else "internal "
        self._count = 0
        self._stack: list[str] = []
        self._body: list[str] = []
        self._owned: list[Variable] = []
        self._open = True

    @property
    def arguments(self) -> tuple[CValue, ...]:
        """The values that it was called with."""
        return tuple(CValue(self, f"%a{i}", type) for i, type in enumerate(self.parameters))

    def text(self) -> str:
        """The whole function."""
        if self._open:
            raise ValueError(f"{self.name} has an open end")
        parameters = ", ".join(f"{type} %a{i}" for i, type in enumerate(self.parameters))
        lines = "\n".join(["entry:", *self._stack, *self._body])
        return f"define {self._linkage}{self.returns} @{self.name}({parameters}) {{\n{lines}\n}}\n"

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _emit(self, line: str) -> None:
        if not self._open:
            raise ValueError(f"{self.name}: nothing runs after a return: {line}")
        self._body.append(f"  {line}")

    def _label(self, name: str) -> None:
        self._body.append(f"{name}:")
        self._open = True

    def _branch(self, line: str) -> None:
        self._emit(line)
        self._open = False

    def value(self, operation: str, type: str) -> CValue:
        """The result of an instruction."""
        name = f"%{self._name()}"
        self._emit(f"{name} = {operation}")
        return CValue(self, name, type)

    def constant(self, value: CValue | int | None, type: str = "i64") -> CValue:
        """A number of that type, or the null pointer; a value passes."""
        if isinstance(value, CValue):
            return value
        if value is None or type == "ptr":
            if value not in (None, 0) or type != "ptr":
                raise TypeError(f"{self.name}: {value!r} as {type}")
            return CValue(self, "null", "ptr")
        return CValue(self, str(int(value)), type)

    def stack(self, type: str, count: int = 1) -> CValue:
        """The address of room for `count` values, which lives until the function returns."""
        name = f"%{self._name()}"
        self._stack.append(f"  {name} = alloca {type}, i64 {count}, align 8")
        return CValue(self, name, "ptr")

    def variable(self, type: str, initial: CValue | int | None = None) -> Variable:
        """A variable; without an initial value it holds nothing yet."""
        found = Variable(self, self.stack(type), type)
        if initial is not None:
            found.set(initial)
        return found

    def own(self, value: CValue | None = None) -> Variable:
        """A variable for a reference that is given back when the function returns; NULL until it is set."""
        found = Variable(self, self.stack("ptr"), "ptr")
        self._stack.append(f"  store ptr null, ptr {found.address.text}")
        self._owned.append(found)
        if value is not None:
            found.set(value)
        return found

    def take(self, owned: Variable) -> CValue:
        """The reference that a variable owned, which it owns no longer."""
        value = owned.now
        owned.set(None)
        return value

    def at(self, address: CValue, offset: CValue | int) -> CValue:
        """The address so many bytes on."""
        step = self.constant(offset)
        return self.value(f"getelementptr i8, ptr {address.text}, i64 {step.text}", "ptr")

    def load(self, address: CValue, offset: CValue | int = 0, type: str = "ptr") -> CValue:
        """What lies so many bytes from an address."""
        return self.value(f"load {type}, ptr {self.at(address, offset).text}", type)

    def store(self, value: CValue, address: CValue, offset: CValue | int = 0) -> None:
        """Put a value so many bytes from an address."""
        self._emit(f"store {value.type} {value.text}, ptr {self.at(address, offset).text}")

    def as_(self, value: CValue, type: str, *, signed: bool = False) -> CValue:
        """An integer of another width, or a pointer's address."""
        if value.type == type:
            return value
        if "ptr" in (value.type, type):
            operation = "ptrtoint" if value.type == "ptr" else "inttoptr"
        elif int(type[1:]) < int(value.type[1:]):
            operation = "trunc"
        else:
            operation = "sext" if signed else "zext"
        return self.value(f"{operation} {value.type} {value.text} to {type}", type)

    def select(self, condition: CValue, yes: CValue, no: CValue) -> CValue:
        """One of two values."""
        return self.value(f"select i1 {condition.text}, {yes.type} {yes.text}, {no.type} {no.text}", yes.type)

    def unsigned_below(self, value: CValue, bound: CValue | int) -> CValue:
        """Whether 0 <= value < bound, in one comparison."""
        return self.value(f"icmp ult {value.type} {value.text}, {self.constant(bound, value.type).text}", "i1")

    def call(self, callee: str, *arguments: CValue | int | None) -> CValue:
        """Call a function of the C API or of this module."""
        returns, *types = self.module.signature(callee)
        return self._call(f"@{callee}", returns, types, arguments)

    def call_pointer(self, callee: CValue, returns: str, *arguments: CValue) -> CValue:
        """Call what a pointer points to."""
        return self._call(callee.text, returns, [a.type for a in arguments], arguments)

    def _call(self, callee: str, returns: str, types: list[str], arguments: tuple[CValue | int | None, ...]) -> CValue:
        passed = [self.constant(a, type) for a, type in zip(arguments, types, strict=True)]
        if [a.type for a in passed] != types:
            raise TypeError(f"{self.name}: {callee} takes {types}, not {[a.type for a in passed]}")
        line = f"call {returns} {callee}({', '.join(f'{a.type} {a.text}' for a in passed)})"
        if returns != "void":
            return self.value(line, returns)
        self._emit(line)
        return CValue(self, "void", "void")

    def incref(self, value: CValue) -> CValue:
        """One more reference to an object, which is returned."""
        self.call("Py_IncRef", value)
        return value

    def state(self, name: str) -> CValue:
        """A word of the module's state, as a pointer."""
        return self.load(self.state_address(name))

    def state_address(self, name: str) -> CValue:
        """Where a word of the state is, for those that are many."""
        return self.at(CValue(self, "@state", "ptr"), 8 * self.module.word(name))

    def name_of(self, text: str) -> CValue:
        """The address of a C string that lives for ever."""
        return CValue(self, self.module.string(text), "ptr")

    def function_address(self, name: str) -> CValue:
        """The address of a function of this module."""
        return CValue(self, f"@{name}", "ptr")

    @contextlib.contextmanager
    def when(self, condition: CValue) -> Iterator[None]:
        """Code that runs where the condition holds."""
        inside, after = self._name(), self._name()
        self._branch(f"br i1 {condition.text}, label %{inside}, label %{after}")
        self._label(inside)
        yield
        if self._open:
            self._branch(f"br label %{after}")
        self._label(after)

    @contextlib.contextmanager
    def loop(self, count: CValue | int) -> Iterator[CValue]:
        """Code that runs for each index in [0, count)."""
        index = self.variable("i64", 0)
        head, inside, after = self._name(), self._name(), self._name()
        self._branch(f"br label %{head}")
        self._label(head)
        now = index.now
        self._branch(f"br i1 {(now < count).text}, label %{inside}, label %{after}")
        self._label(inside)
        yield now
        if self._open:
            index.set(now + 1)
            self._branch(f"br label %{head}")
        self._label(after)

    def ret(self, value: CValue | int | None = None) -> None:
        """Return, after giving back what is owned."""
        if self.returns == "void":
            self._give_back()
            self._branch("ret void")
            return
        result = self.constant(value, self.returns)
        self._give_back()
        self._branch(f"ret {self.returns} {result.text}")

    def _give_back(self) -> None:
        for owned in self._owned:
            held = owned.now
            with self.when(held.is_set):
                self.call("Py_DecRef", held)


class Module:
    """Functions, constants and state that are compiled together."""

    def __init__(self) -> None:
        self._functions: dict[str, Function] = {}
        self._strings: dict[str, str] = {}
        self._globals: list[str] = []
        self._used: set[str] = set()
        self._words: dict[str, int] = {}
        self._size = 0

    def function(self, name: str, returns: str, *parameters: str, exported: bool = False) -> Function:
        """A new function, to be written; others may call it by its name from then on."""
        found = self._functions[name] = Function(self, name, returns, parameters, exported)
        return found

    def signature(self, name: str) -> tuple[str, ...]:
        """What a function returns and takes."""
        own = self._functions.get(name)
        if own is not None:
            return (own.returns, *own.parameters)
        self._used.add(name)
        return API[name]

    def reserve(self, name: str, count: int) -> None:
        """Make room for `count` words of state under one name."""
        self._words[name] = self._size
        self._size += count

    def word(self, name: str) -> int:
        """The index of a (first) word of state."""
        if name not in self._words:
            self.reserve(name, 1)
        return self._words[name]

    @property
    def words(self) -> dict[str, int]:
        """Every name of the state and its index."""
        return dict(self._words)

    def string(self, text: str) -> str:
        """The name of a constant C string."""
        if text not in self._strings:
            name = f"@s{len(self._strings)}"
            data = text.encode() + b"\0"
            quoted = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02x}" for c in data)
            self._globals.append(f'{name} = internal constant [{len(data)} x i8] c"{quoted}"')
            self._strings[text] = name
        return self._strings[text]

    def method(self, symbol: str, name: str, function: str, flags: int, doc: str) -> None:
        """A PyMethodDef of that symbol, for `PyDescr_NewMethod` or `PyCFunction_NewEx`."""
        fields = f"ptr {self.string(name)}, ptr @{function}, i32 {flags}, ptr {self.string(doc)}"
        self._globals.append(f"@{symbol} = global {{ptr, ptr, i32, ptr}} {{{fields}}}")

    def table(self, symbol: str, *fields: str) -> None:
        """A structure of the fields' text, such as `i32 1` or `ptr @name`."""
        types = ", ".join(field.split(" ")[0] for field in fields)
        self._globals.append(f"@{symbol} = global {{{types}}} {{{', '.join(fields)}}}")

    def text(self) -> str:
        """The module."""
        functions = [function.text() for function in self._functions.values()]
        declared = [
            f"declare {API[name][0]} @{name}({', '.join(API[name][1:])})"
            for name in sorted(self._used)
            if name not in self._functions
        ]
        state = f"@state = global [{max(self._size, 1)} x ptr] zeroinitializer"
        return "\n".join([state, *self._globals, *declared, "", *functions])
