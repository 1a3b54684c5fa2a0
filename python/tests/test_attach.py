# SPDX-License-Identifier: Apache-2.0
"""python -m fragfs attach: jobs that run already and know nothing of it (plain_job.py)."""

import contextlib
import hashlib
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from pathlib import Path
from typing import Any

from test_torch import HERE, TIMEOUT_S, free_port, needs

import fragfs
from fragfs import _find, _inside, remote

ATTACH = [sys.executable, "-m", "fragfs", "attach"]


class PlainJob:
    """Ranks that run plain_job.py below one launcher; none of their environment is of fragfs."""

    def __init__(self, kind: str, world: int, folder: str) -> None:
        self.stop, self.out = Path(folder, "stop"), Path(folder, "out")
        self.stop.unlink(missing_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("FRAG", "PYTHONPATH"))}
        command = [sys.executable, str(HERE / "plain_job.py"), kind, str(self.stop)]
        if kind != "plain":
            command[1:1] = ["-m", "torch.distributed.run", "--nproc-per-node", str(world), "--master-addr",
                            "127.0.0.1", "--master-port", str(free_port())]
        with open(self.out, "w") as out, open(Path(folder, "err"), "w") as self.err:
            self.launcher = subprocess.Popen(command, env={**environment, "DS_ACCELERATOR": "cpu"}, cwd=folder,
                                             stdout=out, stderr=self.err)

    def lines(self) -> list[str]:
        """`step loss hash` of each step that is over."""
        return [line for line in self.out.read_text().split("\n")[:-1] if re.fullmatch(r"\d+ \S+ [0-9a-f]{64}", line)]

    def wait_for_steps(self, more: int) -> None:
        wanted = len(self.lines()) + more
        end = time.monotonic() + TIMEOUT_S
        while len(self.lines()) < wanted:
            assert self.launcher.poll() is None, Path(self.err.name).read_text()[-4000:]
            assert time.monotonic() < end, "no steps"
            time.sleep(0.05)

    def end(self) -> list[str]:
        self.stop.touch()
        try:
            assert self.launcher.wait(TIMEOUT_S) == 0, Path(self.err.name).read_text()[-4000:]
        finally:
            self.launcher.kill()
        return self.lines()


@needs("torch")
class Find(unittest.TestCase):
    def test_of_several_engines_the_one_with_most_parameters(self) -> None:
        """Also of stage 3, whose parameters have no elements between two uses."""
        import torch

        def engine(numel: int) -> Any:
            made = Engine()
            made.module, made.optimizer = torch.nn.Linear(1, 1, bias=False), object()
            made.module.weight.data, made.module.weight.ds_numel = torch.empty(0), numel
            return made

        Engine = type("DeepSpeedEngine", (torch.nn.Module,), {"__module__": "deepspeed.runtime.engine"})
        engines = [engine(numel) for numel in (2, 7, 3)]
        self.assertIs(_find.main_optimizer(), engines[1].optimizer)


@needs("torch")
class Hooks(unittest.TestCase):
    def test_steps_are_counted_beside_hooks_of_others(self) -> None:
        """Also from within such a hook, and where optimizer.step is another method in each step."""
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook

        class Order:
            steps = 0

            def __init__(self, optimizer: Any) -> None:
                self.optimizer = optimizer

            def _around(self, step: Any) -> Any:
                return step

            def _after_step(self) -> None:
                self.steps += 1

        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))])
        order, called, undo = Order(optimizer), [], []

        def other(*_: Any) -> None:
            called.append(1)
            if not undo:
                undo.append(_inside._hook_steps(order))

        handles = [register_optimizer_step_post_hook(other) for _ in range(2)]
        for handle in handles:
            self.addCleanup(handle.remove)
        for _ in range(4):
            optimizer.step()
        self.assertEqual(len(called), 8)
        self.assertIn(order.steps, (3, 4))
        undo[0]()
        handles[1].remove()
        again = Order(optimizer)
        _inside._hook_steps(again)
        optimizer.step()
        self.assertEqual((len(called), again.steps), (9, 1))


@unittest.skipUnless(os.environ.get("FRAGFS") or shutil.which("fragfs"), "no fragfs in PATH")
@unittest.skipUnless(shutil.which("gdb") or hasattr(sys, "remote_exec"), "no gdb in PATH, and no sys.remote_exec")
@needs("torch")
class Attach(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def job(self, kind: str, world: int) -> PlainJob:
        job = PlainJob(kind, world, self.folder)
        self.addCleanup(job.launcher.wait, TIMEOUT_S)
        self.addCleanup(job.launcher.terminate)  # it ends its ranks
        return job

    def attach(self, *arguments: object, status: int = 0, **environment: str) -> str:
        done = subprocess.run([*ATTACH, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=TIMEOUT_S,
                              env={**os.environ, "PYTHONPATH": str(HERE.parent), **environment})
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def look(self, job: PlainJob, source: str, key: str) -> None:
        """What a mount shows is what the job had behind one of its steps."""
        with fragfs.open(source) as mount:
            for _ in range(3):
                job.wait_for_steps(2)
                seen = hashlib.sha256(mount["first.weight"][key].torch().view(-1).view(__import__("torch").uint8)
                                      .numpy().tobytes()).hexdigest()
                job.wait_for_steps(2)
                self.assertIn(seen, [line.split()[2] for line in job.lines()])
            self.assertIn("exp_avg", mount["first.weight"].states)

    def of_a_running_job(self, kind: str, world: int, key: str) -> None:
        job = self.job(kind, world)
        job.wait_for_steps(5)
        for _ in range(2):
            said = self.attach("--launcher" if world > 1 else "--", job.launcher.pid)
            source = re.search("attached: fragfs ([0-9.]+:[0-9]+) /frag", said)
            self.assertTrue(source, said)
            self.look(job, source[1], key)
            self.assertIn("attached already", self.attach(
                "--launcher" if world > 1 else "--", job.launcher.pid, status=1))
            self.attach("--detach", "--launcher" if world > 1 else "--", job.launcher.pid)
            job.wait_for_steps(2)
        attached = job.end()
        bare = self.job(kind, world)
        bare.wait_for_steps(len(attached))
        self.assertEqual(attached, bare.end()[:len(attached)])

    def test_a_job_of_four_ranks(self) -> None:
        self.of_a_running_job("ddp", 4, "fp32")

    @needs("accelerate")
    def test_accelerate_with_a_gradscaler(self) -> None:
        """Its optimizer sets another method as the step of torch's for each step."""
        self.of_a_running_job("scaled", 2, "fp32")

    def test_one_process_without_a_launcher(self) -> None:
        self.of_a_running_job("plain", 1, "fp32")

    def process(self, code: str) -> subprocess.Popen:
        """A Python process without torch.  It has come to the line behind print()."""
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "here\n")
        return process

    def test_lldb_where_there_is_no_gdb(self) -> None:
        lldb = remote._lldb()
        if not lldb:
            self.skipTest("no lldb in PATH")
        process = self.process("import time\nprint('here', flush=True)\nwhile True: time.sleep(0.01)")
        os.symlink(lldb, Path(self.folder, "lldb"))
        self.assertIn("it has not imported torch", self.attach(process.pid, status=1, PATH=self.folder))

    def test_a_process_that_trains_nothing_stays_as_it_is(self) -> None:
        code = "import os, sys, time\n{}\nprint('here', flush=True)\nbefore = [*globals()]\nos.set_blocking(0, False)\n" \
               "while sys.stdin.buffer.raw.read(1) is None: time.sleep(0.01)\n" \
               "assert [*globals()] == before + ['before'], [*globals()]\nprint('well')"
        for imports, reason in (("", "it has not imported torch"), ("import torch", "no DeepSpeedEngine and no torch")):
            process = self.process(code.format(imports))
            self.assertIn(reason, self.attach(process.pid, status=1))
            self.assertEqual(process.communicate("x")[0], "well\n")

    def test_a_main_thread_that_does_not_come_back_to_python(self) -> None:
        process = self.process("import os, sys\nprint('here', flush=True)\nos.read(0, 1)\nfor _ in range(1000): pass\n"
                               "print('fragfs' in sys.modules, *os.listdir('/tmp'), sep='\\n')")
        said = self.attach("--timeout", 15, process.pid, status=1)  # a debugger may take some of them
        self.assertIn("its main thread has not come back to Python within 15 s", said)
        self.assertEqual(process.communicate("x")[0].split("\n")[0], "False")  # nothing has run late, or was missed

    def test_a_signal_takes_the_order_back(self) -> None:
        process = self.process("import os, sys\nprint('here', flush=True)\nos.read(0, 2)\nprint('fragfs' in sys.modules)")
        folders = Path(f"/proc/{process.pid}/root/tmp")
        for number in 4 * (signal.SIGINT, signal.SIGTERM):
            before = set(folders.glob("fragfs-*"))
            with subprocess.Popen([*ATTACH, str(process.pid)], stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "PYTHONPATH": str(HERE.parent)}) as attaching:
                while not any((folder / "call.py").exists() for folder in set(folders.glob("fragfs-*")) - before):
                    self.assertIsNone(attaching.poll())
                    time.sleep(0.01)
                attaching.send_signal(number)
                self.assertIn("the job is as it was", attaching.communicate(timeout=TIMEOUT_S)[0])
            self.assertRegex(Path(f"/proc/{process.pid}/status").read_text(), "TracerPid:\t0\n")
            self.assertEqual(set(folders.glob("fragfs-*")), before)
        self.assertEqual(process.communicate("x")[0], "False\n")

    def test_an_output_that_takes_nothing_takes_the_order_back(self) -> None:
        process = self.process("import os, sys\nprint('here', flush=True)\nos.read(0, 1)\nprint('fragfs' in sys.modules)")
        with open("/dev/full", "w") as full:
            attaching = subprocess.run([*ATTACH, str(process.pid)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S,
                                       env={**os.environ, "PYTHONPATH": str(HERE.parent)})
        self.assertEqual((attaching.returncode, attaching.stderr), (1, "fragfs: standard output: No space left on device\n"))
        self.assertEqual(process.communicate("x")[0], "False\n")

    def test_an_interrupt_says_what_is_left(self) -> None:
        """Of two ranks: whether the job is as it was, and what undoes that of the rank that was faster."""

        class FakeRank:
            way = "a debugger"

            def __init__(self, pid: int) -> None:
                self.pid = pid

            def said(self, word: str) -> list:
                return [["-"]] if word == "done" and self.pid in done else []

            def take_back(self) -> bool:
                return True

            def hear(self) -> None:
                pass

            clean = hear

        for done, detach, words in (({}, [], "the job is as it was"), ({}, ["--detach"], "the job is as it was"),
                                    ({7}, [], "1 of 2 ranks are attached: attach --detach 7"),
                                    ({7}, ["--detach"], "1 of 2 ranks are detached: attach --detach 8"),
                                    ({7, 8}, ["--detach"], "2 of 2 ranks are detached")):
            with self.subTest(done=done, detach=detach), unittest.mock.patch.object(remote, "Rank", FakeRank), \
                    unittest.mock.patch.object(remote.Round, "tell", side_effect=KeyboardInterrupt), \
                    contextlib.redirect_stdout(io.StringIO()) as said:
                self.assertEqual(remote.main([*detach, "7", "8"]), 130)
                self.assertEqual(said.getvalue().splitlines()[-2:], [f"fragfs: {words}", "fragfs: interrupted"])

    def told(self, pid: int) -> tuple[remote.Rank, Path]:
        """A rank that has been given an order, and does nothing; the order's folder."""
        with unittest.mock.patch.object(sys, "remote_exec", lambda *_: None, create=True):
            rank = remote.Rank(pid)
            self.addCleanup(rank.clean)
            rank.order("attach", {}, None, 1, threading.Event())
        return rank, Path("/tmp", rank._name)

    def test_a_process_that_puts_other_things_where_its_answers_are(self) -> None:
        rank, folder = self.told(os.getpid())
        answers = folder / "answers"

        def hear() -> list[list[str]]:
            hearing = threading.Thread(target=rank.hear, daemon=True)
            hearing.start()
            hearing.join(60)
            self.assertFalse(hearing.is_alive())
            return rank.answers

        for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path), lambda path: os.symlink("/etc/passwd", path)):
            make(answers)
            self.assertEqual(hear(), [])
            os.rmdir(answers) if answers.is_dir() else os.unlink(answers)
        answers.write_bytes(b"\xff\nfound\nfound 1 x AdamW\nstep 1\nstep x 1.5\nstep 2 3.5\nready\n\ndone\nrefused \x1b[2J\nready 5")
        self.assertEqual(hear(), [["step", "2", "3.5"], ["refused", "?[2J"]])

    def test_a_process_that_puts_a_link_where_its_folder_is(self) -> None:
        rank, folder = self.told(os.getpid())
        there = Path(self.folder, "there")
        there.mkdir()
        (there / "taken").touch()
        folder.rename(folder.with_suffix(".moved"))
        folder.symlink_to(there)
        rank.begin_behind(5)
        self.assertTrue(rank.take_back())
        rank.clean()
        self.assertEqual(os.listdir(there), ["taken"])
        folder.unlink()
        shutil.rmtree(folder.with_suffix(".moved"))

    def test_the_folder_of_a_process_that_has_ended_goes(self) -> None:
        process = self.process("import time\nprint('here', flush=True)\ntime.sleep(1000)")
        rank, folder = self.told(process.pid)
        process.kill()
        process.wait()
        self.assertTrue(rank.take_back())
        rank.clean()
        self.assertFalse(folder.exists())

    def test_a_debugger_that_does_not_let_go(self) -> None:
        stubborn = [sys.executable, "-c", "import signal, time\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\n"
                    "print('here', flush=True)\ntime.sleep(1000)"]
        started: list[subprocess.Popen] = []

        class Popen(subprocess.Popen):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                started.append(self)

        limit = threading.Timer(60, lambda: started[0].kill())
        limit.start()
        self.addCleanup(limit.cancel)
        with unittest.mock.patch.object(subprocess, "Popen", Popen), unittest.mock.patch.object(remote, "_LET_GO_S", 1, create=True):
            with self.assertRaisesRegex(remote.Refused, r"\(process [0-9]+\) does not let go of it"):
                remote._by_debugger(stubborn, 5, threading.Event())
        started[0].kill()
        started[0].communicate()

    def test_ranks_of_several_jobs_are_refused(self) -> None:
        class FakeRank:
            way = "a debugger"

            def __init__(self, pid: int) -> None:
                self.pid = pid

            def said(self, word: str) -> list:
                return [[*found[self.pid], "an optimizer"]] if word == "found" else []

            def take_back(self) -> bool:
                return True

            def hear(self) -> None:
                pass

            clean = hear

        for found in ({7: ("0", "2"), 8: ("0", "2")}, {7: ("0", "2"), 8: ("1", "4")}):
            with self.subTest(found=found), unittest.mock.patch.object(remote, "Rank", FakeRank), \
                    unittest.mock.patch.object(remote.Round, "tell"), \
                    contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(remote.main(["--detach", "7", "8"]), 1)
                self.assertIn("ranks of several jobs", said.getvalue())

    def test_an_order_that_was_never_told_is_taken_back_at_once(self) -> None:
        rank = remote.Rank(os.getpid())
        self.assertTrue(rank.take_back())

    def test_the_line_for_other_hosts_is_one_of_a_shell(self) -> None:
        with unittest.mock.patch.object(remote, "_do", lambda args, out: out(remote._again(args, 5))), \
                contextlib.redirect_stdout(io.StringIO()) as said:
            remote.main(["--job", "my job", "--key-file", "/a b", "1"])
        self.assertEqual(shlex.split(said.getvalue())[-4:], ["--job", "my job", "--key-file", "/a b"])

    def test_what_is_no_python_that_can_be_told(self) -> None:
        sleep = shutil.which("sleep")
        no_symbol = "has no symbol PyRun_SimpleString" if shutil.which("gdb") or remote._lldb() else "neither gdb nor lldb"
        for name, reason in (("sleep", "it is no Python"), ("python3.8", "its Python is 3.8, and fragfs needs 3.9"),
                             ("python3.11", no_symbol)):
            shutil.copy(sleep, Path(self.folder, name))
            process = subprocess.Popen([Path(self.folder, name), "1000"])
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            self.assertIn(reason, self.attach(process.pid, status=1))
            self.assertIsNone(process.poll())
        self.assertIn("there is no such process here", self.attach(2 ** 22 + 1, status=1))

    @unittest.skipUnless(os.geteuid() == 0, "who is not root cannot become another user")
    def test_another_user_s_process(self) -> None:
        process = self.process("import time\nprint('here', flush=True)\ntime.sleep(1000)")
        code = "import os, sys, fragfs.remote as r\nos.setgid(65534)\nos.setuid(65534)\nr.Rank(int(sys.argv[1]))"
        done = subprocess.run([sys.executable, "-c", code, str(process.pid)], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(HERE.parent)})
        self.assertIn("it is another user's: be that user, or root (CAP_SYS_PTRACE)", done.stderr)

    def test_ranks_that_cannot_agree_on_a_step(self) -> None:
        job = self.job("sgd", 2)
        job.wait_for_steps(2)
        self.assertIn("nothing counts its steps", self.attach("--launcher", job.launcher.pid, status=1))
        job.wait_for_steps(2)
        job.end()

    def test_ranks_of_two_hosts(self) -> None:
        """The first command prints what the second host needs to begin at the same step."""
        job = self.job("ddp", 2)
        job.wait_for_steps(2)
        first, second = remote.ranks_of(job.launcher.pid)
        with subprocess.Popen([*ATTACH, "--ahead", "30", str(first)], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": str(HERE.parent)}) as attaching:
            said = ""
            while "--step" not in said:
                line = attaching.stdout.readline()
                self.assertTrue(line, said)
                said += line
            self.attach("--step", re.search("--step ([0-9]+)", said)[1], second)
            said += attaching.communicate(timeout=TIMEOUT_S)[0]
        self.look(job, re.search("attached: fragfs ([0-9.]+:[0-9]+) /frag", said)[1], "fp32")
        self.attach("--detach", "--launcher", job.launcher.pid)
        job.end()

    def test_sys_remote_exec_where_both_pythons_have_it(self) -> None:
        told = []

        def remote_exec(pid: int, path: str) -> None:
            told.append(pid)
            exec(Path(path).read_text(), {"__name__": "__main__"})

        with unittest.mock.patch.object(sys, "remote_exec", remote_exec, create=True):
            rank = remote.Rank(os.getpid())
            self.addCleanup(rank.clean)
            self.assertEqual(rank.way, "sys.remote_exec")
            rank.order("attach", {}, None, 1, threading.Event())
        rank.hear()
        self.assertEqual(told, [os.getpid()])
        self.assertIn(rank.said("refused")[0][:3], (["it", "has", "not"], ["it", "has", "no"]))

    @needs("deepspeed")
    def test_deepspeed(self) -> None:
        self.of_a_running_job("zero2", 4, "bf16")


if __name__ == "__main__":
    unittest.main()
