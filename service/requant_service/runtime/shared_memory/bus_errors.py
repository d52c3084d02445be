"""What happens when a mapped page is not there: the file was truncated, or the file system is full.

The kernel reports that by SIGBUS, in the thread that touched the page, in the middle of compiled code. `on_bus_error`
is the handler for that. If the address is in a mapping of this process it puts pages of zeros in the place of that
whole mapping, marks it as lost and returns; the work goes on with zeros, and the caller sees the mark. For any other
address it restores the previous handler, such as that of `faulthandler`, and returns to the instruction that failed,
which then ends the process as it should.

It has to be machine code, because no Python can run there: the thread may hold the GIL or not. It is written in LLVM's
own language, which is compiled in about 10 ms on any processor, and calls nothing but mmap(2), sigaction(2) and
raise(3). It takes no lock and no memory, and keeps errno (signal-safety(7)).
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections import deque
from functools import cache

from llvmlite import binding

MAX_MAPPINGS = 1024
"""How many mappings there can be at a time, those counted that are still used after they were given up."""

_SA_SIGINFO = 0x4
_SA_ONSTACK = 0x08000000

# Offsets and constants are those of Linux on 64-bit machines: siginfo_t has si_code at 8 and si_addr at 16; protection
# 3 is PROT_READ | PROT_WRITE, and 16434 is MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE. A si_code that is
# not positive is that of a signal that was sent.
_SOURCE = f"""
%mapping = type {{ i64, i64, i64 }}  ; first address, end, whether it is lost
@mappings = global [{MAX_MAPPINGS} x %mapping] zeroinitializer, align 16
@previous = global [256 x i8] zeroinitializer, align 16
@default = global [256 x i8] zeroinitializer, align 16
@gave_up = global i64 0

declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @sigaction(i32, ptr, ptr)
declare i32 @raise(i32)
declare ptr @__errno_location()

define void @on_bus_error(i32 %signal, ptr %info, ptr %context) {{
  %errno = call ptr @__errno_location()
  %errno_before = load i32, ptr %errno
  %code_at = getelementptr i8, ptr %info, i64 8
  %code = load i32, ptr %code_at
  %address_at = getelementptr i8, ptr %info, i64 16
  %address = load i64, ptr %address_at
  %is_fault = icmp sgt i32 %code, 0
  br i1 %is_fault, label %look, label %sent

look:
  %index = phi i64 [ 0, %0 ], [ %next, %look_further ]
  %mapping = getelementptr [{MAX_MAPPINGS} x %mapping], ptr @mappings, i64 0, i64 %index
  %end_at = getelementptr %mapping, ptr %mapping, i32 0, i32 1
  %end = load atomic i64, ptr %end_at acquire, align 8
  %first = load atomic i64, ptr %mapping acquire, align 8
  ; Another thread may have reused the entry since its end was read; that of the address itself is in use.
  %end_again = load atomic i64, ptr %end_at acquire, align 8
  %is_whole = icmp eq i64 %end, %end_again
  %not_below = icmp uge i64 %address, %first
  %below_end = icmp ult i64 %address, %end
  %between = and i1 %not_below, %below_end
  %within = and i1 %between, %is_whole
  br i1 %within, label %found, label %look_further

look_further:
  %next = add i64 %index, 1
  %more = icmp ult i64 %next, {MAX_MAPPINGS}
  br i1 %more, label %look, label %unknown

found:
  %lost_at = getelementptr %mapping, ptr %mapping, i32 0, i32 2
  store atomic i64 1, ptr %lost_at seq_cst, align 8
  %size = sub i64 %end, %first
  %place = inttoptr i64 %first to ptr
  %replaced = call ptr @mmap(ptr %place, i64 %size, i32 3, i32 16434, i32 -1, i64 0)
  %is_replaced = icmp eq ptr %replaced, %place
  br i1 %is_replaced, label %done, label %unknown

unknown:
  call void @give_up(i32 %signal)
  br label %done

sent:
  call void @give_up(i32 %signal)
  call i32 @raise(i32 %signal)
  br label %done

done:
  store i32 %errno_before, ptr %errno
  ret void
}}

; The previous handler may have this one for its own previous one: the second time it is the default action.
define void @give_up(i32 %signal) {{
  %before = atomicrmw xchg ptr @gave_up, i64 1 seq_cst
  %is_first = icmp eq i64 %before, 0
  %action = select i1 %is_first, ptr @previous, ptr @default
  call i32 @sigaction(i32 %signal, ptr %action, ptr null)
  ret void
}}

define void @publish(i64 %index, i64 %first, i64 %end) {{
  %mapping = getelementptr [{MAX_MAPPINGS} x %mapping], ptr @mappings, i64 0, i64 %index
  %end_at = getelementptr %mapping, ptr %mapping, i32 0, i32 1
  %lost_at = getelementptr %mapping, ptr %mapping, i32 0, i32 2
  store atomic i64 0, ptr %lost_at seq_cst, align 8
  store atomic i64 %first, ptr %mapping seq_cst, align 8
  store atomic i64 %end, ptr %end_at seq_cst, align 8
  ret void
}}

define void @withdraw(i64 %index) {{
  %mapping = getelementptr [{MAX_MAPPINGS} x %mapping], ptr @mappings, i64 0, i64 %index
  %end_at = getelementptr %mapping, ptr %mapping, i32 0, i32 1
  store atomic i64 0, ptr %end_at seq_cst, align 8
  ret void
}}

define i64 @is_lost(i64 %index) {{
  %mapping = getelementptr [{MAX_MAPPINGS} x %mapping], ptr @mappings, i64 0, i64 %index
  %lost_at = getelementptr %mapping, ptr %mapping, i32 0, i32 2
  %lost = load atomic i64, ptr %lost_at seq_cst, align 8
  ret i64 %lost
}}
"""


_lock = threading.Lock()


class _SignalAction(ctypes.Structure):
    """`struct sigaction` as the C library has it, in glibc and in musl."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class BusErrors:
    """The handler, and the mappings that it knows. There is one in a process (`bus_errors`)."""

    def __init__(self) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        module = binding.parse_assembly(_SOURCE)
        module.verify()
        machine = binding.Target.from_default_triple().create_target_machine()
        # It owns the machine code, so it is kept.
        self._engine = binding.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        self._handler = self._engine.get_function_address("on_bus_error")
        self._previous = self._engine.get_global_value_address("previous")
        self._gave_up = self._engine.get_global_value_address("gave_up")
        number, address = ctypes.c_uint64, self._engine.get_function_address
        self._publish = ctypes.CFUNCTYPE(None, number, number, number)(address("publish"))
        self._withdraw = ctypes.CFUNCTYPE(None, number)(address("withdraw"))
        self._is_lost = ctypes.CFUNCTYPE(number, number)(address("is_lost"))
        # Not locked: the collector may free a mapping at any time, in any thread.
        self._free = deque(range(MAX_MAPPINGS))
        self._sigaction = ctypes.CDLL(None, use_errno=True).sigaction

    def watch(self, first: int, end: int) -> int | None:
        """Watch the mapping of the addresses from `first` to before `end` from here on. Return its number.

        Return None if there are too many.
        """
        try:
            number = self._free.popleft()
        except IndexError:
            return None
        with _lock:
            self._install()
        self._publish(number, first, end)
        return number

    def forget(self, number: int) -> None:
        """Stop watching a mapping. Called before it is unmapped: other memory may get its addresses."""
        self._withdraw(number)
        self._free.append(number)

    def is_lost(self, number: int) -> bool:
        """Return whether pages of a mapping were missing, so that it has pages of zeros now."""
        return bool(self._is_lost(number))

    def _install(self) -> None:
        """Put the handler first, if another one was installed since."""
        present, ours = _SignalAction(), _SignalAction(handler=self._handler, flags=_SA_SIGINFO | _SA_ONSTACK)
        self._sigaction(signal.SIGBUS, None, ctypes.byref(present))
        if present.handler != self._handler:
            ctypes.memmove(self._previous, ctypes.byref(present), ctypes.sizeof(present))
            ctypes.c_int64.from_address(self._gave_up).value = 0
            self._sigaction(signal.SIGBUS, ctypes.byref(ours), None)


def bus_errors() -> BusErrors:
    """Return the one of this process. It changes nothing until a mapping is watched."""
    with _lock:
        return _only_one()


@cache
def _only_one() -> BusErrors:
    return BusErrors()
