# SPDX-License-Identifier: Apache-2.0
"""One rank of a DeepSpeed job that is resumed from export/ of a mount; test_export.py says which.

    universal_job.py run CASE FOLDER            trains, leaves FOLDER/values/ and FOLDER/address, waits for FOLDER/done
    universal_job.py resume CASE FOLDER STAGE   loads FOLDER/links, and compares what it holds with FOLDER/values/

CASE is one of tests/oracle/cases.py.  Exit status 0: all was right.
"""

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "oracle"))
import cases  # noqa: E402
import held  # noqa: E402
import processes  # noqa: E402


def trained(engine: Any, case: dict[str, Any], grid: Any) -> dict[str, dict[str, bytes]]:
    """{path: {state: bytes}} of the parameters that the optimizer has; DeepSpeed loads no others."""
    return {path: {key: held.raw(x) for key, x in states.items() if key in ("fp32", "exp_avg", "exp_avg_sq")}
            for path, kind, _, states, _ in held.shown(engine, case, grid) if kind == "param" and "exp_avg" in states}


def run(name: str, folder: Path) -> None:
    import fragfs
    import torch.distributed as dist

    case = cases.case_of(name)
    grid = cases.Grid(1)
    engine = cases.start(case, grid)
    with fragfs.attach(engine, strict=True) as attachment:
        cases.train(engine, grid)
        for path, states in trained(engine, case, grid).items():
            (folder / "values" / path).mkdir(parents=True, exist_ok=True)
            for key, value in states.items():
                (folder / "values" / path / key).write_bytes(value)
        dist.barrier()
        if dist.get_rank() == 0:
            (folder / "address.new").write_text(attachment.address)
            (folder / "address.new").rename(folder / "address")
        while not (folder / "done").exists():
            time.sleep(0.1)
        dist.barrier()


def resume(name: str, folder: Path, stage: int) -> None:
    case = dict(cases.case_of(name), universal=True, stage=stage)
    grid = cases.Grid(1)
    engine = cases.start(case, grid, load=True)
    path, _ = engine.load_checkpoint(str(folder / "links"))
    assert path and engine.global_steps == cases.STEPS, engine.global_steps
    for path, states in trained(engine, case, grid).items():
        assert len(states) == 3
        for key, value in states.items():
            assert (folder / "values" / path / key).read_bytes() == value, f"{path}/{key} differs"
    inner = engine.optimizer.optimizer
    assert all(int(state["step"]) == cases.STEPS for state in inner.state.values() if "step" in state)
    assert inner.param_groups[0]["betas"] == (0.9, 0.999)
    import model

    engine.backward(engine(model.batch(cases.STEPS, grid.dp_rank)))
    engine.step()
    assert engine.global_steps == cases.STEPS + 1
    print(f"{name}: resumed by stage {stage}")


if __name__ == "__main__":
    processes.start_deepspeed()
    if sys.argv[1] == "run":
        run(sys.argv[2], Path(sys.argv[3]))
    else:
        resume(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    import torch.distributed as dist

    dist.destroy_process_group()  # gloo's threads end before the process does, which else aborts at times
