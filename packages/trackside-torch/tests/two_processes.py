"""What one of several processes does: `python two_processes.py SCENARIO` prints what it saw as one line of JSON."""

import contextlib
import json
import os
import sys
from pathlib import Path

import torch
from tiny import At, Items, Net, Stream, Told, logged, make_trainer, raiser, weights

from trackside import TrainerCallback

RANK = int(os.environ.get("RANK", 0))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))
EACH_STEP = {"logging_strategy": "steps", "logging_steps": 1, "learning_rate": 0.01}


def place():
    class Silent(TrainerCallback):
        """Keeps what only the first process is to report."""

        reported = 0

        def on_log(self, args, state, control, **kwargs):
            self.reported += state.is_world_process_zero

    silent = Silent()
    trainer = make_trainer(evaluation=Items(10), callbacks=[silent])
    flags = [trainer.state.is_world_process_zero, trainer.state.is_local_process_zero]
    args = trainer.args
    trainer.evaluate()
    return {"flags": flags, "args": [args.process_index, args.world_size], "reported": silent.reported}


def _whole_weights(trainer):
    return [value for parameter in weights(trainer) for value in parameter.flatten().tolist()]


def train_and_evaluate(train=None, **options):
    """The same global batches, whatever the number of processes."""
    trainer = make_trainer(
        train=Items(44) if train is None else train,
        evaluation=Items(13),
        eval_strategy="epoch",
        per_device_train_batch_size=8 // WORLD_SIZE,
        per_device_eval_batch_size=4 // WORLD_SIZE,
        num_train_epochs=2,
        compute_metrics=lambda p: {"sum": float((p.predictions * range(13)).sum()), "n": len(p.label_ids)},
        **EACH_STEP,
        **options,
    )
    trainer.train()
    history = trainer.state.log_history
    kept = (
        "loss",
        "grad_norm",
        "learning_rate",
        "epoch",
        "eval_loss",
        "eval_sum",
        "eval_n",
        "train_loss",
        "total_flos",
    )
    return {
        "history": [{key: entry[key] for key in kept if key in entry} for entry in history],
        "weights": _whole_weights(trainer),
    }


def trainings():
    return {
        "map": train_and_evaluate(),
        "accumulated": train_and_evaluate(gradient_accumulation_steps=2),
        "stream": train_and_evaluate(Stream(Items(44)), max_steps=5),
    }


def flags():
    """Each process asks for something else, at another event."""

    class Asks(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 2 and RANK == 1:
                control.should_save = True
            if state.global_step == 4 and RANK == 0:
                control.should_evaluate = True

        def on_evaluate(self, args, state, control, **kwargs):
            control.should_training_stop = RANK == 1

    told = Told()
    trainer = make_trainer(train=Items(64), evaluation=Items(8), callbacks=[Asks, told])
    trainer.train()
    return {"step": trainer.state.global_step, "saves": told.saves, "evaluations": len(told.evaluations)}


class Counted(Net):
    def floating_point_ops(self, inputs):
        return 1


def resume():
    options = {"train": Items(64), "save_strategy": "steps", "save_steps": 3, "num_train_epochs": 2, **EACH_STEP}

    def dropping():
        model = Counted(dropout=0.3)
        torch.manual_seed(RANK)
        return model

    whole = make_trainer(dropping, **options)
    whole.train()
    cut = make_trainer(dropping, **options, callbacks=[At(5, raiser(RuntimeError("cut")))])
    with contextlib.suppress(RuntimeError):
        cut.train()
    resumed = make_trainer(dropping, seed_model=1, **options)
    resumed.train(resume_from_checkpoint="out/checkpoint-3")
    return {
        "same_losses": logged(resumed) == logged(whole),
        "same_weights": _whole_weights(resumed) == _whole_weights(whole),
        "files": sorted(file.name for file in Path("out/checkpoint-3").iterdir()),
        "flos": [whole.state.total_flos, resumed.state.total_flos],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(globals()[sys.argv[1]]()) + "\n")
    sys.stdout.flush()
    # When one process leaves, gloo now and then aborts another one that is leaving too, also without any code of ours.
    os._exit(0)
