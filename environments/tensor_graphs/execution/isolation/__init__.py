"""Run models in a separate process, since onnxruntime may crash.

`remote.Isolated` is a backend as any other; `server` opens and runs its models, by the backends of
this room, in the process that `environments.isolation` starts.
"""
