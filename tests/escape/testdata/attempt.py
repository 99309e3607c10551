"""What the programs share: try something, remember how it ended, print it all."""

import ctypes
import errno
import json
import os

libc = ctypes.CDLL(None, use_errno=True)
results = {}


def attempt(name, act):
    """Records "ok", "ok VALUE", the name of the errno, or the exception's type."""
    try:
        value = act()
        results[name] = "ok" if value is None else f"ok {value}"
    except OSError as e:
        results[name] = errno.errorcode.get(e.errno, str(e.errno))
    except BaseException as e:
        results[name] = type(e).__name__
    # Half the descriptors of a box are soon used up by attempts that succeed.
    os.closerange(3, 64)
    return results[name]


def syscall(number, *args):
    """One raw system call; bytes are passed as their address."""
    ctypes.set_errno(0)
    given = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) for a in args]
    value = libc.syscall(ctypes.c_long(number), *given)
    if value == -1:
        raise OSError(ctypes.get_errno(), "system call")
    return value


def in_child(act):
    """Runs act in a child: what it returns, its errno as OSError, or the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        try:
            value = act()
            os._exit(0 if value is None else 200)
        except OSError as e:
            os._exit(e.errno or 199)
        except BaseException:
            os._exit(198)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code < 0:
        return f"signal {-code}"
    if 0 < code < 198:
        raise OSError(code, "in the child")
    return {0: "returned", 200: "returned a value"}.get(code, f"exit {code}")


def report():
    print(json.dumps(results), flush=True)
