"""Models run in processes of their own: onnxruntime may crash, and takes nobody along.

`remote.Isolated` is a backend as any other; `server` opens and runs its models, by the backends of
this room, in the process that `environments.isolation` starts.
"""
