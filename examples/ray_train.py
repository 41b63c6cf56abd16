"""Ray Train with a stoker.Loader: python examples/ray_train.py PATH [STORAGE [RANKS]]

Each worker makes its loader inside the training function, where Ray has initialised
torch.distributed, and reports the loader's state in its checkpoints. Ray restarts workers that die.
A run with the same name continues at its step, also with another number of workers.
"""

import pathlib
import sys
import tempfile

import stoker

try:
    import ray
    import ray.train
    import ray.train.torch
    import torch
except ImportError as error:
    print(f"nothing to show without Ray Train and PyTorch: {error}")
    sys.exit(0)

GLOBAL_BATCH, EPOCHS = 12, 2


def train(config):
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    loader = stoker.Loader(
        config["path"],
        GLOBAL_BATCH // world,
        fields={
            "image": stoker.Image(None, [stoker.RandomResizedCrop(8), stoker.Normalize()]),
            "label": stoker.Label(),
            "id": "__id__",
        },
    )
    torch.manual_seed(0)
    layer = torch.nn.Linear(3 * 8 * 8, 10)
    model = ray.train.torch.prepare_model(layer)  # DDP, if there is more than one worker
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    step, checkpoint = 0, ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            saved = torch.load(pathlib.Path(folder) / "all.pt")
        layer.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        step = saved["step"]

    for epoch in range(loader.epoch, EPOCHS):
        loader.set_epoch(epoch)
        for batch in loader:
            step += 1
            print(f"step {step} rank {rank} of {world}: samples {batch['id'].tolist()}", flush=True)
            loss = torch.nn.functional.cross_entropy(
                model(batch["image"].flatten(1)), batch["label"]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with tempfile.TemporaryDirectory() as folder:
                checkpoint = None
                if rank == 0:
                    state = {
                        "model": layer.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "loader": loader.state_dict(),
                        "step": step,
                    }
                    torch.save(state, pathlib.Path(folder) / "all.pt")
                    checkpoint = ray.train.Checkpoint.from_directory(folder)
                ray.train.report({"step": step}, checkpoint=checkpoint)


def main(train=train):
    storage = sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()
    ranks = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    ray.init(num_cpus=ranks + 1, include_dashboard=False)
    trainer = ray.train.torch.TorchTrainer(
        train,
        train_loop_config={"path": str(pathlib.Path(sys.argv[1]).resolve())},
        scaling_config=ray.train.ScalingConfig(num_workers=ranks),
        run_config=ray.train.RunConfig(
            name="stoker",
            storage_path=str(pathlib.Path(storage).resolve()),
            failure_config=ray.train.FailureConfig(max_failures=1),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        ),
    )
    print("done:", trainer.fit().metrics)


if __name__ == "__main__":
    main()
