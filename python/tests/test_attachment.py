# SPDX-License-Identifier: Apache-2.0
"""One process of torch, attached and mounted: memory that is replaced or freed while libfrag knows it."""

import contextlib
import copy
import errno
import functools
import gc
import importlib.util
import inspect
import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import fragfs
from fragfs.adapters import adapter_for
from fragfs.adapters.base import wrap_method
from fragfs.attachment import _Hypers

TORCH = importlib.util.find_spec("torch")
STATES = ("exp_avg", "exp_avg_sq")


@unittest.skipUnless(os.environ.get("FRAGFS") or shutil.which("fragfs"), "no fragfs in PATH")
@unittest.skipUnless(TORCH, "torch is not installed")
class Memory(unittest.TestCase):
    def start(self, layers: int, mount: bool = True, **options: Any) -> None:
        """options: as of build()."""
        self.enterContext(unittest.mock.patch.dict(
            os.environ, RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0", FRAG_PLAIN="1",
            FRAG_JOB_ID=f"memory-{os.getpid()}-{self.id()}"))
        self.build(layers, **options)
        self.attachment = fragfs.attach(self.model, self.optimizer, strict=True)
        self.addCleanup(lambda: self.attachment and self.attachment.detach())
        for _ in range(3):
            self.step()
        if mount:
            self.open()

    def build(self, layers: int, change: Callable[[Any], Any] = lambda model: None,
              make: Callable[..., Any] | None = None) -> None:
        import torch

        self.model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(layers)])  # weights of 256 bytes
        change(self.model)
        self.optimizer = (make or torch.optim.AdamW)([p for p in self.model.parameters() if p.requires_grad])
        self.weight = self.model[0].weight

    def open(self) -> None:
        self.mount = fragfs.open(self.attachment.address)
        self.addCleanup(self.mount.close)

    def step(self) -> None:
        import torch

        self.optimizer.zero_grad()
        self.model(torch.ones(2, 8, dtype=self.weight.dtype)).square().mean().backward()
        self.optimizer.step()

    def test_an_edit_of_lr_is_what_it_computes_with_also_after_load_state_dict(self) -> None:
        """Which makes other dicts of the optimizer's param groups."""
        self.start(layers=2)
        with fragfs.open(self.attachment.address, "rw") as mount:
            for lr in (0.5, 0.25):
                self.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
                self.step()
                writer = threading.Thread(target=mount.groups[0].__setitem__, args=("lr", lr))
                writer.start()
                while writer.is_alive():
                    self.step()
                self.assertEqual(self.optimizer.param_groups[0]["lr"], lr)

    def compare(self) -> bool:
        """Whether the mount has what the optimizer computes with."""
        import torch

        mine = self.mount["0.weight"]
        deadline = time.monotonic() + 60  # a mount that has looked while one was dropped hears a second later that it is back
        while not {"fp32", *STATES} <= set(mine.states) and time.monotonic() < deadline:
            time.sleep(0.05)
        return (torch.equal(mine.fp32.torch(), self.weight.detach()) and
                all(torch.equal(mine[key].torch(), self.optimizer.state[self.weight][key]) for key in STATES))

    def replace(self) -> object:
        """Other memory for a state and for a parameter; the result holds the old."""
        state, old = self.optimizer.state[self.weight], (self.optimizer.state[self.weight]["exp_avg"], self.weight.data)
        state["exp_avg"] = state["exp_avg"].clone()
        self.weight.data = self.weight.data.clone()
        return old

    def find_replaced(self, layers: int, hold: bool, steps: int) -> None:
        self.start(layers)
        self.assertTrue(self.compare())
        for _ in range(100):  # until the looks at all of them are far between
            self.step()
        held = [self.replace()]
        if not hold:
            held.clear()
        for _ in range(steps):
            self.step()
        self.assertTrue(self.compare())

    def test_what_is_replaced_and_freed_is_found_at_the_next_boundary(self) -> None:
        self.find_replaced(layers=40, hold=False, steps=1)

    def test_what_is_replaced_and_held_is_found_by_a_look(self) -> None:
        from fragfs.attachment import _LOOK_EVERY

        self.find_replaced(layers=40, hold=True, steps=_LOOK_EVERY)

    def test_of_few_what_is_replaced_and_held_is_found_at_once(self) -> None:
        self.find_replaced(layers=1, hold=True, steps=1)

    def find_replaced_values(self, change: Callable[[Any], Any], layers: int, hold: bool, steps: int) -> None:
        """Of a weight without a master; then an edit comes to its new memory."""
        import torch

        self.start(layers, False, change=change)
        self.optimizer.param_groups[0]["lr"] = 0
        with self.attachment, fragfs.open(self.attachment.address, "rw") as mount:
            for _ in range(100):
                self.step()
            mine = mount["0.weight"]["bf16" if self.weight.requires_grad else "lp"]
            old = self.weight.data if hold else None
            self.weight.data = self.weight.data.clone()
            self.weight.data[1, 2] = 0.5
            for _ in range(steps):
                self.step()
            self.assertTrue(torch.equal(mine.torch(), self.weight.detach()))
            writer = threading.Thread(target=mine.__setitem__, args=((3, 4), 0.75))
            writer.start()
            while writer.is_alive():
                self.step()
            self.assertEqual(self.weight[3, 4], 0.75)
            self.assertTrue(torch.equal(mine.torch(), self.weight.detach()))
            del old

    def test_values_without_a_master_that_are_replaced_are_found(self) -> None:
        from fragfs.attachment import _LOOK_EVERY

        for change in (lambda model: model.bfloat16(), lambda model: model[0].requires_grad_(False)):
            for layers, hold, steps in ((40, False, 1), (40, True, _LOOK_EVERY), (2, True, 1)):
                with self.subTest(layers=layers, hold=hold):
                    self.find_replaced_values(change, layers, hold, steps)

    def test_a_frozen_parameter_that_the_model_replaces_is_let_go(self) -> None:
        import torch
        from fragfs.attachment import _LOOK_EVERY

        def frozen(value: float, rows: int = 8) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.full((rows, 8), value), requires_grad=False)

        def change(model: torch.nn.Sequential) -> None:
            model[0].extra = frozen(0.25)
            model[0].unused = torch.nn.Parameter(torch.zeros(8, 8, dtype=torch.bfloat16))

        for layers, hold, steps in ((40, False, 1), (40, True, _LOOK_EVERY), (2, True, 1)):
            with self.subTest(layers=layers, hold=hold):
                self.start(layers, mount=False, change=change)
                with self.attachment, fragfs.open(self.attachment.address, "rw") as mount:
                    self.replace_frozen(mount["0.extra"].lp, mount["0.unused"].bf16, frozen, hold, steps)

    def replace_frozen(self, mine: Any, unused: Any, frozen: Callable[..., Any], hold: bool, steps: int) -> None:
        import torch

        for _ in range(100):
            self.step()
        module, old, memory = self.model[0], self.model[0].extra, weakref.ref(self.model[0].extra.untyped_storage())
        if not hold:
            del old
        module.extra = frozen(0.5)
        self.assertEqual(memory() is not None, hold)
        for _ in range(steps):
            self.step()
        self.assertTrue(torch.equal(mine.torch(), module.extra))
        writer = threading.Thread(target=mine.__setitem__, args=((3, 4), 0.75))
        writer.start()
        while writer.is_alive():
            self.step()
        self.assertEqual(module.extra[3, 4], 0.75)
        for replace in (functools.partial(setattr, module, "extra", frozen(0.5, rows=4)), functools.partial(delattr, module, "extra"),
                        functools.partial(setattr, self.model, "0", torch.nn.Linear(8, 8))):
            replace()
            for _ in range(20):
                self.step()
            with self.assertRaises(OSError) as raised:
                mine.torch()
            self.assertEqual(raised.exception.errno, errno.ENODATA)
        self.model[0].extra = frozen(0.125)
        for _ in range(20):
            self.step()
        self.assertTrue(torch.equal(mine.torch(), self.model[0].extra))
        self.model[0].extra.data, module.unused.data = torch.ones(2), torch.ones(2, dtype=torch.bfloat16)
        for _ in range(20):
            self.step()
        for value in (mine, unused):  # an edit would write past its end
            self.assertRaises(OSError, value.torch)

    def test_a_state_is_dropped_before_its_memory_is_freed(self) -> None:
        import torch

        self.start(1)
        state = self.mount["0.weight"].exp_avg
        self.assertEqual(state.nbytes, 256)
        del self.optimizer.state[self.weight]["exp_avg"]
        gc.collect()
        others = [torch.full((8, 8), 7.0) for _ in range(100)]  # may have the memory now
        with self.assertRaises(OSError) as raised:
            while True:
                self.assertNotIn(7.0, state.torch())
                time.sleep(0.01)
        self.assertIn(raised.exception.errno, (errno.ENOENT, errno.ESTALE, errno.EIO))
        del others

    def test_gradients_of_a_job_that_stands_are_there_when_the_first_mount_comes(self) -> None:
        """Until then nobody looks at them; a child of fork, as a worker of a DataLoader, makes no difference."""
        import torch

        self.start(1, mount=False)
        self.assertIsNotNone(self.attachment._loss_scale)
        child = os.fork()
        if not child:
            signal.pause()
        self.addCleanup(os.waitpid, child, 0)
        self.addCleanup(os.kill, child, signal.SIGKILL)
        self.open()
        mine = self.mount["0.weight"]
        self.assertTrue(torch.equal(mine.grad.torch(), self.weight.grad))
        self.assertIsNone(self.attachment._loss_scale)
        self.step()
        self.assertTrue(torch.equal(mine.grad.torch(), self.weight.grad))

    def test_gradients_that_a_step_changes_are_shown_behind_it(self) -> None:
        """As the foreach form of SGD with nesterov does, which adds the momentum to them."""
        import torch

        self.start(1, make=lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True, foreach=True))
        mine, job, seen = self.mount["0.weight"], self.attachment._job, []
        valid = job.grads_valid

        def look(loss_scale: float) -> None:
            seen.append(self.weight.grad.clone())
            valid(loss_scale)

        job.grads_valid = look
        mine.grad.torch()
        for weight_decay in (0, 0.1):  # with which torch leaves the gradients alone
            self.optimizer.param_groups[0]["weight_decay"] = weight_decay
            self.optimizer.zero_grad()
            loss = self.model(torch.ones(2, 8)).square().mean()
            computed, = torch.autograd.grad(loss, self.weight, retain_graph=True)
            loss.backward()
            seen.clear()
            self.optimizer.step()
            self.assertEqual(torch.equal(self.weight.grad, computed), bool(weight_decay))
            for shown in (*seen, mine.grad.torch()):
                self.assertTrue(torch.equal(shown, self.weight.grad))

    def test_gradients_that_a_fused_step_divides_are_shown_behind_it(self) -> None:
        import torch

        scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
        self.start(1, make=lambda params: torch.optim.AdamW(params, fused=True))
        mine, job, seen = self.mount["0.weight"], self.attachment._job, []
        valid = job.grads_valid

        def look(loss_scale: float) -> None:
            seen.append((loss_scale, self.weight.grad.clone()))
            valid(loss_scale)

        job.grads_valid = look
        mine.grad.torch()
        for _ in range(2):
            self.optimizer.zero_grad()
            loss = self.model(torch.ones(2, 8)).square().mean()
            unscaled, = torch.autograd.grad(loss, self.weight, retain_graph=True)
            scaler.scale(loss).backward()
            seen.clear()
            scaler.step(self.optimizer)
            scaler.update()
            (loss_scale, grad), = seen
            self.assertEqual(loss_scale, 1)
            for shown in (grad, mine.grad.torch()):
                self.assertTrue(torch.equal(shown, unscaled))  # the scale is a power of 2

    def test_a_step_is_given_all_that_it_takes(self) -> None:
        """Some optimizers' take more than a closure, or no closure first."""
        import torch

        given: list[Any] = []

        class Wide(torch.optim.SGD):
            def step(self, closure: Any = None, scale: float = 1, *, more: int = 0) -> None:
                given.append((super().step(closure) if callable(closure) else closure, scale, more))

        self.start(1, mount=False, make=lambda params: Wide(params, lr=0.1))
        for args, kwargs, want in (((lambda: 7, 2), {"more": 3}, (7, 2, 3)), ((), {"closure": lambda: 7, "more": 3}, (7, 1, 3)),
                                   ((5, 2), {"more": 3}, (5, 2, 3)), ((None, 2), {}, (None, 2, 0))):
            given.clear()
            self.optimizer.step(*args, **kwargs)
            self.assertEqual(given, [want])
        with fragfs.open(self.attachment.address) as mount:
            self.assertEqual(mount.step, 7)

    def test_a_forward_pass_of_another_thread_ends_no_step(self) -> None:
        import torch

        test, phases = self, []

        class Busy(torch.optim.SGD):
            def step(self) -> None:
                other = threading.Thread(target=test.model, args=(torch.ones(2, 8),))
                other.start()
                other.join()
                phases.append(test.attachment._in_step)
                super().step()

        self.start(1, mount=False, make=Busy)
        self.assertEqual(phases, [True] * 3)

    def test_when_the_last_mount_has_gone_nobody_looks_again(self) -> None:
        import torch

        self.start(1)
        self.mount["0.weight"].grad.torch()
        self.assertTrue(self.attachment._is_asked)
        self.mount.close()
        end = time.monotonic() + 60
        while self.attachment._is_asked and time.monotonic() < end:
            time.sleep(0.1)
            self.step()
        self.assertFalse(self.attachment._is_asked)
        self.step()
        self.assertIsNotNone(self.attachment._loss_scale)
        self.open()
        self.assertTrue(torch.equal(self.mount["0.weight"].grad.torch(), self.weight.grad))
        self.assertTrue(self.attachment._is_asked)

    def grad_now(self) -> bytes:
        """The gradient of the weight, or an error where a read would wait for one."""
        fd = os.open(os.path.join(self.mount["0.weight"].path, "grad"), os.O_RDONLY | os.O_NONBLOCK)
        try:
            return os.read(fd, 256)
        finally:
            os.close(fd)

    def test_a_state_of_several_dtypes_is_left_out_and_a_line_says_so(self) -> None:
        """As optimizers of 8 bits have, whose states of small tensors are float32."""
        import torch

        class Narrow(torch.optim.Adam):
            def step(self) -> None:
                super().step()
                for p, state in self.state.items():
                    if "narrow" not in state:
                        state["narrow"] = torch.ones_like(p, dtype=torch.uint8 if p.numel() >= 64 else torch.float32)

        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.start(2, make=Narrow)
            gc.collect()
            self.assertTrue(self.compare())
            self.assertNotIn("narrow", self.mount["0.weight"].states)
            for p in (self.model[0].bias, self.model[1].bias):
                self.optimizer.state[p]["narrow"] = torch.full_like(p, 7, dtype=torch.uint8)
            self.step()
            self.step()
            deadline = time.monotonic() + 60
            while "narrow" not in self.mount["0.bias"].states and time.monotonic() < deadline:  # a mount hears of it a second later
                time.sleep(0.05)
            self.assertEqual(self.mount["0.bias"].narrow.torch().tolist(), [7] * 8)
        self.assertEqual([line for line in said.getvalue().splitlines() if "shown" in line],
                         ["fragfs: rank 0: narrow has several dtypes in one param group: it is not shown"])

    def test_a_state_that_libfrag_does_not_take_is_left_out(self) -> None:
        import torch

        class Odd(torch.optim.Adam):
            def step(self) -> None:
                super().step()
                for p, state in self.state.items():
                    for key in ("a/b", 7, "fp32", "grad"):
                        state.setdefault(key, torch.full_like(p, 3))

        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.start(2, make=Odd)
            for _ in range(2):
                self.assertTrue(self.compare())
                self.assertTrue(torch.equal(self.mount["0.weight"].grad.torch(), self.weight.grad))
                for key in ("a/b", 7, "fp32", "grad"):
                    self.optimizer.state[self.weight][key] = self.weight.detach().clone()
                self.step()
            self.assertEqual(set(self.mount["0.weight"].states), {"fp32", "grad", *STATES})
            self.assertTrue(self.attachment)
        self.assertEqual([line for line in said.getvalue().splitlines() if "shown" in line],
                         ["fragfs: rank 0: frag_fragments_keep of a/b: Invalid argument: it is not shown"])

    def test_a_state_that_another_thread_frees_while_states_are_looked_at(self) -> None:
        import torch

        self.start(1)
        job, entered = self.attachment._job, threading.Event()
        states, drop = self.optimizer.state[self.weight], job.drop

        def slow_drop(*place: Any) -> None:
            entered.set()
            time.sleep(0.5)
            drop(*place)

        job.drop = slow_drop
        other = threading.Thread(target=states.pop, args=("exp_avg",))
        other.start()
        self.assertTrue(entered.wait(60))
        states["exp_avg"] = torch.zeros_like(self.weight)
        self.step()
        other.join()
        self.step()
        self.assertTrue(self.attachment)
        self.assertTrue(self.compare())

    def test_a_conversion_that_swaps_tensors(self) -> None:
        """Which torch does with no tensor that has a weak reference."""
        import torch

        self.start(1)
        torch.__future__.set_swap_module_params_on_conversion(True)
        self.addCleanup(torch.__future__.set_swap_module_params_on_conversion, False)
        self.optimizer.zero_grad()
        self.model.double().float()
        for _ in range(2):
            self.step()
            self.assertTrue(self.compare())
        self.assertTrue(self.attachment)

    def test_an_attribute_of_a_module_is_not_taken_for_fsdp1_s(self) -> None:
        def change(model: Any) -> None:
            model[0]._handle = model[0].register_forward_hook(lambda *_: None)

        self.start(1, change=change)
        self.assertTrue(self.compare())

    def test_options_that_there_are_not(self) -> None:
        import torch

        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters())
        for options, reason in (({"naem": "x"}, "there is no option naem; options are rank, world, job,"),
                                ({"size": 8}, "there is no option size"), ({"port": 70000}, "port=70000 is out of range"),
                                ({"world": -1}, "world=-1 is out of range"), ({"swap_max": 1 << 64}, "is out of range")):
            with self.subTest(options):
                self.assertRaisesRegex((TypeError, ValueError), reason, fragfs.attach, model, optimizer, strict=True, **options)

    def test_values_that_are_not_contiguous_are_not_shown_and_a_line_says_so(self) -> None:
        import torch

        def convolve(model: torch.nn.Sequential) -> None:
            model.extend([torch.nn.Unflatten(1, (2, 2, 2)), *(torch.nn.Conv2d(2, 2, 3, padding=1) for _ in range(2))])
            model.to(memory_format=torch.channels_last)[2].requires_grad_(False)

        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.start(1, change=convolve)
            for _ in range(2):
                self.step()
                self.assertTrue(self.compare())
                self.assertTrue(torch.equal(self.mount["0.weight"].grad.torch(), self.weight.grad))
                self.assertEqual(self.mount["2.bias"].lp.torch().tolist(), self.model[2].bias.tolist())
                self.assertTrue(torch.equal(self.mount["3.bias"].grad.torch(), self.model[3].bias.grad))
            self.assertEqual(list(self.mount["2.weight"].states), [])
            for key in ("fp32", *STATES, "grad"):
                with self.assertRaises(OSError) as raised:
                    self.mount["3.weight"][key].torch()
                self.assertEqual(raised.exception.errno, errno.ENODATA)
        self.assertEqual(said.getvalue(), "fragfs: rank 0: fp32 of 3.weight is not contiguous (channels_last?): such values are not shown\n")

    def test_parameters_that_another_optimizer_trains_are_said_to_be(self) -> None:
        import torch

        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.start(3, mount=False, make=lambda params: torch.optim.AdamW(params[:2]))
        self.assertEqual(said.getvalue(), "fragfs: rank 0: parameters with gradients that the optimizer does not have: 1.weight and 3 more; "
                                          "their values alone are shown\n")

    def test_parameters_that_are_trained_later_are_said_to_be(self) -> None:
        import torch

        def make(params: list[Any]) -> torch.optim.Optimizer:
            return torch.optim.SGD([{"params": params[:2]}, {"params": [*self.model[2].parameters()]}])

        def freeze(model: torch.nn.Sequential) -> None:
            for layer in (1, 2):
                model[layer].requires_grad_(False)

        for name, change in (("unfrozen", lambda: self.model[2].requires_grad_()),
                             ("added", lambda: self.optimizer.add_param_group({"params": [*self.model[1].parameters()]}))):
            with self.subTest(name), contextlib.redirect_stderr(io.StringIO()) as said:
                self.start(3, mount=False, change=freeze, make=make)
                for _ in range(20):
                    self.step()
                self.assertEqual(said.getvalue(), "")
                change()
                for _ in range(40):
                    self.step()
                self.assertEqual(said.getvalue(), "fragfs: rank 0: parameters that were frozen at attach, or not the optimizer's, are "
                                 "trained now: detach and attach again to see their states\n")
                self.attachment.detach()

    def test_handlers_of_signals_run_in_a_freeze_and_an_exception_of_one_ends_it(self) -> None:
        def fail(*_: object) -> None:
            raise ValueError("of the job")

        self.start(1, mount=False)
        for raised, handler in ((KeyboardInterrupt, signal.default_int_handler), (ValueError, fail)):
            with self.subTest(raised):
                self.freeze_and_raise(raised, handler)
        self.open()
        self.assertTrue(self.compare())

    def test_what_the_handler_of_a_signal_raises_in_a_hook_is_the_jobs(self) -> None:
        def fail(*_: object) -> None:
            raise ValueError("of the job")

        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, fail))
        for at in ("_job.step_begin", "_job.step_end", "_hypers._find_device", "_job.keep_fragments"):
            with self.subTest(at), contextlib.redirect_stderr(io.StringIO()) as said:
                self.start(1, mount=False)
                name, _, method = at.partition(".")
                held = getattr(self.attachment, name)
                setattr(held, method, lambda *_: signal.raise_signal(signal.SIGUSR1))
                self.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))  # states are registered anew
                with self.assertRaisesRegex(ValueError, "of the job"):
                    for _ in range(40):
                        self.step()
                self.assertFalse(self.attachment)
                self.assertRegex(said.getvalue(), "of the job; detached, as the handler of a signal raised it in a hook\n$")
                self.step()

    def freeze_and_raise(self, raised: type[BaseException], handler: Any) -> None:
        handled, has_stepped, ends = threading.Event(), threading.Event(), []
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, lambda *_: handled.set()))
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, handler))

        def freeze() -> None:
            with fragfs.open(self.attachment.address, "rw") as mount:
                try:
                    with mount.freeze(seconds=40000):
                        os.kill(os.getpid(), signal.SIGUSR1)
                        ends.append(handled.wait(60) and mount.phase)
                        os.kill(os.getpid(), signal.SIGINT)
                        has_stepped.wait(60)
                except OSError as e:
                    ends.append(e.errno)

        thread = threading.Thread(target=freeze)
        thread.start()
        with self.assertRaises(raised):
            while thread.is_alive():
                self.step()
        for _ in range(3):
            self.step()
        has_stepped.set()
        thread.join()
        self.assertEqual(ends, ["frozen", errno.ETIMEDOUT])
        self.assertTrue(self.attachment)

    def test_detach_within_a_step(self) -> None:
        """Torch goes through the optimizer's hooks there, and there must not be fewer of them suddenly."""
        import torch

        self.build(1)
        hooks = [self.optimizer._optimizer_step_post_hooks, self.optimizer._optimizer_step_pre_hooks, self.model._forward_pre_hooks]
        self.optimizer.register_step_post_hook(lambda *_: self.attachment.detach())
        with unittest.mock.patch.object(self, "build", lambda layers: None):
            self.start(1, mount=False)
        self.assertFalse(self.attachment)
        self.assertEqual([len(one) for one in hooks], [1, 0, 0])

    def test_parameters_that_were_replaced_end_it(self) -> None:
        """As training does that grows a model, or prunes it.  Those that the optimizer alone has let go are the model's still."""
        import torch

        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.start(2)
            del self.optimizer.param_groups[0]["params"][2:]
            for _ in range(20):
                self.step()
            self.assertTrue(self.compare())
            params, old = self.optimizer.param_groups[0]["params"], weakref.ref(self.weight.untyped_storage())
            self.optimizer.state.pop(self.weight)
            params[0] = self.model[0].weight = self.weight = torch.nn.Parameter(torch.ones(8, 8))
            self.step()
            self.step()
            self.assertFalse(self.attachment)
            gc.collect()
            self.assertIsNone(old())
        self.assertEqual(said.getvalue(), "fragfs: rank 0: parameters were replaced by others, in the model and its optimizer: attach "
                                          "again to see these; detached, training goes on\n")

    def test_gradients_are_gone_before_their_memory_is_freed_or_set_to_zero(self) -> None:
        def free() -> None:
            for p in self.model.parameters():
                p.grad = None

        self.start(1)
        for end in (free, lambda: self.model.zero_grad(set_to_none=False)):
            self.step()
            self.assertEqual(len(self.grad_now()), 256)
            end()
            with self.assertRaises(OSError) as raised:
                self.grad_now()
            self.assertEqual(raised.exception.errno, errno.ENODATA)

    def test_it_keeps_no_model(self) -> None:
        """One that nobody holds ends its attachment, of which there is one in a process."""
        self.start(2)
        with self.assertRaisesRegex(RuntimeError, rf"Sequential and AdamW are attached already \({self.attachment.address}\)"):
            fragfs.attach(self.model, self.optimizer, strict=True)
        for end in (lambda: setattr(self, "attachment", None), lambda: self.attachment.detach()):
            weight = weakref.ref(self.weight.untyped_storage())
            end()
            self.model = self.optimizer = self.weight = None
            gc.collect()
            self.assertIsNone(weight())
            self.build(2)
            self.attachment = fragfs.attach(self.model, self.optimizer, strict=True)
            self.step()

    def test_a_copy_and_a_pickle_of_the_model_have_nothing_of_fragfs(self) -> None:
        import torch

        self.start(1, mount=False)
        for twin in (copy.deepcopy(self.model), pickle.loads(pickle.dumps(self.model))):
            self.step()
            twin(torch.ones(2, 8)).sum().backward()
            self.assertIsNotNone(self.attachment._loss_scale)  # the window of the model's gradients is open still
            twin.zero_grad()
            self.assertIsNone(twin[0].weight.grad)
            self.assertIsNotNone(self.weight.grad)
        code = "import pickle, sys, torch\nsys.modules['fragfs'] = None\nmodel = pickle.load(sys.stdin.buffer)\n" \
               "model(torch.ones(2, 8)).sum().backward()\nmodel.zero_grad()\npickle.dumps(model)"
        subprocess.run([sys.executable, "-c", code], input=pickle.dumps(self.model), check=True)


@unittest.skipUnless(TORCH, "torch is not installed")
class Methods(unittest.TestCase):
    """What stands in place of a method is one to those who look at it."""

    def setUp(self) -> None:
        import torch

        self.model = torch.nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.calls: list[dict[str, Any]] = []

    def wrap(self, name: str) -> Callable[[], None]:
        def watched(method: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                self.calls.append(kwargs)
                return method(*args, **kwargs)
            return call

        return wrap_method(self.optimizer, name, watched)

    @unittest.skipUnless(importlib.util.find_spec("accelerate"), "accelerate is not installed")
    def test_accelerate_gives_zero_grad_what_it_takes(self) -> None:
        from accelerate import Accelerator

        optimizer = Accelerator(cpu=True).prepare(self.optimizer)
        undo = [self.wrap("zero_grad"), self.wrap("zero_grad")]
        for set_to_none in (False, True):
            optimizer.zero_grad(set_to_none=set_to_none)
        self.assertEqual(self.calls, [{"set_to_none": False}] * 2 + [{"set_to_none": True}] * 2)
        for one in undo[::-1]:
            one()
        self.assertNotIn("zero_grad", vars(self.optimizer))

    def test_a_scheduler_that_is_made_before_or_behind(self) -> None:
        import torch

        for is_before in (False, True):
            with self.subTest(is_before), warnings.catch_warnings():
                warnings.simplefilter("error")
                self.setUp()
                if is_before:
                    scheduler = torch.optim.lr_scheduler.ConstantLR(self.optimizer)
                undo = self.wrap("step")
                if not is_before:
                    scheduler = torch.optim.lr_scheduler.ConstantLR(self.optimizer)
                for _ in range(2):
                    self.model(torch.ones(2, 2)).sum().backward()
                    self.assertIsNone(self.optimizer.step())
                    scheduler.step()
                self.assertEqual(len(self.calls), 2)
                self.assertIn("closure", inspect.signature(self.optimizer.step).parameters)
                undo()
                self.optimizer.step()
                self.assertEqual(len(self.calls), 2)


@unittest.skipUnless(os.environ.get("FRAGFS") or shutil.which("fragfs"), "no fragfs in PATH")
@unittest.skipUnless(TORCH, "torch is not installed")
class Optimizers(unittest.TestCase):
    """Each of torch's, in one process: what it keeps of a parameter is shown, and an edit is what it goes on with."""

    def setUp(self) -> None:
        self.enterContext(unittest.mock.patch.dict(
            os.environ, RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0", FRAG_PLAIN="1",
            FRAG_JOB_ID=f"optimizers-{os.getpid()}"))

    def train(self, kind: str, make: type) -> None:
        import torch

        layer = torch.nn.Embedding(11, 3, sparse=True) if kind == "SparseAdam" else torch.nn.Linear(7, 5, bias=kind != "Muon")
        given = torch.tensor([2, 7]) if kind == "SparseAdam" else torch.randn(4, 7)
        optimizer = make(layer.parameters(), lr=1e-3)

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            value = layer(given).square().mean()
            value.backward()
            return value

        def step() -> None:
            if kind == "LBFGS":  # which has the gradients computed within its step
                optimizer.step(loss)
            else:
                loss()
                optimizer.step()

        with fragfs.attach(layer, optimizer, strict=True) as attachment:
            for _ in range(3):
                step()
            with fragfs.open(attachment.address, "rw") as mount:
                for name, p in layer.named_parameters():
                    kept = {} if kind == "LBFGS" else optimizer.state[p]  # its states are of all parameters at once
                    kept = {key: value for key, value in kept.items() if key != "step" and value.shape == p.shape}
                    if p.grad is not None and not p.grad.is_sparse:
                        kept["grad"] = p.grad
                    for key, value in {**kept, "fp32": p.detach()}.items():
                        self.assertTrue(torch.equal(mount[name][key].torch(), value), f"{name}/{key}")
                writer = threading.Thread(target=mount.groups[0].__setitem__, args=("lr", 0.0))
                writer.start()
                while writer.is_alive():
                    step()
                step()  # ASGD computes in a step the rate of its next one
                before = layer.weight.detach().clone()
                step()
                self.assertEqual(optimizer.param_groups[0]["lr"], 0)
                self.assertTrue(kind == "Rprop" or torch.equal(layer.weight, before))  # whose lr is but its first step's
            self.assertTrue(attachment)

    def test_all_of_torch(self) -> None:
        import torch

        kinds = {name: kind for name, kind in vars(torch.optim).items()
                 if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and name != "Optimizer"}
        self.assertGreater(len(kinds), 10)
        for name, kind in kinds.items():
            with self.subTest(name):
                self.train(name, kind)


@unittest.skipUnless(os.environ.get("FRAGFS") or shutil.which("fragfs"), "no fragfs in PATH")
class Reasons(unittest.TestCase):
    def test_a_reason_is_one_line(self) -> None:
        self.enterContext(unittest.mock.patch.dict(
            os.environ, RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0", FRAG_PLAIN="1",
            FRAG_JOB_ID=f"reasons-{os.getpid()}"))
        deepspeed = type("DeepSpeedEngine", (), {"__module__": "deepspeed.runtime.engine", "optimizer": None})
        for make, want in ((lambda *_: (_ for _ in ()).throw(RuntimeError("one\n  two\n")), "one two"),
                           (lambda *_: {}["name"], "KeyError: 'name'"), (lambda *_: [].name, "AttributeError: 'list' object has no"),
                           (lambda *_: (_ for _ in ()).throw(AssertionError()), "AssertionError"),
                           (lambda job: adapter_for(job, (deepspeed(),)), "the DeepSpeedEngine has no optimizer")):
            with self.subTest(want), unittest.mock.patch("fragfs.adapters.adapter_for", lambda job, things: make(job)), \
                    contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertFalse(fragfs.attach())
                line, = said.getvalue().splitlines()
                self.assertIn(f"not attached: {want}", line)


@unittest.skipUnless(TORCH, "torch is not installed")
class Names(unittest.TestCase):
    def test_wrappers_in_any_order_are_not_in_the_names_of_parameters(self) -> None:
        import torch

        from fragfs.adapters.torch_optim import _plain_names

        class Group(torch.nn.Module):  # a model, which has a part that is called `module`
            def __init__(self) -> None:
                super().__init__()
                self.module = torch.nn.Linear(2, 2)

        parallel, compiled = torch.nn.DataParallel, torch.compile
        for make in (lambda m: m, parallel, compiled, lambda m: compiled(parallel(m)), lambda m: parallel(compiled(m)),
                     lambda m: compiled(parallel(compiled(m)))):
            self.assertEqual([name for name, _ in _plain_names(make(torch.nn.Linear(2, 2)))], ["weight", "bias"])
            self.assertEqual([name for name, _ in _plain_names(make(Group()))], ["module.weight", "module.bias"])
        model = torch.nn.Sequential(compiled(torch.nn.Linear(2, 2)))
        self.assertEqual([name for name, _ in _plain_names(model)], ["0.weight", "0.bias"])


class Hypers(unittest.TestCase):
    def test_one_on_a_device_is_read_while_somebody_asks(self) -> None:
        class OnDevice(float):
            device = unittest.mock.Mock(type="cuda")
            reads = 0

            def fill_(self, value: float) -> None:
                pass

            def __float__(self) -> float:
                OnDevice.reads += 1
                return 0.0 + self

        options = {"lr": OnDevice(0.5), "eps": 0.25, "betas": (OnDevice(0.75), 0.5)}
        hypers = _Hypers([(0, options)])
        self.assertEqual(hypers.get(), [0.5, 0.25, 0.75, 0.5])
        hypers.is_asked = False
        for hypers_found in (False, True):
            before = OnDevice.reads
            options.update(lr=OnDevice(0.625), eps=0.125, betas=(OnDevice(0.875), 0.375))
            if hypers_found:
                hypers.find([(0, options)])
            self.assertEqual(hypers.get(), [0.5, 0.125, 0.75, 0.375])
            self.assertEqual(OnDevice.reads, before)
        hypers.is_asked = True
        self.assertEqual(hypers.get(), [0.625, 0.125, 0.875, 0.375])

    def test_one_that_is_not_there_now_is_what_it_was(self) -> None:
        options = {"lr": 0.5, "betas": (0.9, 0.99), "foreach": None}
        hypers = _Hypers([(3, options)])
        self.assertEqual(hypers.names, [(3, "lr"), (3, "beta1"), (3, "beta2")])
        self.assertEqual(hypers.get(), [0.5, 0.9, 0.99])
        hypers.put(2, 0.75)
        self.assertEqual(options["betas"], (0.9, 0.75))
        options = {"betas": (0.8, 0.75)}
        hypers.find([(3, options)])
        self.assertEqual(hypers.get(), [0.5, 0.8, 0.75])
        hypers.find([])
        self.assertEqual(hypers.get(), [0.5, 0.8, 0.75])


if __name__ == "__main__":
    unittest.main()
