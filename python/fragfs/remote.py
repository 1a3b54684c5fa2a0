# SPDX-License-Identifier: Apache-2.0
"""python -m fragfs attach: a job that is running already, and knows nothing of fragfs.

Each rank gets a few lines of Python to run in its main thread, between two bytecodes: by sys.remote_exec where both
Pythons have it, else by a debugger, which calls Py_AddPendingCall and lets go.  They import fragfs there (_inside.py),
which answers in a folder in the rank's /tmp.  This side chooses the step behind which all ranks begin.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import math
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ._output import say

PACKAGE = Path(__file__).resolve().parent

_LET_GO_S = 10  # how long a debugger may take to let go of a process

# An answer of a rank, whose folder belongs to the process: anything may be there.
_ANSWER = re.compile(r"(found \d{1,9} \d{1,9}|done|refused) .*|step \d{1,18} \d+\.\d+|ready \d{1,18}")
_ANSWERS_MAX = 16 << 20  # bytes


class Refused(Exception):
    """Why a process cannot be given an order, in one line."""


def _printable(line: str) -> str:
    return line if line.isprintable() else "".join(c if c.isprintable() else "?" for c in line)


# ---- the code that a rank is given ----

# In __main__ of the rank: it leaves no name there, and raises nothing.  Ctrl-C that comes meanwhile is the job's.
_CALL = """\
try:
    exec(__import__('pathlib').Path({folder!r}, 'order.py').read_text(), {{'__name__': 'fragfs_order'}})
except KeyboardInterrupt:
    __import__('_thread').interrupt_main()
except BaseException:
    pass
"""

_CLEAN = "__import__('shutil').rmtree({folder!r}, ignore_errors=True)\n"

# os.rename fails where the order was taken back, so that it does nothing, whenever it comes to run.
_ORDER = """\
import os, sys
folder = {folder!r}
os.rename(folder + "/order.py", folder + "/taken")
try:
    if sys.version_info < (3, 9):
        raise RuntimeError("its Python is %d.%d, and fragfs needs 3.9" % sys.version_info[:2])
    if "fragfs" not in sys.modules:
        import importlib.util
        spec = importlib.util.spec_from_file_location(
            "fragfs", {package!r} + "/__init__.py", submodule_search_locations=[{package!r}])
        sys.modules["fragfs"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["fragfs"])
    import fragfs._inside
    fragfs._inside.serve(folder, {action!r}, {config!r}, {library!r})
except Exception as e:
    with open(folder + "/answers", "a") as f:
        f.write("refused " + str(e).replace("\\n", " ") + "\\n")
"""

# ---- ways to have a process run code ----

_GDB = """\
set unwindonsignal on
handle all nostop noprint pass
sharedlibrary libpython
sharedlibrary /libc[.-]
sharedlibrary ld-musl
set $run = (void *) &PyRun_SimpleString
set $memory = ((char *(*)(void *, unsigned long, int, int, int, long)) mmap)(0, {size}, 3, 0x22, -1, 0)
if (long) $memory == -1
  quit 1
end
restore {file} binary $memory
printf "fragfs: %d\\n", ((int (*)(void *, void *)) Py_AddPendingCall)($run, $memory)
"""

_LLDB = """\
expression -- void *$run = (void *) &PyRun_SimpleString
expression -- char *$memory = ((char *(*)(void *, unsigned long, int, int, int, long)) mmap)(0, {size}, 3, 0x22, -1, 0)
memory write -i {file} $memory
expression -- ((int (*)(void *, void *)) Py_AddPendingCall)($run, $memory)
detach
"""


def _lldb() -> str | None:
    """The newest lldb in PATH: Debian has it with its version behind the name only."""
    return next(filter(None, map(shutil.which, ["lldb", *(f"lldb-{n}" for n in range(30, 10, -1))])), None)


def _by_debugger(command: list[str], timeout: float, is_over: threading.Event) -> None:
    """The process stands until the debugger has let it go: gdb takes less than a second, lldb some five.

    is_over: nobody waits for the call any more.
    """
    debugger = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, errors="replace", start_new_session=True)
    end = time.monotonic() + timeout
    output = None
    while output is None and time.monotonic() < end and not is_over.is_set():
        with contextlib.suppress(subprocess.TimeoutExpired):
            output = debugger.communicate(timeout=0.05)[0]
    if output is None:
        debugger.send_signal(signal.SIGINT)  # ends its call in the process, takes the call's frame away, and lets go
        try:
            output = debugger.communicate(timeout=_LET_GO_S)[0]
        except subprocess.TimeoutExpired:
            debugger.terminate()
            try:
                output = debugger.communicate(timeout=_LET_GO_S)[0]
            except subprocess.TimeoutExpired:  # a killed one would leave the process in the middle of the call, which ends it
                raise Refused(f"{Path(command[0]).name} (process {debugger.pid}) does not let go of it") from None
    if re.search(r"fragfs: 0$|\(int\) \$\d+ = 0$", output, re.M):
        return
    if "PyRun_SimpleString" in output and re.search("No symbol|undeclared identifier", output):
        raise Refused("its Python has no symbol PyRun_SimpleString that the debugger can see")
    lines = [line for line in output.splitlines() if re.search("rror|ptrace|not permitted|No such", line)]
    raise Refused(f"{Path(command[0]).name} could not put a call into it: {(lines or output.splitlines() or ['?'])[-1]}")


def _by_gdb(pid: int, call: Path, timeout: float, is_over: threading.Event) -> None:
    script = call.with_suffix(".gdb")
    script.write_text(_GDB.format(file=call, size=call.stat().st_size + 1))
    _by_debugger(["gdb", "-batch", "-nx", "-nw", "-iex", "set auto-solib-add off", "-iex", "set auto-load off",
                  "-iex", "set debuginfod enabled off", "-p", str(pid), "-x", str(script)], timeout, is_over)


def _by_lldb(pid: int, call: Path, timeout: float, is_over: threading.Event) -> None:
    script = call.with_suffix(".lldb")
    script.write_text(_LLDB.format(file=call, size=call.stat().st_size + 1))
    try:
        _by_debugger([_lldb() or "lldb", "--batch", "--no-lldbinit", "-O", "settings set target.preload-symbols false",
                      "-O", "settings set symbols.enable-external-lookup false", "-p", str(pid), "-s", str(script)],
                     timeout, is_over)
    finally:
        os.kill(pid, signal.SIGCONT)  # some versions leave it stopped


def _by_remote_exec(pid: int, call: Path, timeout: float, is_over: threading.Event) -> None:
    try:
        sys.remote_exec(pid, str(call))  # type: ignore[attr-defined]
    except Exception as e:
        raise Refused(f"sys.remote_exec: {e}") from None


def _way(version: tuple[int, int] | None) -> tuple[str, Callable[[int, Path, float, threading.Event], None]]:
    """How a process of that Python can be given an order, in words, and the function that does it.  Refused: not at all."""
    if hasattr(sys, "remote_exec") and version == sys.version_info[:2]:
        return "sys.remote_exec", _by_remote_exec
    if shutil.which("gdb"):
        return "gdb", _by_gdb
    if _lldb():
        return "lldb", _by_lldb
    raise Refused("neither gdb nor lldb is in PATH (sys.remote_exec needs Python 3.14 here and there)")


def way_here() -> str:
    """How `attach` gives orders to processes of this Python and this user.  Refused: it cannot."""
    scope = _read("/proc/sys/kernel/yama/ptrace_scope").strip()
    if os.geteuid() and scope not in ("", "0"):
        raise Refused(_why_no_ptrace(os.getpid()))
    return _way(sys.version_info[:2])[0]


# ---- a process ----


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _status(pid: int, field: str) -> str:
    return next((line.split(":", 1)[1].strip() for line in _read(f"/proc/{pid}/status").splitlines()
                 if line.startswith(field + ":")), "")


def _why_no_ptrace(pid: int) -> str:
    tracer, scope = _status(pid, "TracerPid"), _read("/proc/sys/kernel/yama/ptrace_scope").strip()
    mine = str(os.geteuid()) in _status(pid, "Uid").split()
    if tracer not in ("", "0"):
        return f"process {tracer} traces it already"
    if not mine:
        return "it is another user's: be that user, or root (CAP_SYS_PTRACE)"
    if scope in ("1", "2"):
        return (f"/proc/sys/kernel/yama/ptrace_scope is {scope}: be root (CAP_SYS_PTRACE)" +
                (", or root sets it to 0 for this while" if scope == "1" else ""))
    if scope == "3":
        return "/proc/sys/kernel/yama/ptrace_scope is 3: nobody may trace on this machine until it boots again"
    return "the kernel denies ptrace: in a container, start it with --cap-add=SYS_PTRACE, or attach from the host"


class Rank:
    """A process that is given an order, and its answers."""

    def __init__(self, pid: int) -> None:
        self.pid, self.root = pid, f"/proc/{pid}/root"
        self._tmp = self._folder = -1  # descriptors of its /tmp and of the order's folder there
        self._name = ""  # of the folder
        self.answers: list[list[str]] = []
        self.told = 0.0  # when the last answer came
        if not os.path.exists(f"/proc/{pid}"):
            raise Refused("there is no such process here (one of a container has another number inside of it)")
        if _status(pid, "TracerPid") not in ("", "0"):
            raise Refused(_why_no_ptrace(pid))
        try:
            os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))  # what ptrace(2) would be asked for
        except OSError:
            raise Refused(_why_no_ptrace(pid)) from None
        found = re.search(r"/(?:lib)?python(\d+)\.(\d+)[^/\n]*$", self._maps(), re.M)
        self.version = (int(found[1]), int(found[2])) if found else None
        if not found and "python" not in os.path.basename(os.readlink(f"/proc/{pid}/exe")):
            raise Refused(f"it is no Python: {os.readlink(f'/proc/{pid}/exe')}")
        if self.version and self.version < (3, 9):
            raise Refused(f"its Python is {self.version[0]}.{self.version[1]}, and fragfs needs 3.9")
        if not os.path.exists(f"{self.root}{PACKAGE}/_inside.py"):
            raise Refused(f"in its container there is no {PACKAGE}: put the package there, too")
        self.way, self._inject = _way(self.version)

    def _maps(self) -> str:
        return _read(f"/proc/{self.pid}/maps")

    def order(self, action: str, config: dict[str, Any], library: str | None, timeout: float, is_over: threading.Event) -> None:
        """Has the process run the order, when its main thread comes back to Python."""
        uid, gid = (int(_status(self.pid, field).split()[1]) for field in ("Uid", "Gid"))
        self._tmp = os.open(f"{self.root}/tmp", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # there also when the process has ended
        self._name = Path(tempfile.mkdtemp(prefix="fragfs-", dir=f"/proc/self/fd/{self._tmp}")).name
        self._folder = os.open(self._name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._tmp)
        folder, inside = Path(f"/proc/self/fd/{self._folder}"), "/tmp/" + self._name
        order = _ORDER.format(folder=inside, package=str(PACKAGE), action=action, config=config, library=library)
        call = _CALL.format(folder=inside)
        for name, text in (("order.py", order), ("call.py", call)):
            (folder / name).write_text(text)
            os.chown(folder / name, uid, gid)
        os.chown(self._folder, uid, gid)
        if self._inject is _by_remote_exec:
            self._inject(self.pid, Path(inside, "call.py"), timeout, is_over)
            return
        with tempfile.TemporaryDirectory() as own:  # a debugger reads no file that the process could change
            Path(own, "call.py").write_text(call)
            self._inject(self.pid, Path(own, "call.py"), timeout, is_over)

    def hear(self) -> None:
        answers = [_printable(line).split(" ") for line in self._text().split("\n")[:-1] if _ANSWER.fullmatch(line)]
        if len(answers) > len(self.answers):
            self.answers, self.told = answers, time.monotonic()

    def _text(self) -> str:
        """The answers' file, which the process could replace by anything."""
        try:
            fd = os.open("answers", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)
        except OSError:
            return ""
        try:
            text = os.read(fd, _ANSWERS_MAX) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        finally:
            os.close(fd)
        return text.decode(errors="replace")

    def said(self, word: str) -> list[list[str]]:
        """What followed the word, each time."""
        return [answer[1:] for answer in self.answers if answer[0] == word]

    def is_alive(self) -> bool:
        return _status(self.pid, "State")[:1] not in ("", "Z", "X")

    def begin_behind(self, step: int) -> None:
        self._put("step", str(step))

    def _put(self, name: str, text: str) -> None:
        """Writes a file to the folder, which belongs to the process by now."""
        new = os.open(f"{name}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=self._folder)  # follows no link
        os.write(new, text.encode())
        os.close(new)
        os.replace(f"{name}.new", name, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def take_back(self) -> bool:
        """Takes the order back.  True: it was, or it is over; false: the rank carries it out just now."""
        if self._folder < 0:
            return True
        for name in ("order.py", "taken"):
            try:
                os.unlink(name, dir_fd=self._folder)
                return True
            except OSError:
                pass
        return bool(self.said("done") or self.said("refused")) or not self.is_alive()

    def clean(self) -> None:
        if self._inject is _by_remote_exec and self._folder >= 0 and not self.answers and self.is_alive():
            # The process opens call.py when it comes back to Python, however late, and would complain if that were not there.
            with contextlib.suppress(OSError):
                self._put("call.py", _CLEAN.format(folder="/tmp/" + self._name))
        elif self._name:
            shutil.rmtree(f"/proc/self/fd/{self._tmp}/{self._name}", ignore_errors=True)
        for fd in (self._folder, self._tmp):
            if fd >= 0:
                os.close(fd)
        self._tmp = self._folder = -1
        self._name = ""


def _processes() -> dict[int, list[int]]:
    """parent -> children."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        parent = _status(int(name), "PPid")
        if parent:
            children.setdefault(int(parent), []).append(int(name))
    return children


def ranks_of(launcher: int) -> list[int]:
    """The processes below a launcher that have loaded torch and a rank of their own; not the workers of these."""
    from .attachment import _RANKS

    children = _processes()

    def below(pid: int) -> Iterator[int]:
        for child in sorted(children.get(pid, ())):
            names = {line.split("=")[0] for line in _read(f"/proc/{child}/environ").split("\0")}
            if names & set(_RANKS) and "libtorch" in _read(f"/proc/{child}/maps"):
                yield child
            else:
                yield from below(child)

    return list(below(launcher))


# ---- an order to all ranks ----


class Round:
    """One order to all ranks, which all carry out behind the same step, or which is taken back from all."""

    def __init__(self, ranks: list[Rank], action: str, timeout: float) -> None:
        self.ranks, self.action, self.timeout = ranks, action, timeout

    def tell(self, config: dict[str, Any], library: str | None) -> None:
        is_over = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(len(self.ranks)) as pool:
            told = [pool.submit(rank.order, self.action, config, library, self.timeout, is_over) for rank in self.ranks]
            try:
                # not join(): until Python 3.12 an interrupted one takes the thread for ended, and leaves its debugger behind
                concurrent.futures.wait(told)
            finally:
                is_over.set()
                concurrent.futures.wait(told)
        for rank, future in zip(self.ranks, told):
            try:
                future.result()
            except (Refused, OSError) as e:
                raise Refused(f"process {rank.pid}: {e}") from None

    def wait(self, is_there: Callable[[Rank], object], what: str, extra_s: float = 0) -> None:
        """Waits until is_there of all ranks.  Refused: a rank refuses, has ended, or all say nothing for too long."""
        began = time.monotonic()
        while True:
            for rank in self.ranks:
                rank.hear()
                for reason in rank.said("refused"):
                    raise Refused(f"process {rank.pid}: {' '.join(reason)}")
            missing = [rank for rank in self.ranks if not is_there(rank)]
            if not missing:
                return
            for rank in missing:
                if not rank.is_alive():
                    raise Refused(f"process {rank.pid} has ended")
            if time.monotonic() - max([began, *(rank.told for rank in self.ranks)]) > self.timeout + extra_s:
                pids = " ".join(str(rank.pid) for rank in missing)
                raise Refused(f"process {pids}: {what} within {self.timeout:g} s")
            time.sleep(0.02)

    def choose_step(self, ahead_s: float) -> int:
        """A step that no rank has come to, about that many seconds ahead."""
        self.wait(lambda rank: len(rank.said("step")) > 1, "no two steps have ended in it")
        latest = max(int(rank.said("step")[-1][0]) for rank in self.ranks)
        (first, began), (last, ended) = self.ranks[0].said("step")[0], self.ranks[0].said("step")[-1]
        seconds = (float(ended) - float(began)) / max(1, int(last) - int(first))
        return latest + max(2, min(100000, math.ceil(ahead_s / max(seconds, 1e-5))))

    def take_back(self) -> bool:
        """Takes the order back from the ranks that have not carried it out.  False: a rank is still at it."""
        end = time.monotonic() + 10
        while True:
            is_back = all([rank.take_back() for rank in self.ranks])
            for rank in self.ranks:
                rank.hear()
            if is_back or time.monotonic() > end:
                return is_back
            time.sleep(0.02)


def _config(args: argparse.Namespace) -> dict[str, Any]:
    config = {"job": args.job or os.environ.get("FRAG_JOB_ID"),
              "key_file": args.key_file or os.environ.get("FRAG_KEY_FILE"),
              "port": args.port or int(os.environ.get("FRAG_PORT", 0))}
    if config["key_file"]:
        config["key_file"] = os.path.abspath(config["key_file"])
    return {name: value for name, value in config.items() if value}


def _again(args: argparse.Namespace, step: int) -> str:
    """The same command for another host, where the launcher has another number."""
    name = _read(f"/proc/{args.launcher}/comm").strip() if args.launcher else ""
    words = ["python3 -m fragfs attach", f"--launcher $(pgrep -o {shlex.quote(name)})" if name else "PID...", f"--step {step}"]
    words += [f"--timeout {args.timeout + args.ahead:g}"]
    words += ["--detach"] if args.detach else []
    words += [f"--{option.replace('_', '-')} {shlex.quote(str(value))}" for option, value in _config(args).items()]
    return " ".join(words)


def _do(args: argparse.Namespace, out: Callable[[str], None]) -> None:
    from . import _libfrag

    action = "detach" if args.detach else "attach"
    pids = list(dict.fromkeys(args.pid + (ranks_of(args.launcher) if args.launcher else [])))
    if not pids:
        raise Refused(f"no process below {args.launcher} has torch and a rank: name the processes themselves")
    library = None if args.detach else _libfrag.find()
    ranks = []
    for pid in pids:
        try:
            ranks.append(Rank(pid))
        except Refused as e:
            raise Refused(f"process {pid}: {e}") from None
    out(f"{action} {' '.join(map(str, pids))}: {ranks[0].way} stops each for a moment, and has it call a few lines of Python")
    out(f"which {'find and attach the optimizer and its model' if action == 'attach' else 'take the hooks away'} behind a "
        "step, the same in all ranks; the job stays as it is where anything is not as expected")
    order = Round(ranks, action, args.timeout)
    try:
        order.tell(_config(args), library)
        order.wait(lambda rank: rank.said("found"), "its main thread has not come back to Python")
        world = int(ranks[0].said("found")[0][1])
        numbers = sorted(int(rank.said("found")[0][0]) for rank in ranks)
        if len(set(numbers)) < len(ranks) or any(int(rank.said("found")[0][1]) != world for rank in ranks):
            raise Refused("these are ranks of several jobs: name the processes, or the launcher, of one")
        out(f"found {' '.join(ranks[0].said('found')[0][2:])}; ranks {' '.join(map(str, numbers))} of {world}")
        elsewhere = len(ranks) < world
        ahead_s = args.ahead if elsewhere else 1
        step = args.step or order.choose_step(ahead_s)
        if elsewhere and not args.step:
            out(f"for the other hosts, within {ahead_s:g} s:")
            out(f"    {_again(args, step)}")
        for rank in ranks:
            rank.begin_behind(step)
        out(f"{action}ing behind step {step}")
        order.wait(lambda rank: rank.said("done") or rank.said("ready"), "no step has ended in it")
        order.wait(lambda rank: rank.said("done"), f"step {step} has not ended in it", ahead_s)
        for rank in ranks:
            if rank.said("done")[0][0] != "-":
                out(f"attached: fragfs {rank.said('done')[0][0]} /frag")
        if args.detach:
            out("detached")
    except (Refused, OSError, KeyboardInterrupt) as e:
        is_back = order.take_back()
        done = [rank for rank in ranks if rank.said("done")]
        if done:
            rest = done if action == "attach" else [rank for rank in ranks if rank not in done]
            out(f"{len(done)} of {len(ranks)} ranks are {action}ed" +
                (f": attach --detach {' '.join(str(rank.pid) for rank in rest)}" if rest else ""))
        elif isinstance(e, KeyboardInterrupt) and is_back:
            out("the job is as it was")
        raise
    finally:
        for rank in ranks:
            rank.clean()


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{text}: more than 0 and at most 86400 seconds are expected")
    return seconds


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m fragfs attach", description=(
        "Attaches the ranks of a job that is running and knows nothing of fragfs, all behind the same step."))
    parser.add_argument("pid", nargs="*", type=int, metavar="PID", help="a rank's process")
    parser.add_argument("--launcher", type=int, metavar="PID",
                        help="all ranks on this host below this process: torchrun, deepspeed, accelerate, mpirun")
    parser.add_argument("--detach", action="store_true", help="takes fragfs out again, also what a script has attached")
    parser.add_argument("--step", type=int, help="behind which step: what the command on the first host has printed")
    parser.add_argument("--ahead", type=_seconds, default=60, metavar="SECONDS",
                        help="how far ahead a step for several hosts is (60)")
    parser.add_argument("--timeout", type=_seconds, default=60, metavar="SECONDS",
                        help="how long nothing may happen until the order is taken back; more than two steps take (60)")
    parser.add_argument("--job", help="the job's id (FRAG_JOB_ID)")
    parser.add_argument("--key-file", help="the job's key, on each host (FRAG_KEY_FILE)")
    parser.add_argument("--port", type=int, help="rank 0's port (FRAG_PORT)")
    args = parser.parse_args(arguments)
    if not args.pid and not args.launcher:
        parser.error("no process is named")

    def out(line: str) -> None:
        say(f"fragfs: {line}")

    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: an order that nobody waits for is taken back
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        _do(args, out)
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            out("interrupted")
        return 130
    except (Refused, OSError) as e:
        print(f"fragfs: {e}", file=sys.stderr)
        return 1
    return 0
