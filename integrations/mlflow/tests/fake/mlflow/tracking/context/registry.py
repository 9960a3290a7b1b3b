"""What a run says of where it comes from."""


def resolve_tags(tags=None, ignore=None):
    return {"mlflow.user": "somebody", "mlflow.source.name": "train.py", "mlflow.source.type": "LOCAL", **(tags or {})}
