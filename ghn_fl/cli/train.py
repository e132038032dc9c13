"""`ghnfl train`: the main job. Its flags are the fields of `RunConfig`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

# RunConfig lives behind torch; these are its fields, compared with it by a test.
DataDir = Annotated[
    Path | None, typer.Option(envvar="GHNFL_DATA", help="Where data sets are looked for.")
]


def train(
    skew: Annotated[str | None, typer.Option(help="Strong and weak devices, S:W.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Data set; see ghnfl datasets.")] = None,
    method: Annotated[str | None, typer.Option(help="Method; see ghnfl methods.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Communication rounds.")] = None,
    seed: Annotated[int | None, typer.Option(help="Everything random follows from it.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder; runs/METHOD-DATASET-SEED if left out.")
    ] = None,
    data_dir: DataDir = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with settings.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="A paper's settings, for example recipfl-mnist.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    fleet: Annotated[
        str | None, typer.Option(help="A TOML file of tiers, instead of --skew.")
    ] = None,
    elastic: Annotated[
        str | None, typer.Option(help="A TOML file of devices that change their model on the way.")
    ] = None,
    large: Annotated[str | None, typer.Option(help="Model of the strong devices.")] = None,
    small: Annotated[str | None, typer.Option(help="Model of the weak devices.")] = None,
    strong_share: Annotated[
        float | None, typer.Option(help="Part of the data that strong devices hold.")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Dirichlet concentration of a weak device's class mix.")
    ] = None,
    classes_per_client: Annotated[
        int | None, typer.Option(help="Classes of every device, instead of --alpha.")
    ] = None,
    validation: Annotated[
        float | None,
        typer.Option(help="Evaluate on this part of each device's training data, held out."),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(help="Public data: a data set, or heldout:0.1, a tenth of the training data."),
    ] = None,
    stratified: Annotated[
        bool | None,
        typer.Option("--stratified", help="Sample every tier in proportion to its size."),
    ] = None,
    sample: Annotated[int | None, typer.Option(help="Clients sampled in a round.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Local epochs.")] = None,
    lr: Annotated[float | None, typer.Option(help="Local step size of SGD.")] = None,
    lr_decay: Annotated[
        float | None,
        typer.Option(
            help="Its part that is left in the last round, after equal factors; 1: constant."
        ),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Local batch size.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Local momentum.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Local weight decay.")] = None,
    clip: Annotated[
        float | None, typer.Option(help="Largest norm of a local step's gradient; 0: no limit.")
    ] = None,
    kl: Annotated[str | None, typer.Option(help="Direction of Eq. 9's feature term.")] = None,
    transfer: Annotated[
        bool | None,
        typer.Option("--transfer/--no-transfer", help="Knowledge transfer on strong devices."),
    ] = None,
    eval_every: Annotated[
        int | None,
        typer.Option(
            help="Rounds between evaluations; the last fifth has all. 0: after the last alone."
        ),
    ] = None,
    finetune: Annotated[
        int | None,
        typer.Option(help="Epochs that a device trains before it is evaluated; 0: none."),
    ] = None,
    dropout: Annotated[
        float | None, typer.Option(help="Probability that a sampled client does not answer.")
    ] = None,
    client_deadline: Annotated[
        float | None, typer.Option(help="Simulated seconds that a client may train; 0: no limit.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the method, as update.lr=0.003; repeatable."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; as many as cores if left out.", min=1)
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard events.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Train strong and weak devices together."""
    given = {k: v for k, v in locals().items() if k not in _NOT_SETTINGS and v is not None}
    from ghn_fl.cli.progress import show
    from ghn_fl.simulation.config import RunConfig, from_mapping

    values = layered(preset, config, given)
    if set_:
        values["options"] = values.get("options", {}) | dict(_pair(text) for text in set_)
    settings = from_mapping(RunConfig, values, "setting")
    folder = out or Path("runs") / f"{settings.method}-{settings.dataset}-{settings.seed}"
    show(
        settings,
        folder,
        data_dir=data_dir,
        workers=workers,
        resume=resume,
        tensorboard=tensorboard,
        quiet=quiet,
    )


_NOT_SETTINGS = (
    "out", "data_dir", "config", "preset", "resume", "set_", "workers", "tensorboard", "quiet",
)  # fmt: skip


def layered(preset: str | None, config: Path | None, given: dict[str, Any]) -> dict[str, Any]:
    """The settings of a preset, those of a file over them, flags over both; unchecked."""
    from ghn_fl.errors import ConfigError
    from ghn_fl.simulation.config import read_file
    from ghn_fl.simulation.presets import PRESETS

    if given.get("skew") and given.get("fleet"):
        raise ConfigError("--skew and --fleet both say which devices there are; give one of them")
    values: dict[str, Any] = dict(PRESETS[preset]()) if preset else {}
    if config is not None:
        values |= read_file(config)
    return values | given


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--set takes NAME=VALUE, got {text!r}")
    return key, value
