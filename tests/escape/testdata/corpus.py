"""Runs hostile programs of one family one after the other, each in a child, and
tells how each ended. A program is a function of corpus/FAMILY.py, or a piece of C
beside it, whose machine code is run from a page of the child's own: no file of it
could be executed in a box.

Every program says in its docstring, or in its first comment, what it attempts and
what must hold. It ends with what it came to: a value is "did VALUE", an error is
its name.
"""

import ctypes
import errno
import importlib.util
import json
import mmap
import os
import sys

results = {}


def tell(name, act):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        try:
            value = act()
            text = f"did {value}"
        except OSError as e:
            text = errno.errorcode.get(e.errno, str(e.errno))
        except BaseException as e:
            text = type(e).__name__
        os.write(w, text.encode())
        os._exit(0)
    os.close(w)
    with os.fdopen(r, "rb") as f:
        text = f.read(4000).decode("utf-8", "backslashreplace")
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    results[name] = text if code == 0 else f"signal {-code}"


def machine_code(path):
    """C's long attempt(void): what the kernel answered, negative is an errno."""
    with open(path, "rb") as f:
        code = f.read()
    page = mmap.mmap(-1, max(len(code), 1) + 65536, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=7)
    page.write(code)
    value = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    if -4096 < value < 0:
        raise OSError(-value, "")
    return value


def call(number, *args):
    """A system call by its number; every family has this function."""
    libc = ctypes.CDLL(None, use_errno=True)
    value = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if value == -1:
        raise OSError(ctypes.get_errno(), "")
    return value


def main(module, *pieces):
    only, pieces = [p for p in pieces if not p.endswith(".bin")], [p for p in pieces if p.endswith(".bin")]
    spec = importlib.util.spec_from_file_location("family", module)
    family = importlib.util.module_from_spec(spec)
    family.call = call
    spec.loader.exec_module(family)
    for name, act in vars(family).items():
        if callable(act) and getattr(act, "__module__", "") == "family" and act.__doc__ and name in (only or [name]):
            tell(name, act)
    for path in pieces:
        tell(os.path.basename(path).removesuffix(".bin"), lambda: machine_code(path))
    print(json.dumps(results), flush=True)


main(*sys.argv[1:])
